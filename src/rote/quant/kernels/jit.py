"""The one place that imports Triton, at the first launch."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch

from ...base.errors import EnvironmentError_


@functools.cache
def module(name: str) -> ModuleType:
    """The module of kernels with a name, ``"jit_gemm"`` or ``"jit_transform"``."""
    try:
        return importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise EnvironmentError_(
            "path='kernel' needs Triton on a GPU: pip install triton, or take path='fused'"
        ) from error


def interpreted(kernel: Any) -> bool:
    """Whether a kernel runs in Triton's interpreter, which has neither assembler nor bfloat16 arithmetic."""
    return type(kernel).__name__ == "InterpretedFunction"


@functools.cache
def gpu(index: int | None) -> tuple[str, int]:
    """A GPU's name and how many multiprocessors it has; what the interpreter plays is small."""
    if index is None:
        return "interpreter", 4
    properties = torch.cuda.get_device_properties(index)
    return properties.name, properties.multi_processor_count
