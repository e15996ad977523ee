"""Operands of operations as data: 1, 1.0 and True differ, and a NaN equals itself.

Calls compare them at every operation. So they are tuples, and most comparisons are by identity: tensors that
look alike share a look, and equal numbers are usually one object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy
import torch

from ....base import bits_of, complex_of, float_bits, float_of
from ...numbers import Computed
from ...pytorch import WeakGroup
from ..storages import Token

_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_SHARED = 1 << 14
"""Numbers for which equal ones share one object; further ones are compared by value."""


class Number(NamedTuple):
    """A number of Python's.

    Attributes:
        kind: ``int``, ``bool``, ``float`` or ``complex``.
        bits: An ``int`` or ``bool`` itself, the bits of others.
    """

    kind: type
    bits: int | bytes

    @property
    def value(self) -> complex:
        """The number, to the bit."""
        bits = self.bits
        if isinstance(bits, int):
            return bits
        return float_of(bits) if self.kind is float else complex_of(bits)

    def __repr__(self) -> str:
        return repr(self.value)


class Drawn:
    """A generator as an operand.

    Args:
        order: The number of its state, among the states to which the call has set generators.
        state: The state at its first draw; of a generator from outside, where the call has set it.
        identity: The identity of the object, if it is known to live outside.
        number: The argument that it is, if each call may have another one.
    """

    def __init__(
        self, order: int, seed: int, state: bytes | None, identity: int | None, number: int | None = None
    ) -> None:
        self.order, self.state, self.identity, self.number = order, state, identity, number
        self._seed = seed

    @property
    def is_outside(self) -> bool:
        """Whether it was made outside."""
        return self.identity is not None or self.number is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drawn) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[Any, ...]:
        order = self.order if self.identity is None else None
        return self.identity, self.number, self.state, order

    def __repr__(self) -> str:
        return f"a generator seeded with {self._seed}"


class Opaque(NamedTuple):
    """An operand of which nothing is known but the name of its class."""

    kind: str

    def __repr__(self) -> str:
        return f"a {self.kind}"


class NumpyScalar(NamedTuple):
    """A number of numpy's, among host data: its type, as numpy writes it, and its bytes."""

    dtype: str
    content: bytes

    def __repr__(self) -> str:
        return repr(numpy.frombuffer(self.content, self.dtype)[0])


class ArrayMemory(NamedTuple):
    """Memory of a numpy array that was made outside, which is read again at each replay.

    Attributes:
        dtype: Type of its elements, as numpy writes it, or as PyTorch does where it has become a tensor.
        stride: Strides of the tensor over it; None for the array itself.
    """

    address: int
    dtype: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None = None


Operand = Any
"""A token, number (which may be computed at each replay), setting (as a dtype), tuple of operands, generator,
host data, or an opaque object."""

_SETTINGS = frozenset({
    str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, Drawn,
})  # fmt: skip
_NUMBERS = frozenset({int, float, bool, complex})


@lru_cache(_SHARED, typed=True)
def _whole(value: int) -> Number:
    return Number(type(value), value)


@lru_cache(_SHARED)
def _float(bits: bytes) -> Number:
    return Number(float, bits)


def number_of(value: complex) -> Number:
    """A number as an operand."""
    kind = type(value)
    if kind is int or kind is bool:
        return _whole(cast("int", value))
    return _float(float_bits(value)) if kind is float else Number(complex, bits_of(value))


def operand_of(value: Any, token: Callable[[torch.Tensor], Operand]) -> Operand:
    """An operand as data, or numbers and lists that become a tensor; ``token`` describes a tensor."""
    return _operand(value, [], [], token)


