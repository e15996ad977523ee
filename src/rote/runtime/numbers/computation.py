"""What a replay computes from the numbers that it is given, and what has to come out the same.

Functions are generated for a recording. One runs when a call begins: it asks what has to come out of numbers
that were found, and fills cells of operands. For each number that is read from a tensor there is one for each
*way* on which calls have gone on from there. What depends on that number, and on none that is read later, is
asked and computed then. A call goes on the first way on which all comes out as it did; if there is none, it
is on a new one. A call that has gone a way has asked all that is asked on it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy

from ...base import Lines, Site
from ..backends.protocol import NumberCell
from ..state import ITEM, LENGTH, address_of, lying_in
from .arrays import ArrayKind, copied, kind_of
from .draws import Draw, drawn_from, put_state, state_of
from .expressions import (
    FUNCTIONS,
    HAS,
    OF_NUMPY,
    STRICT,
    Applied,
    Expression,
    Fixed,
    GivenNumber,
    computed_in,
    is_of_numpy,
)
from .times import TIME

READ = "read"
"""The kind of a place that is a read of a tensor's value."""
ARRAY = "array"
"""The kind of a place that is an array among the arguments."""
LENT = "lent"
"""The kind of a place that is an array which the call makes of a tensor."""
LATE = frozenset({TIME, LENT})
"""Kinds of places of which a replay knows nothing when it begins."""
DRAWN = "drawn"
"""The kind of a place that is a draw from a generator of the host."""
_DIRECT = frozenset({dict, list})
_PLACE = os.path.join(os.path.dirname(__file__), "<compute>")
"""The file of generated functions: a frame of one is one of ours."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_TAKEN = {float: "", int: f" and {-(1 << 63)} <= {{0}} < {1 << 63}"}
"""Numbers that an operation takes, of these types."""


@dataclass(frozen=True, eq=False)
class NumberSource:
    """Where a call finds a number.

    Attributes:
        kind: The kind of a slot of Python state; empty for a number among the arguments, :data:`ARRAY` for an
            array there, :data:`LENT` for one of a tensor, :data:`READ` for a tensor's value.
        container: What it lies in; what is drawn.
        key: Under which key; the number of an argument leaf; how many numbers were read or drawn before.
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
        container = None if self.kind in (DRAWN, TIME) else self.container
        return address_of(self.kind, container, self.key)

    def read(self, leaves: Sequence[Any]) -> Any:
        """What lies there; None if nothing does."""
        if not self.kind:
            return leaves[self.key]
        if self.kind in (DRAWN, TIME):
            return self.container.now()
        if self.kind == ARRAY:
            return copied(leaves[self.key].numpy())  # the recording keeps no argument
        found = self.lies()
        return copied(found) if type(found) is numpy.ndarray else found

    def lies(self) -> Any:
        """What lies in a slot; None if nothing does, or it is none."""
        try:
            if self.kind == ITEM and type(self.container) in _DIRECT:
                return self.container[self.key]
            found = lying_in(self.kind, self.container, self.key)
            return found.value if self.kind == LENGTH else found
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


Path = tuple[Any, ...]
"""The edges of the tree of a recording along which a call has come to a read."""


@dataclass(frozen=True, slots=True)
class NumberRead:
    """A number that a call reads from a tensor.

    Attributes:
        path: How it has come there.
        order: How many it has read before.
        way: On which of the ways behind it goes on.
    """

    path: Path
    order: int
    way: int


@dataclass(frozen=True)
class FollowedCall:
    """What was found in a call whose numbers were followed.

    Attributes:
        places: Where numbers are found; those of known calls come first.
        kinds: What those are that it was given, by the number of their place.
        reads: The numbers that it has read, in order.
        steps: All that it computed, which might raise, in order.
        taken: Which of its reads at a position are at one that changes, with the way to them.
        before_draws: How many values it has read before it drew the last number.
        filled: The arrays outside that it has written, by the number of their place.
        ended: Which of its reads of members keep their distance from the end of a list.
    """

    places: tuple[NumberSource, ...]
    kinds: Mapping[int, Any]
    reads: tuple[NumberRead, ...]
    outcomes: Mapping[Expression, Fixed]
    cells: Mapping[Expression, NumberCell]
    steps: Sequence[Expression]
    taken: frozenset[tuple[Path, int]]
    before_draws: int
    filled: Mapping[int, Any]
    ended: frozenset[tuple[int, int, Site]]


