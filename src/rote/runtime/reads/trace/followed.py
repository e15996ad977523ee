"""Numbers that change from call to call, where one call finds them: slots, generators and the clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

from ....base import Site, identity
from ...arguments import Laid, Target, can_be_laid
from ...numbers import (
    ARRAY,
    ITERATORS,
    SCALARS,
    TELL_TIME,
    DrawnFrom,
    NumberSource,
    TrackedNumbers,
    can_draw,
    is_array,
)
from ...state import ITEM, LENGTH, address_of
from ..table import lookup
from .running import RunningCode
from .written import MAPPINGS, Slots, target_of

_GAUSS = random.Random.gauss.__code__
"""What keeps one of two numbers for the next call."""


class FollowedNumbers:
    """What of one call's numbers is followed; nothing where nothing changes.

    Attributes:
        numbers: What changes, if anything does.
        drawn: Generators outside from which the call draws, by identity.
        draws: The line that drew first from a generator, or from an iterator if none did.
    """

    def __init__(self, numbers: TrackedNumbers | None, running: RunningCode) -> None:
        self.numbers = numbers
        self.drawn: dict[int, DrawnFrom] = {}
        self.draws: Site | None = None
        self._advances = False  # that line has advanced an iterator
        self._running = running
        self._laid = Laid()
        self._times = 0  # reads of the clock

    def begin_again(self) -> None:
        """The call begins, perhaps once more: slots and generators are as it has found them."""
        self._laid.lay_again()
        self._times = 0
        for each in self.drawn.values():
            each.put_back()

    def takes(
        self,
        kind: str,
        container: Any,
        key: Any,
        value: Any,
        owner: Any,
        name: str,
        at: Target | None = None,
    ) -> bool:
        """Whether a slot has a number that changes from call to call, which is no condition then.

        What is followed instead is laid into the slot until the call is over: whoever reads it there, Python
        or C, has it. An equal number is as good, and the slot gets its own again. It lies ``at`` another key.
        """
        numbers = self.numbers
        if numbers is None or not (type(value) in SCALARS or is_array(value)):
            return False
        if not numbers.follows and numbers.stopped is not None:
            return False
        if is_array(value):  # it is followed where it lies, as it is put anew to be changed
            if numbers.follows:
                numbers.take_array(NumberSource(kind, container, key, name), value)
            return numbers.stopped is None
        target = at if at is not None else target_of(kind, container, key, owner, name)
        standing = self._laid.standing(target.address)
        if standing is not None:
            return standing is value
        if not can_be_laid(target):
            return False
        if numbers.follows:
            stands = numbers.take(NumberSource(kind, container, key, target.name), value)
            if stands is value:
                return False
            self._laid.lay(target, stands, value)
        return True

    def measures(self, container: Any, before: int, added: int, name: str) -> bool:
        """Whether it is followed how long a container is, to which a call has added so many members."""
        numbers = self.numbers
        if numbers is None or address_of(LENGTH, container, None) not in numbers.wanted:
            return False
        if numbers.follows and numbers.stopped is None:
            numbers.measure(NumberSource(LENGTH, container, None, name), before, added)
        return numbers.stopped is None

    def wait(self, container: Any) -> None:
        """A call asks for more of the last members of a list that grows than there are yet."""
        if self.numbers is not None and address_of(LENGTH, container, None) in self.numbers.wanted:
            self.numbers.falls_short = True

    def put_back(self, left: Iterable[tuple[Target, Any]]) -> None:
        """Slots that hold what stood for a number get that number again; others may ask which it is.

        So do those that the call has written (``left``, with what lies there).
        """
        numbers = self.numbers
        for target, value in left if numbers is not None and numbers.follows else ():
            if type(value) in SCALARS and numbers is not None and numbers.original(value) is not value:
                target.write(numbers.original(value))
        self._laid.take_back()

    def put_members_back(self, slots: Slots) -> None:
        """What stood for a number, and was made a key or a member by the call, is that number again."""
        numbers = self.numbers
        if numbers is None or not numbers.follows:
            return
        for each in slots.growing.values():
            grown = each.written.container
            for place in range(-min(each.count, len(grown)), 0) if type(grown) in (list, deque) else ():
                if (number := numbers.original(grown[place])) is not grown[place]:
                    grown[place] = number
        found = {identity(each.container): each.container for each in slots.written.values()}
        found.update({which: each.container for which, each in slots.changed.items()})
        for each in found.values():
            keys = [*each] if type(each) in MAPPINGS else []
            first = next(
                (place for place, key in enumerate(keys) if numbers.original(key) is not key), len(keys)
            )
            for key in keys[first:]:  # their order stays
                value = each.pop(key)
                each[numbers.original(key)] = value

    def moves(self, container: Any) -> bool:
        """Whether a container outside has numbers that change from call to call."""
        numbers = self.numbers
        return numbers is not None and address_of(ITEM, container, None)[1] in numbers.containers

    def leaves(self, left: Any) -> None:
        """What a call leaves outside, and a replay does not, is the same in each call."""
        if self.numbers is None or not self.numbers.follows:
            return
        if not self.numbers.pin_inside(left, objects=True):
            self.numbers.stop("something is left outside that may hold numbers, and cannot be looked into")

    def is_drawn_from(self, value: Any) -> bool:
        """Whether replays draw from a random generator: which one it is matters, not where it is."""
        return self.numbers is not None and self.numbers.draws and can_draw(value)

    @property
    def follows_arrays(self) -> bool:
        """Whether it is told what is computed from arrays among the arguments, or was in an earlier call."""
        numbers = self.numbers
        return numbers is not None and numbers.arrays and numbers.stopped is None

    def take_arrays(self, places: Iterable[tuple[int, str, Any]]) -> None:
        """The call is given arrays: the numbers of their leaves, their names, and the arrays."""
        numbers = self.numbers
        if numbers is not None and numbers.arrays and numbers.follows:
            for leaf, name, array in places:
                numbers.take_array(NumberSource(ARRAY, None, leaf, name), array)

    def draw(self, generator: Any) -> None:
        """The call draws from a generator, or sets it."""
        turns = type(generator) in ITERATORS
        if self.draws is None or (self._advances and not turns):
            self.draws, self._advances = self._running.site(), turns
        if identity(generator) not in self.drawn and can_draw(generator):
            self.drawn[identity(generator)] = DrawnFrom.of(generator)

    def keeper(self, container: Any) -> Any:
        """The generator that keeps a number for the next call in a slot of this; None without one."""
        if self.numbers is None or not self.numbers.draws:
            return None
        frame = self._running.frame()
        if frame is None or self._running.swaps.original(frame.f_code) is not _GAUSS:
            return None
        generator = frame.f_locals.get("self")
        if not self.is_drawn_from(generator) or lookup.attributes_of(generator) is not container:
            return None
        self.draw(generator)
        return generator

    def reads_clock(self, function: Any) -> bool:
        """Whether replays read the clock, as the call is about to."""
        if self.numbers is None or not self.numbers.clock or function not in TELL_TIME:
            return False
        self._times += 1
        return True

    def end(self) -> None:
        """The call is over."""
        if self.numbers is not None and self.numbers.follows and self._times != self.numbers.times:
            self._running.refuse("the clock", "has the clock read by a function in C")
