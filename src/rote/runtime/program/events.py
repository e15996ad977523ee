"""What a call did, as a list of events that two calls can be compared by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from ...base import Site, bits_of, cut, float_bits, float_of
from .generators import Drawn
from .storages import StorageTable, Token

CAPTURED, VIEWED, ISLAND, EARLY, READ, SHAPED, ANYWHERE, CONST, HOST, LIST = (
    "captured", "view", "island", "early", "read", "shaped", "anywhere", "constant", "host data", "list",
)  # fmt: skip


_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_NUMBERS = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device})


Shape = str | tuple[str, tuple[int | None, ...]]
"""Structure of an operation's results."""


@dataclass(slots=True)
class Event:
    """One operation of a call.

    Attributes:
        kind: Where it ran, one of the names above.
        operation: Name of the operation.
        operands: Comparable form of the operands, tensors as tokens.
        results: Results in order: a token, the index of the tensor operand it is, a value, or None.
        shape: Structure of the results: ``"one"``, ``"tuple"``, ``"list"`` or ``"none"``; with lists inside a
            tuple (weight gradients of a recurrent layer), the outer one and the lengths of the inner ones.
        site: The user's line.
    """

    kind: str
    operation: str
    operands: Any
    results: tuple[Any, ...]
    shape: Shape
    site: Site


@dataclass(frozen=True, slots=True)
class Value:
    """A result of an operation that is no tensor.

    Attributes:
        form: What it is compared by.
        value: The result.
    """

    form: Any
    value: Any = field(compare=False)

    @classmethod
    def of(cls, value: Any) -> Value:
        """Note a result."""
        return cls((type(value).__name__, _plain(value)), value)


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensor operands of an operation, in order; lists of tensors are opened."""
    found: list[torch.Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is _Tensor:
            found.append(value)
        elif kind in _NUMBERS:  # before the questions that take longer
            continue
        elif isinstance(value, _Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and value and type(value[0]) is not int:
            found.extend([item for item in value if isinstance(item, _Tensor)])
    return found


def operands_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], token: Callable[[torch.Tensor], Token]
) -> tuple[list[torch.Tensor], list[Token], Any]:
    """The tensor operands of an operation, as :func:`tensors_of` finds them, their tokens, and all operands.

    Args:
        args: The positional operands.
        kwargs: The others.
        token: Describes a tensor.

    Returns:
        The tensors, their tokens, and the comparable form of all operands with tokens for tensors.
    """
    tensors: list[torch.Tensor] = []
    tokens: list[Token] = []
    all_of_them: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is _Tensor or kind is _Parameter:  # what most operands are, before the questions
            described = token(value)
            tensors.append(value)
            tokens.append(described)
            all_of_them.append(described)
        elif kind is int or value is None:
            all_of_them.append(value)
        else:
            all_of_them.append(_operand(value, tensors, tokens, token))
    if not kwargs:
        return tensors, tokens, tuple(all_of_them)
    named = tuple([(name, _operand(value, tensors, tokens, token)) for name, value in kwargs.items()])
    return tensors, tokens, (tuple(all_of_them), named)


def _operand(
    value: Any, tensors: list[torch.Tensor], tokens: list[Token], token: Callable[[torch.Tensor], Token]
) -> Any:
    kind = type(value)
    if kind in _NUMBERS:
        return _plain(value)
    if isinstance(value, _Tensor):
        tensors.append(value)
        tokens.append(token(value))
        return tokens[-1]
    if kind is list or kind is tuple:
        if value and type(value[0]) is int:  # a shape: no tensor is in a list of numbers
            return tuple([item if type(item) is int else _plain(item) for item in value])
        return tuple(
            [
                _operand(item, tensors, tokens, token) if isinstance(item, _Tensor) else _plain(item)
                for item in value
            ]
        )
    return _plain(value)


def _plain(value: Any) -> Any:
    """A number, string or setting, so that 1, 1.0 and True stay apart and NaN equals itself."""
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if kind is float:
        return float_bits(value)
    if kind is bool:
        return ("bool", value)
    if kind is list or kind is tuple:
        return tuple([_plain(item) for item in value])
    return _comparable_other(value)


def is_same_plain(value: Any, expected: Any) -> bool:
    """Whether an operand is a number, setting or shape of this comparable form; no says nothing."""
    kind = type(value)
    if kind is int or value is None:
        return type(expected) is kind and value == expected
    return (kind in _NUMBERS or kind is list or kind is tuple) and _plain(value) == expected


def tokens_in(operands: Any) -> list[Token]:
    """The tokens among the operands of an event, in the order of :func:`tensors_of`."""
    if type(operands) is Token:
        return [operands]
    return [token for each in operands for token in tokens_in(each)] if type(operands) is tuple else []


def comparable(value: Any, storages: StorageTable) -> Any:
    """Turn an operand into something that equals its counterpart in another call exactly if they agree."""
    if isinstance(value, torch.Tensor):
        return storages.token(value)
    kind = type(value)
    if kind is list or kind is tuple:
        return tuple([comparable(item, storages) for item in value])
    if kind is dict:
        return tuple([(key, comparable(item, storages)) for key, item in value.items()])
    return _plain(value)


def _comparable_other(value: Any) -> Any:
    if isinstance(value, numpy.ndarray):
        return ("array", value.__array_interface__["data"][0], value.shape, value.dtype.str)
    if isinstance(value, numpy.generic):
        return ("scalar", value.dtype.str, value.tobytes())
    if isinstance(value, complex):
        return ("complex", bits_of(value))
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, bytes)):
        return value
    if isinstance(value, Drawn):
        return value
    return (type(value).__name__,)


def results_of(value: Any) -> tuple[Shape, list[Any]]:
    """Take an operation's result apart into its structure and its parts."""
    if isinstance(value, _Tensor):
        return "one", [value]
    if not isinstance(value, (tuple, list)):
        return ("none", []) if value is None else ("one", [value])
    kind = "tuple" if isinstance(value, tuple) else "list"
    if not any(isinstance(item, list) for item in value):
        return kind, list(value)
    lengths = tuple([len(item) if isinstance(item, list) else None for item in value])
    return (kind, lengths), [part for item in value for part in (item if isinstance(item, list) else (item,))]


