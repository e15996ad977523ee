"""Which slots of a key hold numbers that change from call to call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import ref

from ...base import Lines, Site
from ..numbers import ARRAY, FEW, LENT, NO_LINES, Fixed, NumberSource, ReadingLines, TrackedNumbers
from ..state import Address
from .guards import Guard

MOST = 64
"""Slots whose numbers are followed at once."""
TRIES = 4
"""Calls in a row that are followed in vain."""


class SelectingLines:
    """What calls have shown of lines that select by masks.

    Attributes:
        back: Those that only write back what they select.
    """

    def __init__(self) -> None:
        self.back: frozenset[Lines] = frozenset()
        self._otherwise: set[Lines] = set()

    def learn(self, back: Iterable[Lines], otherwise: Iterable[Lines]) -> bool:
        """A call has written back what some lines have selected, and done something else with that of others.

        Returns:
            Whether the next calls do some of them in another way.
        """
        self._otherwise.update(otherwise)
        before, self.back = self.back, (self.back | {*back}) - self._otherwise
        return self.back != before


class ChangingNumbers:
    """The slots in which guards of one key have found other numbers than they held.

    A number that turns out to be needed as it is, because code looks at it, is a condition for good.

    Attributes:
        fixed_leaves: Argument leaves whose numbers have to be in the key.
        news: How often a number turned out to change that a call did not follow.
        ways: How many calls in a row numbers have led another way each.
        whole: Lines that make arrays of tensors of which all numbers are read, since nothing else came of it.
    """

    def __init__(self) -> None:
        self._slots: dict[Address, None] = {}
        self._values: dict[Address, set[Fixed]] = {}  # that guards have met, of slots that are not followed
        self._left: set[Address] = set()
        self._fixed: set[object] = set()
        self._doubted: set[object] = set()
        self._tries = 0
        self.fixed_leaves: set[int] = set()
        self.news = self.ways = 0
        self._lines: dict[Site, None] = {}
        self._fixed_lines: set[Lines] = set()
        self.whole: set[Lines] = set()
        self._draws = self._clock = False
        self._arrays: bool | None = None  # those among the arguments; False if that came to nothing
        self._before: tuple[Any, ...] | None = None  # what was known before something was supposed
        self._windows: list[ref[deque[Any]]] = []
        self._waits = 0

    def note(self, guard: Guard) -> None:
        """A guard does not hold: its slots that have held more than a few numbers, all of one type."""
        for address, *values in guard.changed_numbers():
            if address in self._slots or address in self._fixed:
                continue
            met = self._values.setdefault(address, set())
            met.update(map(Fixed.of, values))
            if len(met) > FEW:
                self.add([address])

    def leave(self, slots: Iterable[Address]) -> None:
        """A call leaves other numbers in these slots; those change in which others have left some."""
        for address in slots:
            if address in self._left:
                self.add([address])
            self._left.add(address)

    def excuse(self, falls_short: bool) -> None:
        """A call was not followed in vain where a list is too short yet: it grows with further calls."""
        if falls_short:
            self._tries = 0

    def add(self, slots: Iterable[Address]) -> None:
        """These slots hold other numbers from call to call."""
        for address in slots:
            if address not in self._fixed and address not in self._slots and len(self._slots) < MOST:
                self._slots[address] = None
                self._values.pop(address, None)
                self._tries = 0
                self.news += 1

    def wait(self, windows: Iterable[ref[deque[Any]]]) -> None:
        """Calls fill these windows, so each finds another length until they are full."""
        lacks = [
            (each, window.maxlen - len(window))
            for each in windows
            if (window := each()) is not None and window.maxlen is not None and window.maxlen <= MOST
        ]
        if lacks:
            self._windows, self._waits = [each for each, _ in lacks], max([lack for _, lack in lacks])

    def waits(self) -> bool:
        """Whether a window is not full yet; no more calls wait than fill it, for it may be emptied."""
        if not self._windows:
            return False
        alive = [window for each in self._windows if (window := each()) is not None]
        self._waits -= 1
        if self._waits < 0 or all([len(window) == window.maxlen for window in alive]):
            self._windows = []
        return bool(self._windows)

    @property
    def slots(self) -> frozenset[Address]:
        """The slots whose numbers are followed."""
        return frozenset(self._slots)

    @property
    def by_value(self) -> frozenset[object]:
        """The slots whose number is a condition, since calls depend on it."""
        return frozenset(self._fixed)

    def reads(self, line: Site) -> bool:
        """Whether a line is known to read other numbers from call to call."""
        return line in self._lines

    def read(self, lines: Iterable[Lines], followed: ReadingLines) -> None:
        """These lines read other numbers from call to call; a call has followed some of them."""
        for each in lines:
            line = each[-1]
            if each not in self._fixed_lines and line not in self._lines and len(self._lines) < MOST:
                self._lines[line] = None
                self._tries = 0
            known = line in self._lines and each not in self._fixed_lines
            if known and line not in followed.lines and self._tries < TRIES:
                self.news += 1

    def suppose(self, slots: Iterable[Address], lines: Iterable[Lines]) -> None:
        """So it was in another process. Where nothing comes of it in a few calls, it was never said."""
        before = dict(self._slots), dict(self._lines), set(self._fixed), set(self._fixed_lines)
        news = self.news
        self.add(slots)
        self.read(lines, NO_LINES)
        if self.news > news and self._before is None:
            self._before = before

    def _take_back(self) -> None:
        if self._before is not None:
            self._slots, self._lines, self._fixed, self._fixed_lines = self._before
            self._before, self._tries = None, 0

    def follow_draws(self) -> None:
        """Calls draw from the host's generators."""
        if not self._draws:
            self._draws, self._tries = True, 0
            self.news += 1

    def follow_clock(self) -> None:
        """Calls read the clock."""
        if not self._clock:
            self._clock, self._tries = True, 0
            self.news += 1

    def follow_arrays(self) -> bool:
        """Calls compute with arrays among the arguments; returns whether that is followed from now on."""
        if self._arrays is None:
            self._arrays, self._tries = True, 0
            self.news += 1
            return True
        return False

    def stray(self, lines: Iterable[Lines], *, followed: bool) -> None:
        """These lines make arrays of tensors that the call reads; it was followed in vain, or not yet."""
        if not followed and self._arrays is not False:
            self.follow_arrays()
            return
        new = set(lines) - self.whole
        if new and len(self.whole) + len(new) <= MOST:
            self.whole |= new
            self.news += 1

    def follow(self, leaves: frozenset[int] = frozenset()) -> TrackedNumbers | None:
        """What is followed in the next call; None if nothing is."""
        if self._tries >= TRIES:
            self._take_back()
        known = self._slots or leaves or self._lines or self._draws or self._clock or self._arrays
        if self._tries >= TRIES or not known:
            self.fixed_leaves.update(leaves)
            return None
        self._tries += 1
        reading = ReadingLines(frozenset(self._lines), frozenset(self._fixed_lines))
        slots = frozenset(self._slots)
        return TrackedNumbers(
            slots, leaves, reading, draws=self._draws, clock=self._clock, arrays=bool(self._arrays)
        )

    def understand(self, *, asks_alone: bool) -> None:
        """A call was followed, and it is known what becomes of its numbers.

        Args:
            asks_alone: Numbers matter by what they lead to alone, so that the call is not one in vain. Calls
                that they lead another way each (``if step % 4 == 0``) are observed before one comes again.
        """
        self._doubted.clear()
        if asks_alone:
            self._tries = 0
            self.ways += 1

    def succeed(self) -> None:
        """A call was recorded whose numbers were followed."""
        self._tries, self._before, self.ways = 0, None, 0
        self._doubted.clear()

    def fix_lines(self, lines: Iterable[Lines]) -> None:
        """What these lines do with a number is not understood: there it is a condition."""
        self._fixed_lines.update(lines)

    def doubt(self, places: Iterable[NumberSource]) -> None:
        """The call ran what may look at these numbers: those in slots are conditions if the next one does."""
        known = [*places]
        self.fix([each for each in known if each.address not in self._slots or each.address in self._doubted])
        self._doubted.update([each.address for each in known])

    def fix(self, places: Iterable[NumberSource]) -> None:
        """The numbers in these places are conditions."""
        for place in places:
            if not place.kind:
                self.fixed_leaves.add(place.key)
            if place.kind in (ARRAY, LENT):
                self._arrays = False
            if place.lines is not None:
                self._fixed_lines.add(place.lines)
                continue
            self._fixed.add(place.address)
            self._slots.pop(place.address, None)
