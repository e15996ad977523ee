"""Writes operations into the body of a kernel.

An operand that an operation of the same group makes is calculated where it is needed, in the kernel that
needs it, so that it need not be in memory; twice, if two kernels need it. Where it has to be in memory all
the same, because its position is no sum of digits or too much would be calculated again, the kernel loads it,
and another one that runs before stores it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...base import float_bits
from ..program import Number, Operand, Operation, Origin, Token
from .body import (
    ELEMENTS,
    Body,
    Calculated,
    Converted,
    Loaded,
    Picked,
    RealNumber,
    Summed,
    Value,
    WholeNumber,
    calculated_in,
    is_short,
    operands_of,
)
from .functions import DIVIDE, Function
from .positions import Digit, ElementPosition, Term, aligned, behind, digit_behind, digits_of, piece
from .rows import RowOrder
from .rules import NoKernelError, adds_rows, normalizes, rule_for

MOST_ELEMENTS = 2**31 - 1
"""Elements are counted in 32 bits, and so are places in memory."""
_EXACT_IN_DOUBLE = 2**53
"""Whole numbers up to here are real ones of 64 bits."""


class ToMemoryError(Exception):
    """The result of an operation has to be in memory."""

    def __init__(self, index: int) -> None:
        super().__init__(f"operation {index}")
        self.index = index


@dataclass(frozen=True)
class Fusible:
    """An operation that a kernel can calculate.

    Attributes:
        index: Its place among the operations.
        digits: The dimensions of that, as they lie.
        count: How many elements that has.
        order: How it adds up rows, if that is what it does.
    """

    index: int
    operation: Operation
    result: Token
    digits: tuple[Digit, ...]
    count: int
    order: RowOrder | None = None

    @classmethod
    def of(cls, index: int, operation: Operation) -> Fusible:
        """What is known of an operation.

        Raises:
            NoKernelError: A kernel cannot calculate it.
        """
        result = _result_of(operation)
        if rule_for(operation) is None or result is None:
            raise NoKernelError("there is no rule for it")
        digits = digits_of(result.shape, result.stride)
        if digits is None or result.offset or 0 in result.shape:
            raise NoKernelError("its result has gaps, or no elements")
        count = 1
        for digit in digits:
            count *= digit.size
        if count > MOST_ELEMENTS:
            raise NoKernelError("its result has too many elements")
        tokens = [*operation.tokens, result]
        if any(
            [token.dtype not in ELEMENTS or token.look.on_host is not result.look.on_host for token in tokens]
        ):
            raise NoKernelError("its operands have types that are not known, or lie on another device")
        order = _order_of(operation, result) if adds_rows(operation) else None
        return cls(index, operation, result, digits, count, order)

    def alone(self) -> Written:
        """The kernel that calculates this operation and no other; the sum of a row for each of its elements.

        Raises:
            NoKernelError: There is none.
        """
        count, position = self.count, ElementPosition.same(self.count)
        if self.order is not None:
            count, position = self.order.rows * self.order.columns, _row_of(self.order)
        writer = BodyWriter({}, lambda origin: origin, (), count, on_host=self.result.look.on_host)
        writer.store(self, position)
        return writer.finish()

    @property
    def form(self) -> Hashable:
        """What it does, wherever its operands lie: operations of one form are written alike."""
        operation = self.operation
        named = tuple([(name, _form_of(each)) for name, each in operation.named])
        return (operation.name, _form_of(operation.operands), named, _form_of(self.result))

    @property
    def rank(self) -> int:
        """How many dimensions its result has."""
        return len(self.result.shape)


@dataclass(frozen=True)
class Written:
    """A kernel's body, and what it is for.

    Attributes:
        reads: The memory that it reads: a storage, looked at as elements of one type.
        stores: The operations whose results it stores.
        covers: The operations that it calculates.
    """

    body: Body
    reads: tuple[tuple[Origin, torch.dtype], ...]
    stores: tuple[int, ...]
    reals: tuple[float, ...]
    integers: tuple[int, ...]
    covers: frozenset[int]


class BodyWriter:
    """Writes one kernel.

    Args:
        group: The operations that may be calculated in it, by the storage that each makes.
        home: The storage that has the contents of a storage.
        in_memory: Operations of the group whose results are loaded.
        count: How many elements each of its results has.
    """

    def __init__(
        self,
        group: Mapping[Origin, Fusible],
        home: Callable[[Origin], Origin],
        in_memory: Collection[int],
        count: int,
        *,
        on_host: bool,
    ) -> None:
        self._group = group
        self._home = home
        self._in_memory = in_memory
        self._count = count
        self._order: RowOrder | None = None
        self.on_host = on_host
        self._values: dict[Value, int] = {}
        self._types: list[torch.dtype] = []
        self._known: dict[tuple[int, ElementPosition, tuple[Term, ...]], int] = {}
        self._tensors: dict[tuple[Origin, torch.dtype], int] = {}
        self._reals: dict[Number, int] = {}
        self._integers: dict[Number, int] = {}
        self._covers: set[int] = set()
        self._stores: dict[int, int] = {}

    def store(self, each: Fusible, position: ElementPosition) -> None:
        """Have the result of an operation calculated and stored.

        Args:
            position: Which element of its result is stored for each of the kernel's.

        Raises:
            NoKernelError: There is no rule for this operation.
            ToMemoryError: The result of another one has to be in memory for it.
        """
        self._stores[each.index] = self.result(each, position, ())

    @property
    def order(self) -> RowOrder | None:
        """How it adds up rows, if it does."""
        return self._order

    @property
    def tensors(self) -> int:
        """How many tensors the kernel takes."""
        return len(self._tensors) + len(self._stores)

    @property
    def loads(self) -> set[Origin]:
        """The storages that it reads."""
        return {origin for origin, _ in self._tensors}

    def result(self, each: Fusible, position: ElementPosition, within: tuple[Term, ...]) -> int:
        """The result of an operation, for its element at a position."""
        key = (each.index, position, within)
        found = self._known.get(key)
        if found is None:
            rule = rule_for(each.operation)
            if rule is None:
                raise NoKernelError("there is no rule for it")
            found = self._known[key] = rule(Calculation(self, each, position, within))
            self._covers.add(each.index)
        return found

    def element(self, token: Token, position: ElementPosition, within: tuple[Term, ...]) -> int:
        """An element of a tensor, by its position in the tensor's memory.

        Raises:
            ToMemoryError: Some operation's result has to be in memory for it.
        """
        origin = self._home(token.origin)
        made = self._group.get(origin)
        if made is not None and made.index not in self._in_memory:
            if made.result.dtype is not token.dtype:  # the bits are looked at as another type
                raise ToMemoryError(made.index)
            return self.result(made, position, within)
        if position.reach > MOST_ELEMENTS:
            raise NoKernelError("an operand lies too far from the begin of its memory")
        tensor = self._tensors.setdefault((origin, token.dtype), len(self._tensors))
        return self.value(Loaded(tensor, position, token.dtype, within))

    def summed(self, each: Fusible, position: ElementPosition, within: tuple[Term, ...]) -> int:
        """The sum of the row to which an element belongs.

        Raises:
            ToMemoryError: The kernel cannot add up such rows.
        """
        order = each.order
        whole = order is not None and self._count == order.rows * order.columns
        if order is None or not whole or within or position != _row_of(order):
            raise ToMemoryError(each.index)
        if self._order is not None and self._order != order:
            raise ToMemoryError(each.index)
        token = each.operation.tokens[0]
        if self._group and self._home(token.origin) not in self._group:
            raise ToMemoryError(each.index)  # where it begins is not known, and with it how PyTorch loads it
        self._order = order
        operand = self.element(token, ElementPosition.same(self._count), ())
        return self.value(Summed(operand, order, token.dtype))

    def value(self, value: Value) -> int:
        """The place of a value; equal ones are one."""
        place = self._values.setdefault(value, len(self._values))
        if place == len(self._types):
            self._types.append(value.dtype)
        return place

    def type_of(self, place: int) -> torch.dtype:
        """The type of a value."""
        return self._types[place]

    @property
    def size(self) -> int:
        """How many values it has."""
        return len(self._types)

    def number(self, number: Number, dtype: torch.dtype) -> int:
        """A number of Python's in a type."""
        if dtype.is_floating_point:
            if number.kind is int and abs(number.value) > _EXACT_IN_DOUBLE:
                raise NoKernelError("a whole number has more bits than a real one")
            index = self._reals.setdefault(number, len(self._reals))
            return self.value(RealNumber(index, dtype))
        if number.kind is float:
            raise NoKernelError("a real number is taken as a whole one")
        index = self._integers.setdefault(number, len(self._integers))
        return self.value(WholeNumber(index, dtype))

    def finish(self) -> Written:
        """The kernel, without values that nothing needs."""
        values = list(self._values)
        needed = _needed(values, self._stores.values())
        places = {was: now for now, was in enumerate(needed)}
        loaded = [value.tensor for value in map(values.__getitem__, needed) if isinstance(value, Loaded)]
        tensors = {was: now for now, was in enumerate(sorted(set(loaded)))}
        reads = [each for number, each in enumerate(self._tensors) if number in tensors]
        body = Body(
            count=self._count,
            reads=tuple([dtype for _, dtype in reads]),
            values=tuple([_renumbered(values[was], places, tensors) for was in needed]),
            stores=tuple([places[each] for each in self._stores.values()]),
            reals=len(self._reals),
            integers=len(self._integers),
        )
        reals = tuple([float(each.value.real) for each in self._reals])
        integers = tuple([int(each.value.real) for each in self._integers])
        return Written(body, tuple(reads), tuple(self._stores), reals, integers, frozenset(self._covers))


