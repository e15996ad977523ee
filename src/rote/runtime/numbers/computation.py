"""What a replay computes from the numbers that it is given, and what has to come out the same.

One function is generated for a recording: it reads the numbers, asks the outcomes in the order in which the call
came to them, and fills the cells of the operands. It never computes what the call came to only behind an outcome
that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..state import ITEM, address_of, lying_in
from .expressions import FUNCTIONS, Expression, Fixed, Given

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""Integers that an operation takes."""


@dataclass(frozen=True, eq=False)
class NumberSource:
    """Where a call finds a number.

    Attributes:
        kind: The kind of a slot of Python state; empty for an argument.
        container: What it lies in.
        key: Under which key; the number of an argument leaf.
        name: What the user would write.
    """

    kind: str
    container: Any
    key: Any
    name: str

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which place it is, as long as the container lives."""
        return address_of(self.kind, self.container, self.key)

    def read(self, leaves: Sequence[Any]) -> Any:
        """What lies there; None if nothing does."""
        if not self.kind:
            return leaves[self.key]
        if self.kind == ITEM:
            try:
                return self.container[self.key]
            except (KeyError, IndexError):
                return None
        try:
            return lying_in(self.kind, self.container, self.key)
        except (ValueError, AttributeError):
            return None


@dataclass(frozen=True, eq=False)
class Computation:
    """What a recording computes from numbers that change.

    Attributes:
        places: Where they are found.
        kinds: Their types.
        outcomes: What expressions have to give.
        fill: Given the numbers, fills the cells; whether everything came out as it did.
    """

    places: tuple[NumberSource, ...]
    kinds: tuple[type, ...]
    outcomes: Mapping[Expression, Fixed]
    fill: Callable[[Sequence[Any]], bool]

    @classmethod
    def of(
        cls,
        places: tuple[NumberSource, ...],
        kinds: tuple[type, ...],
        outcomes: Mapping[Expression, Fixed],
        cells: Mapping[Expression, Any],
    ) -> Computation:
        """The computation of what one traced call has shown."""
        return cls(places, kinds, dict(outcomes), _compiled(kinds, outcomes, cells))

    def read(self, leaves: Sequence[Any]) -> list[Any] | None:
        """The numbers that a call finds; None if one of them is not there or of another type."""
        found = [place.read(leaves) for place in self.places]
        return found if list(map(type, found)) == list(self.kinds) else None

    def take(self, leaves: Sequence[Any]) -> bool:
        """Compute the numbers of a call; whether the recording answers it."""
        found = self.read(leaves)
        return found is not None and self.fill(found)


class _Text:
    """The text of a function of numbers."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []
        self._names: dict[Expression, str] = {}

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def name(self, expression: Expression) -> str:
        """The variable of an expression, computed once."""
        known = self._names.get(expression)
        if known is not None:
            return known
        if isinstance(expression, Given):
            name = f"given[{expression.index}]"
        elif isinstance(expression, Fixed):
            name = self.constant(expression.value)
        else:
            operands = ", ".join([self.name(each) for each in expression.operands])
            name = f"t{len(self._names)}"
            self.lines.append(f"{name} = {self.constant(FUNCTIONS[expression.function])}({operands})")
        self._names[expression] = name
        return name


def _compiled(
    kinds: tuple[type, ...], outcomes: Mapping[Expression, Fixed], cells: Mapping[Expression, Any]
) -> Callable[[Sequence[Any]], bool]:
    text = _Text()
    same, right = text.constant(_is_same), text.constant(_is_operand)
    for expression, expected in outcomes.items():
        name = text.name(expression)
        text.lines.append(f"if not {same}({name}, {text.constant(expected)}): return False")
    filled: list[str] = []
    for expression, cell in cells.items():
        name = text.name(expression)
        text.lines.append(f"if not {right}({name}, {text.constant(type(cell.value))}): return False")
        filled.append(f"{text.constant(cell.fill)}({name})")
    body = "\n  ".join([*text.lines, *filled, "return True"])
    scope = dict(text.constants)
    exec(f"def compute(given):\n try:\n  {body}\n except Exception:\n  return False", scope)  # noqa: S102
    return scope["compute"]


def _is_same(value: Any, expected: Fixed) -> bool:
    return Fixed.of(value) == expected


def _is_operand(value: Any, kind: type) -> bool:
    """Whether a number has the type of the one that was recorded, and an operation takes it."""
    return type(value) is kind and (kind is not int or _LEAST <= value <= _MOST)
