"""The body of a kernel as data: what it computes for one element, without addresses and numbers.

Equal bodies are compiled once. The values of a body stand in the order in which they are computed; a value
names its operands by their place in it. Numbers of Python's are parameters, never part of a body.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .functions import Function
from .positions import ElementPosition, Term
from .rows import RowOrder


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


@dataclass(frozen=True)
class Loaded:
    """An element of a tensor.

    Attributes:
        tensor: Which one of those that the kernel reads.
        position: Where it lies.
        within: The digits within whose bounds it may be looked at; anything stands for it elsewhere.
    """

    tensor: int
    position: ElementPosition
    dtype: torch.dtype
    within: tuple[Term, ...]


@dataclass(frozen=True)
class RealNumber:
    """A real number: a parameter, by its number, rounded to a type."""

    index: int
    dtype: torch.dtype


@dataclass(frozen=True)
class WholeNumber:
    """A whole number or a truth value: a parameter, by its number, taken in a type."""

    index: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Calculated:
    """What a function gives for values of one type.

    Attributes:
        operands: Its operands, as places of values.
    """

    function: Function
    operands: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Converted:
    """A value in another type, rounded to the nearest one.

    Attributes:
        operand: The place of the value.
    """

    operand: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Picked:
    """One of several values, by a digit.

    Attributes:
        highs: For each value but the last one, the first value of the digit that is behind it.
        operands: The places of the values.
    """

    digit: Term
    highs: tuple[int, ...]
    operands: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Summed:
    """The sum of a value over all elements of a row: for all of them the same.

    Attributes:
        operand: The place of the value.
        order: In which order it is added up; a row of it is one of the kernel's elements.
    """

    operand: int
    order: RowOrder
    dtype: torch.dtype


Value = Loaded | RealNumber | WholeNumber | Calculated | Converted | Picked | Summed


def operands_of(value: Value) -> tuple[int, ...]:
    """The places of the values that a value is made of."""
    if isinstance(value, (Converted, Summed)):
        return (value.operand,)
    return value.operands if isinstance(value, (Calculated, Picked)) else ()


@dataclass(frozen=True)
class Body:
    """What a kernel computes.

    Attributes:
        count: How many elements each of its results has.
        reads: The types of the tensors that it reads.
        values: What is computed for one element, in order.
        stores: The places of its results; each lies without gaps, and its elements come in the order in which
            they lie.
        reals: How many real numbers it takes.
        integers: How many whole numbers it takes.
        in_place: A result may lie where a tensor lies that it reads: each element where the same one is read.
    """

    count: int
    reads: tuple[torch.dtype, ...]
    values: tuple[Value, ...]
    stores: tuple[int, ...]
    reals: int
    integers: int
    in_place: bool = False

    @property
    def writes(self) -> tuple[torch.dtype, ...]:
        """The types of its results."""
        return tuple([self.values[place].dtype for place in self.stores])

    @property
    def rows(self) -> RowOrder | None:
        """How its elements are rows that are added up, if they are; all of its sums are of the same rows."""
        for value in self.values:
            if isinstance(value, Summed):
                return value.order
        return None

    @property
    def reach(self) -> tuple[int, ...]:
        """Of each tensor that it reads, the last element that it may look at."""
        most = [0] * len(self.reads)
        for value in self.values:
            if isinstance(value, Loaded):
                most[value.tensor] = max(most[value.tensor], value.position.reach)
        return tuple(most)