class Calculation:
    """One operation at one position, as a rule is given it; writes its values into a body."""

    def __init__(
        self, writer: BodyWriter, each: Fusible, position: ElementPosition, within: tuple[Term, ...]
    ) -> None:
        self._writer = writer
        self._each = each
        self._position = position
        self._within = within

    @property
    def operation(self) -> Operation:
        """The operation."""
        return self._each.operation

    @property
    def result(self) -> torch.dtype:
        """The type of its result."""
        return self._each.result.dtype

    @property
    def on_host(self) -> bool:
        """It is calculated by the host."""
        return self._writer.on_host

    def operand(self, operand: Operand, dtype: torch.dtype) -> int:
        """A tensor's element, or a number, in a type."""
        if isinstance(operand, Number):
            return self._writer.number(operand, dtype)
        if not isinstance(operand, Token):
            raise NoKernelError("an operand is neither a tensor nor a real number")
        each = self._each
        relative = aligned(each.digits, each.rank, operand.shape, operand.stride, operand.offset)
        return self.converted(self._element(operand, relative, self._within), dtype)

    def _element(self, token: Token, relative: ElementPosition, within: tuple[Term, ...]) -> int:
        each = self._each
        position = behind(self._position, relative, each.count)
        if position is None:
            raise ToMemoryError(each.index)
        return self._writer.element(token, position, within)

    def converted(self, value: int, dtype: torch.dtype) -> int:
        """A value, rounded to a type."""
        writer = self._writer
        was = writer.type_of(value)
        if was is dtype:
            return value
        if was.is_floating_point and not dtype.is_floating_point and dtype is not torch.bool:
            raise NoKernelError("it makes whole numbers of real ones")
        if (is_short(dtype) and was is not torch.float32) or (is_short(was) and dtype is not torch.float32):
            value = self.converted(value, torch.float32)
        return writer.value(Converted(value, dtype))

    def calculated(self, function: Function, operands: Sequence[int], dtype: torch.dtype) -> int:
        """What a function gives."""
        return self._writer.value(Calculated(function, tuple(operands), dtype))

    @property
    def inner(self) -> torch.dtype:
        """The type of arithmetic: that in which PyTorch calculates its result."""
        return calculated_in(self.result)

    def given(self, operand: Operand) -> int:
        """An operand of arithmetic: a tensor is rounded to the type of the result first, a number is not."""
        return self.operand(operand, self.inner) if isinstance(operand, Number) else self.rounded(operand)

    def rounded(self, operand: Operand, common: torch.dtype | None = None) -> int:
        """An operand of arithmetic that is rounded to a type, that of the result if there is no other."""
        common = common or self.result
        return self.converted(self.operand(operand, common), calculated_in(common))

    def made(self, function: Function, *values: int) -> int:
        """What a function gives in arithmetic."""
        return self.calculated(function, values, self.inner)

    def truth(self, function: Function, *values: int) -> int:
        """What a function says of values."""
        return self.calculated(function, values, torch.bool)

    def inverse(self, value: int) -> int:
        """One, divided by a value of arithmetic."""
        return self.made(DIVIDE, self.given(Number(int, 1)), value)

    def summed(self, operand: Operand) -> int:
        """The sum of the row to which the element belongs."""
        if self._each.order is None or operand is not self.operation.operands[0]:
            raise NoKernelError("what it adds up is not known")
        return self._writer.summed(self._each, self._position, self._within)

    def share(self) -> Number:
        """What makes a mean of that."""
        if self._each.order is None:
            raise NoKernelError("what it adds up is not known")
        return Number(float, float_bits(self._each.order.share))

    def picked(self, pieces: Sequence[Token], dimension: int) -> int:
        """The element of the piece in which it lies, where pieces follow one another in a dimension."""
        each = self._each
        found = [digit for digit in each.digits if digit.dimension == dimension]
        if len(pieces) == 1 or not found:
            raise NoKernelError("its pieces are not along a dimension of its result")
        digit = digit_behind(self._position, found[0].span, found[0].size)
        if digit is None:
            raise ToMemoryError(each.index)
        places: list[int] = []
        highs: list[int] = []
        low = 0
        for token in pieces:
            size = token.shape[dimension]
            if not size:
                continue
            relative = piece(each.digits, dimension, low, token.stride, size, token.offset)
            within = (*self._within, digit._replace(low=low, high=low + size))
            places.append(self._element(token, relative, within))
            low += size
            highs.append(low)
        if len(places) == 1:
            return places[0]
        return self._writer.value(Picked(digit, tuple(highs[:-1]), tuple(places), self.result))


