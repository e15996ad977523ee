"""Types of elements: how a kernel names them, and in which type it calculates with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Element:
    """One type, with its names in C++ and in Triton."""

    dtype: torch.dtype
    cpp: str
    triton: str


ELEMENTS = {
    each.dtype: each
    for each in (
        Element(torch.float32, "float", "tl.float32"),
        Element(torch.float64, "double", "tl.float64"),
        Element(torch.bfloat16, "bfloat16", "tl.bfloat16"),
        Element(torch.float16, "float16", "tl.float16"),
        Element(torch.int64, "int64_t", "tl.int64"),
        Element(torch.int32, "int32_t", "tl.int32"),
        Element(torch.int16, "int16_t", "tl.int16"),
        Element(torch.int8, "int8_t", "tl.int8"),
        Element(torch.uint8, "uint8_t", "tl.uint8"),
        Element(torch.bool, "bool", "tl.int1"),
    )
}
"""Types that kernels know."""

_SHORT = frozenset({torch.bfloat16, torch.float16})


def bits_of(dtype: torch.dtype) -> torch.dtype:
    """Whole numbers that have as many bits as elements of a type."""
    return {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def is_short(dtype: torch.dtype) -> bool:
    """Whether a type has 16 bits and is calculated with in 32."""
    return dtype in _SHORT


def calculated_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which PyTorch's kernels calculate with elements of a type (``opmath_t``)."""
    return torch.float32 if dtype in _SHORT else dtype
