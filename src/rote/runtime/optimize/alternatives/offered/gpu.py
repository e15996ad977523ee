"""What alternatives have to know of a GPU, their kernels in Triton, and memory for those."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ....compiling import KernelSource, Language, Programs
from .offered import AlternativeRun

OLDEST, HOPPER = 80, 90
"""Compute capability from which on products take bfloat16; that of the GPUs whose order of sums is known."""


class GpuProperties(NamedTuple):
    """What a kernel is chosen by.

    Attributes:
        shared_bytes: Shared memory that a program may have.
    """

    capability: int
    units: int
    shared_bytes: int


@functools.cache
def properties_of(index: int | None) -> GpuProperties:
    """Those of a device, by its index."""
    found = torch.cuda.get_device_properties(index)
    shared: int = getattr(found, "shared_memory_per_block_optin", 0) or 99 << 10
    return GpuProperties(10 * found.major + found.minor, found.multi_processor_count, shared)


class KernelParameter(NamedTuple):
    """Memory that a kernel is given, the type of its numbers, and whether it begins at 16 bytes."""

    name: str
    kind: str
    aligned: bool = True


def triton_kernel(
    name: str, file: str, lines: Iterable[str], given: Sequence[KernelParameter], grid: Programs, gpu: int
) -> KernelSource:
    """A kernel that calls functions of a file.

    Args:
        lines: Its body.
        gpu: The compute capability.
    """
    head = f"@triton.jit\ndef {name}({', '.join([each.name for each in given])}):"
    return KernelSource(
        language=Language.TRITON,
        name=name,
        text="\n".join([f"{_text_of(file)}\n", head, *[f"    {line}" for line in lines], ""]),
        tensors=tuple([each.kind for each in given]),
        aligned=tuple([each.aligned for each in given]),
        grid=grid,
        capability=gpu,
    )


def memory_for(
    run: AlternativeRun, like: torch.Tensor, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Memory that is made by the recording, on the device of a tensor."""
    options = {"dtype": dtype, "device": like.device}
    return run(torch.ops.aten.empty_strided.default, (tuple(shape), tuple(strides)), options)


@functools.cache
def _text_of(name: str) -> str:
    """The text of a file that nobody imports, by its place in the room of alternatives."""
    return (Path(__file__).parents[1] / name).read_text(encoding="utf-8")