def operands_of(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], token: Callable[[torch.Tensor], Token]
) -> tuple[list[torch.Tensor], list[Token], tuple[Operand, ...], tuple[tuple[str, Operand], ...]]:
    """The operands of an operation as data.

    Returns:
        The tensors among them in order, lists opened; their tokens; all operands by position; the others by
        name.
    """
    tensors: list[torch.Tensor] = []
    tokens: list[Token] = []
    operands: list[Operand] = []
    for value in args:
        kind = type(value)
        if kind is _Tensor or kind is _Parameter:  # most operands, before the slower questions
            described = token(value)
            tensors.append(value)
            tokens.append(described)
            operands.append(described)
        elif kind is int:
            operands.append(_whole(value))
        elif kind is float:
            operands.append(_float(float_bits(value)))
        elif value is None:
            operands.append(None)
        else:
            operands.append(_operand(value, tensors, tokens, token))
    if not kwargs:
        return tensors, tokens, tuple(operands), ()
    named = tuple([(name, _operand(value, tensors, tokens, token)) for name, value in kwargs.items()])
    return tensors, tokens, tuple(operands), named


def _operand(
    value: Any, tensors: list[torch.Tensor], tokens: list[Any], token: Callable[[torch.Tensor], Operand]
) -> Operand:
    kind = type(value)
    if kind in _SETTINGS:
        return value
    if kind in _NUMBERS:
        return number_of(value)
    if kind is Computed:
        return value
    if isinstance(value, _Tensor):
        tensors.append(value)
        tokens.append(token(value))
        return tokens[-1]
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        return tuple([
            _whole(item) if type(item) is int else _operand(item, tensors, tokens, token) for item in items
        ])  # fmt: skip
    return _other(value)


def _other(value: Any) -> Operand:
    if isinstance(value, numpy.ndarray):
        return ArrayMemory(value.__array_interface__["data"][0], value.dtype.str, value.shape)
    if isinstance(value, numpy.generic):
        return NumpyScalar(value.dtype.str, value.tobytes())
    if isinstance(value, WeakGroup):
        return Opaque(f"process group {value.name}")
    return Opaque(type(value).__name__)


def tokens_in(operands: Iterable[Operand]) -> list[Token]:
    """The tokens among operands, in the order of :func:`operands_of`."""
    return [each for each in _leaves(operands) if type(each) is Token]


def numbers_in(operands: Iterable[Operand]) -> list[Number]:
    """The numbers among operands, in the same order."""
    return [each for each in _leaves(operands) if type(each) is Number]


def _leaves(operands: Iterable[Operand]) -> Iterator[Operand]:
    for each in operands:
        if type(each) is tuple:
            yield from _leaves(cast("tuple[Operand, ...]", each))
        else:
            yield each


def rebuilt(operand: Operand, leaf: Callable[[Operand], Any]) -> Any:
    """An operand as PyTorch takes it: lists as lists, and what ``leaf`` makes of everything else."""
    if type(operand) is tuple:
        return [rebuilt(each, leaf) for each in cast("tuple[Operand, ...]", operand)]
    return leaf(operand)


class HostValues(NamedTuple):
    """Plain values of Python's, usually in lists, of which a function makes a tensor.

    Attributes:
        options: The function's other arguments: by position, and by name as text.
        device: Type of its device.
    """

    values: Operand
    options: tuple[Operand, ...]
    dtype: torch.dtype
    device: str


class HostBytes(NamedTuple):
    """Memory of the host, with its content when it became a tensor.

    Attributes:
        source: Type of the members, as numpy writes it, or as PyTorch does.
        content: The bytes, in order; or the array that replays compute.
        device: Type of its device; None for that of the memory.
    """

    shape: tuple[int, ...]
    source: Any
    content: bytes | Computed
    dtype: torch.dtype
    device: str | None = None


def content_of(tensor: torch.Tensor) -> HostBytes:
    """What a tensor holds."""
    content = tensor.detach()
    if content.device.type != "cpu":
        content = content.cpu()
    flat = torch.empty(content.shape, dtype=content.dtype).copy_(content).view(-1).view(torch.uint8)
    return HostBytes(tuple(tensor.shape), tensor.dtype, flat.numpy().tobytes(), tensor.dtype)
