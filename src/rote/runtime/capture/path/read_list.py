"""What ``tolist()`` of a tensor gave, as an edge of the tree."""

from __future__ import annotations

from typing import Any

from ....base import bits_of

MOST = 64
"""Numbers of a list that are followed; a replay computes with each of them."""


class _Unequal:
    """Carries a value through a comparison without taking part in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unequal)

    def __hash__(self) -> int:
        return 0


class ReadList(tuple[Any, ...]):
    """A nested list as a hashable value."""

    def __new__(cls, value: Any) -> ReadList:
        """The form of a list, or of what lies in one."""
        if isinstance(value, list):
            return super().__new__(cls, ("list", *(ReadList(item) for item in value)))
        shown = bits_of(value) if isinstance(value, (float, complex)) else repr(value)
        return super().__new__(cls, ("value", type(value).__name__, shown, _Unequal(value)))

    def thaw(self) -> Any:
        """The nested list again."""
        return [item.thaw() for item in self[1:]] if self[0] == "list" else self[3].value


def numbers_of(out: Any) -> Any:
    """What was read, as a number or a list of a few numbers; None where it is something else."""
    if type(out) is not ReadList:
        return out if type(out) in (int, float) else None
    found = out.thaw() if 1 < len(out) <= MOST + 1 else None
    return found if type(found) is list and {*map(type, found)} <= {int, float} else None