class Computation:
    """What a recording computes from numbers that change.

    Attributes:
        places: Where numbers are found.
        cells: The numbers that a replay has to compute.
        taken: Which of the reads at a position are at one that changes.
        mappings: Those of which it is asked whether they have a key.
        ended: Reads of members that keep their distance from the end: the list, how far it is, and the line.
        before_draws: How many values calls have read before the last of these.
        turn: How many calls have begun.
    """

    def __init__(self, reading: ReadingLines) -> None:
        self.reading = reading
        self.places: tuple[NumberSource, ...] = ()
        self.cells: dict[Expression, NumberCell] = {}
        self.taken: frozenset[tuple[Path, int]] = frozenset()
        self.mappings: frozenset[Expression] = frozenset()
        self.ended: frozenset[tuple[int, int, Site]] = frozenset()
        self._found: list[tuple[int, NumberSource]] = []
        self._places_read: dict[int, int] = {}
        self._given: list[Any] = []
        self._start = _Stage()
        self._ways: dict[Path, list[_Stage]] = {}
        self._checked: set[Path] = set()
        self._drawn: list[tuple[int, NumberSource]] = []  # in the order in which calls draw
        self.before_draws = 0
        self._filled: dict[int, Any] = {}
        self._generators: list[Any] = []
        self._before: list[Any] = []
        self._late: list[tuple[int, NumberSource]] = []  # reads of the clock behind the first operation
        self._applied: dict[tuple[str, tuple[Expression, ...]], Applied] = {}
        self.turn = 0

    def applied(self, function: str, operands: tuple[Expression, ...]) -> Applied:
        """A function of operands: the same object for the same ones, which are compared in no time then."""
        known = self._applied.get((function, operands))
        if known is None:
            known = self._applied[function, operands] = Applied.to(function, *operands)
        return known

    def learn(self, call: FollowedCall) -> None:
        """A call has gone a way, maybe one that is known."""
        self.places = call.places
        numbered = list(enumerate(call.places))
        self._late = [(n, place) for n, place in numbered if place.kind == TIME and not place.container.early]
        self._found = [
            (n, place)
            for n, place in numbered
            if place.kind not in (READ, LENT, DRAWN) and (n, place) not in self._late
        ]
        drawn = [(n, place) for n, place in numbered if place.kind == DRAWN]
        self._drawn = sorted(drawn, key=lambda each: each[1].key)
        late = {n for n, place in numbered if place.kind in LATE}
        self._places_read = {place.key: n for n, place in enumerate(call.places) if place.kind == READ}
        self._given += [None] * (len(call.places) - len(self._given))
        self.cells.update(call.cells)
        self.taken |= call.taken
        self.ended |= call.ended
        asked = [each for each in call.outcomes if isinstance(each, Applied) and each.function == HAS]
        self.mappings |= {each.operands[0] for each in asked}
        self.before_draws = max(self.before_draws, call.before_draws)
        self._filled.update(call.filled)
        self._generators = drawn_from(self.draws)
        stages = [self._start]
        for read in call.reads:
            ways = self._ways.setdefault(read.path, [])
            if read.way == len(ways):
                ways.append(_Stage())
            stages.append(ways[read.way])
        orders = {  # nobody has got some that were read
            self._places_read[read.order]: number + 1
            for number, read in enumerate(call.reads)
            if read.order in self._places_read
        }

        def order(given: Iterable[int]) -> int | None:
            """Behind how many reads it is known what is given; None if no stage knows it."""
            if not late.isdisjoint(given):
                return None
            return max([orders.get(each, 0) for each in given], default=0)

        kinds = _sorted(call.kinds, lambda number: order((number,)))

        def behind(expression: Expression) -> int | None:
            return order(expression.given)

        outcomes, cells = _sorted(call.outcomes, behind), _sorted(call.cells, behind)
        steps = _sorted(dict.fromkeys(call.steps), behind)
        for number, stage in enumerate(stages):
            stage.learn(kinds[number], outcomes[number], cells[number], steps[number])

    def take(self, leaves: Sequence[Any]) -> bool:
        """A call begins: compute what can be; whether the recording answers it."""
        given = self._given
        self.turn += 1
        for number, _ in self._late:
            given[number] = None
        if self.draws:
            self._before = [state_of(each) for each in self._generators]
        for number, place in self._found:
            given[number] = place.read(leaves)
        answers = self._are_apart() and self._draw() and self._start.run(given)
        if not answers:
            self.put_back()
        return answers

    def _are_apart(self) -> bool:
        """Whether arrays that calls write are apart from the others that are read when a call begins."""
        arrays = [(number, place.lies()) for number, place in self._found] if self._filled else ()
        return not any([
            type(found) is numpy.ndarray and other != number and numpy.may_share_memory(found, each)
            for number, found in arrays for other, each in self._filled.items()
        ])  # fmt: skip

    def _draw(self) -> bool:
        """Draw what the call draws, which may depend on what it is given; whether that can be drawn."""
        try:
            for number, place in self._drawn:
                if not place.container.index:
                    place.container.drawn.begin(self._given.__getitem__)
                self._given[number] = place.read(())
        except Exception:
            return False
        return True

    @property
    def draws(self) -> tuple[Draw, ...]:
        """What the present call draws from the host's generators, in order."""
        drawn = [place.container for _, place in self._drawn]
        return tuple([each.drawn.draw for each in drawn if not each.index])

    def now(self) -> int:
        """The number of the present call."""
        return self.turn

    def given(self, number: int) -> Any:
        """A number of the present call; what is left of the clock is read now."""
        if self._given[number] is None:
            for each, place in self._late:
                self._given[each] = place.read(())
        return self._given[number]

    @property
    def reads_arrays(self) -> bool:
        """Whether replays compute with arrays among the arguments, or with those of tensors."""
        return any([place.kind in (ARRAY, LENT) for place in self.places])

    @property
    def reads_clock(self) -> bool:
        """Whether replays read the clock."""
        return any([place.kind == TIME for place in self.places])

    def lend(self, order: int, array: Any) -> None:
        """The present call has made an array of a tensor, behind so many others."""
        for number, place in enumerate(self.places):
            if place.kind == LENT and place.key == order:
                self._given[number] = copied(array)

    def put_back(self) -> None:
        """What was drawn last is drawn again."""
        if self._before:
            for generator, state in zip(self._generators, self._before, strict=True):
                put_state(generator, state)
            self._before = []

    def reader(self, path: Path, order: int) -> Callable[[Any], int]:
        """A function for a read, which says on which way to go on, and computes what depends on the number.

        A new way has the number that comes next.
        """
        return partial(self._way, self._ways.setdefault(path, []), order)

    def _way(self, ways: Sequence[_Stage], order: int, value: Any) -> int:
        given, place = self._given, self._places_read.get(order)
        if place is not None:
            given[place] = value
        for number, way in enumerate(ways):
            if way.run(given):
                return number
        return len(ways)

    def number(self, order: int) -> Any:
        """The number that was read last behind so many others."""
        return self._given[self._places_read[order]]

    def check(self, path: Path) -> None:
        """A call that was not followed has gone a way, and did what is computed for it."""
        self._checked.add(path)

    def is_checked(self, start: Path = ()) -> bool:
        """Whether there is such a call that began so."""
        return any([path[: len(start)] == start for path in self._checked])


