"""The one place that imports Triton, at the first launch."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Hashable, Sequence
from types import ModuleType
from typing import Any

import torch

from ...base import EnvironmentError_


@functools.cache
def module(name: str) -> ModuleType:
    """The module of kernels with a name, ``"gemm"`` or ``"transform"``."""
    try:
        return importlib.import_module(f"{__package__}.jit.{name}")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise EnvironmentError_(
            "path='kernel' needs Triton on a GPU: pip install triton, or take path='fused'"
        ) from error


def interpreted(kernel: Any) -> bool:
    """Whether a kernel runs in Triton's interpreter, which has neither assembler nor bfloat16 arithmetic."""
    return type(kernel).__name__ == "InterpretedFunction"


def launch(
    kernel: Any, grid: tuple[int, int, int], values: Sequence[Any], key: Hashable, options: dict[str, int]
) -> None:
    """Launch a kernel.

    Triton finds out anew for every launch which variant of a kernel its arguments need, which takes several
    times as long as the launch. Here ``key`` says it, and Triton is only asked for keys that are new, and
    where a pointer is not aligned as kernels are compiled for. A key has to differ where types, sizes that
    are compiled in, constants, options or the device do.
    """
    pointers = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            pointers |= value.data_ptr()
    usual = pointers % 16 == 0
    found = variants(kernel).get(key) if usual else None
    if found is not None:
        found[grid](*values)
        return
    made = kernel[grid](*values, **options)
    if usual and made is not None:  # the interpreter makes nothing
        variants(kernel)[key] = made


@functools.cache
def variants(kernel: Any) -> dict[Hashable, Any]:
    """The compiled variants of a kernel that have been launched."""
    return {}


def gpu(x: torch.Tensor) -> tuple[str, int]:
    """A GPU's name and how many multiprocessors it has; what the interpreter plays is small."""
    return _gpu(x.device.index) if x.is_cuda else ("interpreter", 4)


@functools.cache
def _gpu(index: int | None) -> tuple[str, int]:
    properties = torch.cuda.get_device_properties(index)
    return properties.name, properties.multi_processor_count


def starts_early(x: torch.Tensor, kernel: Any) -> bool:
    """Whether a kernel can be launched before its predecessor is done, which began with Hopper."""
    return not interpreted(kernel) and _is_hopper(x.device.index)


@functools.cache
def _is_hopper(index: int | None) -> bool:
    return index is not None and torch.cuda.get_device_capability(index) >= (9, 0)
