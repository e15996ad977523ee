"""A number among the operands of a captured operation that each replay has anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class NumberCell:
    """Where the replays of a segment find a number.

    It stands for the number among the operands that :meth:`.Session.run` is given, or in a list of numbers
    there, on devices with the capability ``captures_numbers``, and among those of an operation that runs
    between two segments. The operation takes the number that lies here when it runs.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def fill(self, value: Any) -> None:
        """The next replay has another number, of the same type."""
        self.value = value

    def __repr__(self) -> str:
        return f"{self.value!r}, for now"


def holds(kind: type, args: Iterable[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operand, or a member of a list among the operands, is of a kind."""
    return any([
        type(each) is kind or (type(each) is list and any([type(part) is kind for part in each]))
        for each in (*args, *kwargs.values())
    ])  # fmt: skip


def replaced(
    kind: type, name: str, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands with an attribute of each that is of a kind in its place, in lists as well."""

    def other(operand: Any) -> Any:
        if type(operand) is list:
            return [getattr(each, name) if type(each) is kind else each for each in operand]
        return getattr(operand, name) if type(operand) is kind else operand

    return tuple([other(each) for each in args]), {key: other(each) for key, each in kwargs.items()}