def assemble(shape: Shape, parts: list[Any]) -> Any:
    """Inverse of :func:`results_of`."""
    if isinstance(shape, tuple):
        rest = iter(parts)
        kind, lengths = shape
        outer = [next(rest) if n is None else [next(rest) for _ in range(n)] for n in lengths]
        return tuple(outer) if kind == "tuple" else outer
    if shape == "one":
        return parts[0]
    if shape == "tuple":
        return tuple(parts)
    return parts if shape == "list" else None


def first_difference(was: Event, now: Event) -> str | None:
    """Say in which operand two events of one operation differ, or None if the operation itself differs."""
    if was.operation != now.operation:
        return None
    pair = _descend(was.operands, now.operands)
    if pair is None:
        return _other_value(was, now)
    return f"an operand of {now.operation} was {_text(pair[0])} and is {_text(pair[1])}"


def _other_value(was: Event, now: Event) -> str | None:
    for before, after in zip(was.results, now.results, strict=False):
        if isinstance(before, Value) and isinstance(after, Value) and before != after:
            return f"{now.operation} gave {before.value!r} and gives {after.value!r}"
    return None


def _descend(was: Any, now: Any) -> tuple[Any, Any] | None:
    if was == now:
        return None
    plain = isinstance(was, tuple) and isinstance(now, tuple) and not isinstance(was, Token)
    if plain and len(was) == len(now) and not isinstance(now, Token):
        for before, after in zip(was, now, strict=True):
            pair = _descend(before, after)
            if pair is not None:
                return pair
    return was, now


def _text(value: Any) -> str:
    if isinstance(value, Token):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype}{list(value.shape)} tensor ({value.origin[0]} {value.origin[1]})"
    if isinstance(value, bytes) and len(value) == len(float_bits(0.0)):
        return repr(float_of(value))
    text = repr(value)
    return cut(text, 80)
