"""What a replay computes from the numbers that it is given, and what has to come out the same.

One function is generated for a recording: it reads the numbers, asks the outcomes in the order in which the
call came to them, and fills the cells of the operands. It never computes what the call came to only behind an
outcome that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base import Lines, Site
from ..backends.protocol import NumberCell
from ..state import ITEM, address_of, lying_in
from .expressions import FUNCTIONS, Expression, Fixed, GivenNumber

READ = "read"
"""The kind of a place that is a read of a tensor's value."""
_DIRECT = frozenset({dict, list})
_PLACE = str(Path(__file__).with_name("<compute>"))
"""The file of generated functions: a frame of one is one of ours."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
"""Integers that an operation takes."""


@dataclass(frozen=True, eq=False)
class NumberSource:
    """Where a call finds a number.

    Attributes:
        kind: The kind of a slot of Python state; empty for an argument, :data:`READ` for a tensor's value.
        container: What it lies in.
        key: Under which key; the number of an argument leaf; how many numbers were read before.
        name: What the user would write.
        lines: What reads it, if it is a tensor's value.
    """

    kind: str
    container: Any
    key: Any
    name: str
    lines: Lines | None = None

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which place it is, as long as the container lives."""
        return address_of(self.kind, self.container, self.key)

    def is_read(self, order: int) -> bool:
        """Whether it is the number that a call reads behind so many others."""
        return self.kind == READ and self.key == order

    def read(self, leaves: Sequence[Any]) -> Any:
        """What lies there; None if nothing does."""
        if not self.kind:
            return leaves[self.key]
        try:
            if self.kind == ITEM and type(self.container) in _DIRECT:
                return self.container[self.key]
            return lying_in(self.kind, self.container, self.key)
        except (KeyError, IndexError, ValueError, AttributeError):
            return None


@dataclass(frozen=True)
class ReadingLines:
    """Which reads give numbers that change.

    A line of the user's may stand for many of a library's: a step of an optimizer. Those whose numbers
    are conditions are told apart.

    Attributes:
        lines: Lines of the user's.
        fixed: What is no such read, with the lines of libraries.
    """

    lines: frozenset[Site] = frozenset()
    fixed: frozenset[Lines] = frozenset()

    def __contains__(self, running: Lines) -> bool:
        return running[-1] in self.lines and running not in self.fixed


NO_LINES = ReadingLines()
"""No number is read."""


class Computation:
    """What a recording computes from numbers that change.

    A call finds some of them when it begins. Others it reads from tensors on its way. Each read begins a
    stage: what depends on that number and on none that is read later is computed and asked then.

    Args:
        places: Where numbers are found, those that are read in the order in which they are.
        kinds: Their types.
        outcomes: What expressions have to give.
        cells: What expressions are computed for.
        steps: All that the call computed, which might raise, in order.
        reading: Reads of numbers that change.
        taken: Which of the reads at a position are at one that changes.
    """

    def __init__(
        self,
        places: tuple[NumberSource, ...],
        kinds: tuple[type, ...],
        outcomes: Mapping[Expression, Fixed],
        cells: Mapping[Expression, NumberCell],
        steps: Iterable[Expression],
        reading: ReadingLines,
        taken: frozenset[int] = frozenset(),
    ) -> None:
        self.places = places
        self.reading = reading
        self.taken = taken
        self.outcomes = dict(outcomes)
        self._kinds = kinds
        self._read = [index for index, place in enumerate(places) if place.kind == READ]
        self._found = [index for index, place in enumerate(places) if place.kind != READ]
        self._given: list[Any] = [None] * len(places)
        self._stages = [
            _compiled(
                {each: value for each, value in outcomes.items() if self._stage(each) == stage},
                {each: cell for each, cell in cells.items() if self._stage(each) == stage},
                [each for each in steps if self._stage(each) == stage],
            )
            for stage in range(len(self._read) + 1)
        ]

    def _stage(self, expression: Expression) -> int:
        """How many numbers have been read when all that an expression needs is there."""
        needed = expression.given
        return max([place + 1 for place, index in enumerate(self._read) if index in needed], default=0)

    def take(self, leaves: Sequence[Any]) -> bool:
        """A call begins: compute what can be; whether the recording answers it."""
        given = self._given
        for index in self._found:
            value = given[index] = self.places[index].read(leaves)
            if type(value) is not self._kinds[index]:
                return False
        return self._stages[0](given)

    def read(self, order: int, value: Any) -> bool:
        """A number is read: compute what depends on it; whether the recording goes on as it did."""
        if order >= len(self._read) or type(value) is not self._kinds[self._read[order]]:
            return False
        self._given[self._read[order]] = value
        return self._stages[order + 1](self._given)

    def number(self, order: int) -> Any:
        """The number that was read last in a place."""
        return self._given[self._read[order]]


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
        if isinstance(expression, GivenNumber):
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
    outcomes: Mapping[Expression, Fixed], cells: Mapping[Expression, NumberCell], steps: Iterable[Expression]
) -> Callable[[Sequence[Any]], bool]:
    text = _Text()
    same, right = text.constant(_is_same), text.constant(_is_operand)
    for expression, expected in outcomes.items():
        name = text.name(expression)
        text.lines.append(f"if not {same}({name}, {text.constant(expected)}): return False")
    for each in steps:
        text.name(each)
    filled: list[str] = []
    for expression, cell in cells.items():
        name = text.name(expression)
        text.lines.append(f"if not {right}({name}, {text.constant(type(cell.value))}): return False")
        filled.append(f"{text.constant(cell.fill)}({name})")
    body = "\n  ".join([*text.lines, *filled, "return True"])
    scope = dict(text.constants)
    source = f"def compute(given):\n try:\n  {body}\n except Exception:\n  return False"
    exec(compile(source, _PLACE, "exec"), scope)
    return scope["compute"]


def _is_same(value: Any, expected: Fixed) -> bool:
    return Fixed.of(value) == expected


def _is_operand(value: Any, kind: type) -> bool:
    """Whether a number has the type of the one that was recorded, and an operation takes it."""
    return type(value) is kind and (kind is not int or _LEAST <= value <= _MOST)