def _result_of(operation: Operation) -> Token | None:
    """What a kernel stores: the one result, or the batch; it gives nothing else that is of use."""
    if operation.structure != "one" and not normalizes(operation):
        return None
    return operation.results[0] if isinstance(operation.results[0], Token) else None


def _form_of(operand: Operand) -> Any:
    if isinstance(operand, Token):
        return (operand.look, operand.offset)
    return tuple(map(_form_of, operand)) if type(operand) is tuple else operand


def _row_of(order: RowOrder) -> ElementPosition:
    """The row of each element of a matrix."""
    rows, columns = order.rows, order.columns
    return ElementPosition(0, (Term(columns, rows, 1, 0, rows),) if rows > 1 else ())


def _order_of(operation: Operation, result: Token) -> RowOrder:
    """How an operation adds up rows.

    Raises:
        NoKernelError: That is not known.
    """
    matrix, dimensions = operation.operands[0], operation.operands[1] if len(operation.operands) > 1 else None
    if result.look.on_host or not isinstance(matrix, Token) or not matrix.shape:
        raise NoKernelError("there is no rule for it")
    last = (Number(int, -1),), (Number(int, len(matrix.shape) - 1),)
    if dimensions not in last or {matrix.dtype, result.dtype} != {torch.float32}:
        raise NoKernelError("it does not add up rows of 32 bits")
    digits = digits_of(matrix.shape, matrix.stride)
    in_order = digits is not None and [each.dimension for each in digits] == sorted(
        [each.dimension for each in digits]
    )
    if not in_order or matrix.offset or 0 in matrix.shape:
        raise NoKernelError("its rows have gaps, or no elements")
    columns = matrix.shape[-1]
    order = RowOrder.of(math.prod(matrix.shape) // columns, columns)
    if order is None or columns == 1:
        raise NoKernelError("in which order it adds up such rows is not known")
    return order


def _needed(values: Sequence[Value], stores: Collection[int]) -> list[int]:
    """The values that the stored ones are made of, in order."""
    found, rest = set[int](), list(stores)
    while rest:
        place = rest.pop()
        if place not in found:
            found.add(place)
            rest += operands_of(values[place])
    return sorted(found)


def _renumbered(value: Value, places: Mapping[int, int], tensors: Mapping[int, int]) -> Value:
    """A value by other places of values and tensors."""
    if isinstance(value, Loaded):
        return replace(value, tensor=tensors[value.tensor])
    if isinstance(value, (Converted, Summed)):
        return replace(value, operand=places[value.operand])
    if isinstance(value, (Calculated, Picked)):
        return replace(value, operands=tuple([places[each] for each in value.operands]))
    return value
