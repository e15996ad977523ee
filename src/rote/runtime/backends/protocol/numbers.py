"""A number among the operands of a captured operation that each replay has anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class NumberCell:
    """Where the replays of a segment find a number.

    It stands for the number among the operands that :meth:`.Session.run` is given, not in lists, on devices
    with the capability ``captures_numbers``, and among those of an operation that runs between two segments.
    The operation takes the number that lies here when it runs.

    Attributes:
        value: The number.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def fill(self, value: Any) -> None:
        """The next replay has another number, of the same type."""
        self.value = value

    def __repr__(self) -> str:
        return f"{self.value!r}, for now"


def has_cells(args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
    """Whether an operand is a number that each replay has anew."""
    return any([type(each) is NumberCell for each in (*args, *kwargs.values())])


def without_cells(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands as they are now."""
    return (
        tuple([each.value if type(each) is NumberCell else each for each in args]),
        {name: each.value if type(each) is NumberCell else each for name, each in kwargs.items()},
    )