def _sorted(
    found: Mapping[_Key, _Value], order: Callable[[_Key], int | None]
) -> defaultdict[int | None, dict[_Key, _Value]]:
    """What was found, by its order."""
    made: defaultdict[int | None, dict[_Key, _Value]] = defaultdict(dict)
    for key, value in found.items():
        made[order(key)][key] = value
    return made


class _Stage:
    """What is computed and asked at once."""

    def __init__(self) -> None:
        self._kinds: dict[int, Any] = {}
        self._outcomes: dict[Expression, Fixed] = {}
        self._cells: dict[Expression, NumberCell] = {}
        self._steps: dict[Expression, None] = {}
        self.run = _compiled({}, {}, {}, ())

    def learn(
        self,
        kinds: Mapping[int, Any],
        outcomes: Mapping[Expression, Fixed],
        cells: Mapping[Expression, NumberCell],
        steps: Iterable[Expression],
    ) -> None:
        """A call has come here. What others have asked is asked as well."""
        self._kinds.update(kinds)
        self._outcomes.update(outcomes)
        self._cells.update(cells)
        self._steps.update(dict.fromkeys(steps))
        self.run = _compiled(self._kinds, self._outcomes, self._cells, self._steps)


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
        for each in computed_in(expression, self._names):
            operands = ", ".join(map(self._known, each.operands))
            name = self._names[each] = f"t{len(self._names)}"
            self.lines.append(f"{name} = {self.constant(FUNCTIONS[each.function])}({operands})")
        return self._known(expression)

    def _known(self, expression: Expression) -> str:
        if isinstance(expression, GivenNumber):
            return f"given[{expression.index}]"
        if isinstance(expression, Fixed) and expression not in self._names:
            self._names[expression] = self.constant(expression.value)
        return self._names[expression]


