"""Results of operations as data: what they are, and how an operation returns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..storages import Token
from .operands import Operand, operand_of

Structure = str | tuple[str, tuple[int | None, ...]]
"""How the results are returned: ``"one"``, ``"tuple"``, ``"list"`` or ``"none"``.

With lists inside a tuple (weight gradients of a recurrent layer): the outer one and the lengths of the inner
ones.
"""


class Reference(NamedTuple):
    """A result that is an operand, usually one that was written in place.

    Attributes:
        operand: The position among the tensor operands.
        token: The tensor afterwards, if the operation changed its memory or shape.
    """

    operand: int
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A result that is no tensor, and the form by which it is compared."""

    form: Operand
    value: Any = field(compare=False)

    @classmethod
    def of(cls, value: Any) -> Value:
        """Note a result."""
        return cls((type(value).__name__, operand_of(value, _no_tensor)), value)


def _no_tensor(tensor: torch.Tensor) -> Token:
    raise TypeError(f"a {type(tensor).__name__} in a result that is no tensor")


def results_of(value: Any) -> tuple[Structure, list[Any]]:
    """Take an operation's result apart into its structure and its parts."""
    if isinstance(value, torch.Tensor):
        return "one", [value]
    if not isinstance(value, (tuple, list)):
        return ("none", []) if value is None else ("one", [value])
    kind = "tuple" if isinstance(value, tuple) else "list"
    if not any(isinstance(item, list) for item in value):
        return kind, list(value)
    lengths = tuple([len(item) if isinstance(item, list) else None for item in value])
    return (kind, lengths), [part for item in value for part in (item if isinstance(item, list) else (item,))]


def assemble(structure: Structure, parts: Sequence[Any]) -> Any:
    """Inverse of :func:`results_of`."""
    if isinstance(structure, tuple):
        rest = iter(parts)
        kind, lengths = structure
        outer = [next(rest) if n is None else [next(rest) for _ in range(n)] for n in lengths]
        return tuple(outer) if kind == "tuple" else outer
    if structure == "one":
        return parts[0]
    if structure == "tuple":
        return tuple(parts)
    return list(parts) if structure == "list" else None
