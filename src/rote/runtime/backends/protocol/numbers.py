"""A number among the operands of a captured operation that each replay has anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class NumberCell:
    """Where the replays of a segment find a number.

    It stands for the number among the operands that :meth:`.Session.run` is given, or in a list of numbers
    there, on devices with the capability ``captures_numbers``, and among those of an operation that runs
    between two segments. The operation takes the number that lies here when it runs.

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
    return any([_is_cell(each) for each in (*args, *kwargs.values())])


def without_cells(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands as they are now."""
    return (
        tuple([_without(each) for each in args]),
        {name: _without(each) for name, each in kwargs.items()},
    )


def _is_cell(operand: Any) -> bool:
    kind = type(operand)
    return kind is NumberCell or (kind is list and any([type(each) is NumberCell for each in operand]))


def _without(operand: Any) -> Any:
    kind = type(operand)
    if kind is list:
        return [each.value if type(each) is NumberCell else each for each in operand]
    return operand.value if kind is NumberCell else operand