def _compiled(
    kinds: Mapping[int, Any],
    outcomes: Mapping[Expression, Fixed],
    cells: Mapping[Expression, NumberCell],
    steps: Iterable[Expression],
) -> Callable[[Sequence[Any]], bool]:
    text = _Text()
    same = text.constant(_is_same)
    of_number, of_array = text.constant(type), text.constant(kind_of)
    for place, kind in kinds.items():
        differs = (
            f"{of_array}(given[{place}]) !="
            if type(kind) is ArrayKind
            else f"{of_number}(given[{place}]) is not"
        )
        text.lines.append(f"if {differs} {text.constant(kind)}: return False")
    for expression, expected in outcomes.items():
        name = text.name(expression)
        text.lines.append(f"if not {same}({name}, {text.constant(expected)}): return False")
    for each in steps:
        text.name(each)
    filled: list[str] = []
    for expression, cell in cells.items():
        name = text.name(expression)
        text.lines.append(f"if not ({_is_operand(text, name, kind_of(cell.value))}): return False")
        filled.append(f"{text.constant(cell.fill)}({name})")
    arrays = ArrayKind in map(type, kinds.values())
    numpys = (
        arrays or OF_NUMPY.intersection(kinds.values()) or any(map(is_of_numpy, (*outcomes, *cells, *steps)))
    )
    begin = f"with {text.constant(STRICT)}():" if numpys else "if True:"
    body = "\n   ".join([*text.lines, *filled, "return True"])
    scope = dict(text.constants)
    source = f"def compute(given):\n try:\n  {begin}\n   {body}\n except Exception:\n  return False"
    exec(compile(source, _PLACE, "exec"), scope)
    return scope["compute"]


def _is_same(value: Any, expected: Fixed) -> bool:
    return Fixed.of(value) == expected


def _is_operand(text: _Text, name: str, kind: Any) -> str:
    """Whether a number has the type of the one that was recorded, and an operation takes it."""
    if kind in _TAKEN:
        return f"{text.constant(type)}({name}) is {text.constant(kind)}{_TAKEN[kind].format(name)}"
    return f"{text.constant(kind_of)}({name}) == {text.constant(kind)}"
