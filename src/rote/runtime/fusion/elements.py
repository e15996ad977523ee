"""Types of elements: how a kernel names them, and in which type it calculates with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Element:
    """One type.

    Attributes:
        dtype: The type.
        cpp: Its name in C++.
        triton: Its name in Triton.
        pointer: The name of what a pointer in Triton points to.
    """

    dtype: torch.dtype
    cpp: str
    triton: str
    pointer: str


ELEMENTS = {
    each.dtype: each
    for each in (
        Element(torch.float32, "float", "tl.float32", "fp32"),
        Element(torch.float64, "double", "tl.float64", "fp64"),
        Element(torch.bfloat16, "bfloat16", "tl.bfloat16", "bf16"),
        Element(torch.float16, "float16", "tl.float16", "fp16"),
        Element(torch.int64, "int64_t", "tl.int64", "i64"),
        Element(torch.int32, "int32_t", "tl.int32", "i32"),
        Element(torch.int16, "int16_t", "tl.int16", "i16"),
        Element(torch.int8, "int8_t", "tl.int8", "i8"),
        Element(torch.uint8, "uint8_t", "tl.uint8", "u8"),
        Element(torch.bool, "bool", "tl.int1", "i1"),
    )
}
"""Types that kernels know."""

_SHORT = frozenset({torch.bfloat16, torch.float16})


def is_short(dtype: torch.dtype) -> bool:
    """Whether a type has 16 bits and is calculated with in 32."""
    return dtype in _SHORT


def calculated_in(dtype: torch.dtype) -> torch.dtype:
    """The type in which PyTorch's kernels calculate with elements of a type (``opmath_t``)."""
    return torch.float32 if dtype in _SHORT else dtype
