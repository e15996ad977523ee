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
    """A module of kernels, by its name."""
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
    """Launch a kernel, by its compiled variant for ``key`` where there is one.

    Triton works out for every launch which variant of a kernel the arguments need, which takes several times
    as long as the launch. So it is only asked for a new key, and where a pointer is not aligned as kernels
    are compiled for. Keys must differ where types, compiled sizes, constants, options or the device do.
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
    """A GPU's name and number of multiprocessors; the interpreter plays a small one."""
    return _gpu(x.device.index) if x.is_cuda else ("interpreter", 4)


@functools.cache
def _gpu(index: int | None) -> tuple[str, int]:
    properties = torch.cuda.get_device_properties(index)
    return properties.name, properties.multi_processor_count


def starts_early(x: torch.Tensor, kernel: Any) -> bool:
    """Whether a kernel can be launched before its predecessor is done: from Hopper on."""
    return not interpreted(kernel) and _is_hopper(x.device.index)


@functools.cache
def _is_hopper(index: int | None) -> bool:
    return index is not None and torch.cuda.get_device_capability(index) >= (9, 0)
