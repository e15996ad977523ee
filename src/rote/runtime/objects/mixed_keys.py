"""Keys that are equal only if they are of the same types."""

from __future__ import annotations

from typing import Any

from .marks import exact


class MixedKeys(tuple[Any, ...]):
    """Keys that are not all text, or members: 1, 1.0 and True are equal, and three different keys."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is MixedKeys
            and [*map(exact, self)] == [*map(exact, other)]
            and tuple.__eq__(self, other)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple[Any, ...].__hash__
