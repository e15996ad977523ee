"""What calls look like at a glance: enough to guess which key one has, without taking its arguments apart."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Module

from .opened import table_of

DEPTH, WIDTH = 3, 4
"""How far the first tensor in an argument is looked for: so many levels down, among so many members."""

_PLAIN = frozenset({int, float, bool, str})
Shapes = tuple[Any, ...]


def shapes_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes:
    """Shapes of tensors and plain values: enough to guess the path of a call, which looks at all itself.

    Of a container or an object it is the shape of the first tensor in it: states that grow, grow together.
    """
    given = (*args, *kwargs.values()) if kwargs else args
    return tuple(
        [
            value.shape if type(value) is Tensor else value if type(value) in _PLAIN else _shape_in(value)
            for value in given
        ]
    )


def _shape_in(value: Any, depth: int = DEPTH) -> Any:
    """The shape of the first tensor in a container or an object, and how many members the container has."""
    kind = type(value)
    if kind is dict or kind is list or kind is tuple:
        parts, count = value.values() if kind is dict else value, len(value)
    elif value is None or issubclass(kind, Module):
        return None
    else:
        parts, count = (table_of(value) or {}).values(), 0
    for part, _ in zip(parts, range(WIDTH), strict=False):
        if type(part) is Tensor:
            return count, part.shape
        found = _shape_in(part, depth - 1) if depth and type(part) not in _PLAIN else None
        if found is not None:
            return count, found
    return count or None
