"""Edges of the tree: the values and shapes that the host saw, in a form that can be a dict key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import bits_of
from .operations import Value, assemble, results_of

NUMBER = "number"
"""Begins the edge of a number that changes: how many such were read before, and the way that calls go."""


class Raised:
    """What a check on the host gives when it raises: another edge than when it does not."""

    def __init__(self, error: Exception) -> None:
        self._kind, self._arguments = type(error), error.args

    def again(self) -> Exception:
        """The exception, made anew, since one that was raised holds frames."""
        return self._kind(*self._arguments)

    def __eq__(self, other: object) -> bool:
        mine = (self._kind, self._arguments)
        return isinstance(other, Raised) and mine == (other._kind, other._arguments)

    def __hash__(self) -> int:
        return hash((self._kind, self._arguments))

    def __repr__(self) -> str:
        return repr(self.again())


def caught(check: Callable[..., None]) -> Callable[..., Raised | None]:
    """A check that returns what it raises."""

    def run(*args: Any, **kwargs: Any) -> Raised | None:
        try:
            check(*args, **kwargs)
        except Exception as error:
            return Raised(error)
        return None

    return run


def edge_of(out: Any, shaped: bool) -> tuple[Any, list[torch.Tensor]]:
    """The edge along which a branch's result leads, and the tensors of the result if that is its shape."""
    if not shaped:
        return (type(out).__name__, _Number(out) if isinstance(out, (float, complex)) else out), []
    structure, parts = results_of(out)
    shapes = tuple([_shape_of(part) for part in parts])
    return ("shape", shapes, structure), [part for part in parts if isinstance(part, torch.Tensor)]


def _shape_of(part: Any) -> Any:
    if isinstance(part, torch.Tensor):
        return tuple(part.shape), part.stride(), part.dtype
    return Value.of(part)


def result_along(edge: Any, tensors: list[torch.Tensor]) -> Any:
    """The result that led along an edge of shapes, with these tensors."""
    rest = iter(tensors)
    parts = [each.value if isinstance(each, Value) else next(rest) for each in edge[1]]
    return assemble(edge[2], parts)


def value_of(edge: Any) -> Any:
    """The value that was read along an edge."""
    return edge[1].value if type(edge[1]) is _Number else edge[1]


class _Number:
    """A float or complex number that is compared by its bits."""

    __slots__ = ("_bits", "value")

    def __init__(self, value: complex) -> None:
        self.value = value
        self._bits = bits_of(value)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Number and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)
