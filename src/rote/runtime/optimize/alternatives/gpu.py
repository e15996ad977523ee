"""What alternatives have to know of a GPU, and the texts of their kernels."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import torch

OLDEST = 80
"""Compute capability from which on products take bfloat16."""


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


@functools.cache
def text_of(name: str) -> str:
    """The text of a file beside this one that nobody imports."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
