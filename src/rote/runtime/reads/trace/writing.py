"""What a traced call writes outside of itself.

A slot that the call has written is no condition when the call reads it later. The value before the first
write is kept and compared with the value at the end. If they differ, a replay writes it, too, or that is an
effect.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence, Set
from types import FrameType
from typing import Any

import numpy

from ....base import identity, is_instance, is_own
from ...arguments import CONTENTS, FILLED, SlotsBefore
from ...objects import can_tell, end_of, members, said_module, seen_dying, sink_of
from ...state import ITEM, MISSING
from .callables import Callables
from .classes import Classes
from .kinds import PLAIN_TYPES, is_compilers, is_readable
from .outside import Outside
from .written import Growing, Reordered, Told, WrittenSlot, contents, lies_in, target_of

OF_CLASS = frozenset({"__class__", "__dict__", "__code__"})
"""Attributes that give an object another class, other attributes or other code."""


class OutsideWrites:
    """What one call writes.

    Attributes:
        told: Functions whose reads one note has told, with what they were given.
        turns: Some slot comes to hold something else, if only for a while.
    """

    def __init__(self, outside: Outside, classes: Classes, callables: Callables, *, keeps: bool) -> None:
        # If the call may be attempted once more: what lay where it has written, also if only for a while.
        self._before = SlotsBefore(()) if keeps else None
        self.turns = False
        self.told: set[tuple[Any, ...]] = set()
        self._members: dict[tuple[str, ...], set[int]] = {}
        self._told_of: set[int] = set()
        self._outside = outside
        self._slots = outside.slots
        self._running = outside.running
        self._classes = classes
        self._callables = callables

    def write(self, kind: str, container: Any, key: Any, owner: Any, new: Any = MISSING) -> None:
        """A slot is about to be written; a plain value that lies there already turns nothing."""
        if issubclass(type(owner), type) or (type(key) is str and key in OF_CLASS):
            self._classes.forget()
            self._callables.forget()
            self.forget_told()
        outside, slots = self._outside, self._slots
        if not (outside.has(owner) or self._is_outside(container)):
            return
        if is_compilers(said_module(owner if issubclass(type(owner), type) else type(owner))):
            return
        outside.pin(owner)
        outside.pin(container)
        outside.look_at_key(container)
        self._forget_told(container)
        address, found = (kind, identity(container), key), lies_in(kind, container, key)
        self.turns = self.turns or type(new) not in PLAIN_TYPES or found is not new
        if address in slots.written or slots.has_changed(kind, identity(container)):
            return
        if type(key) is str and outside.is_no_condition(container, key, owner):
            return
        read = outside.reads.get(address)  # as it was then: what lies there may have been filled since
        slot = WrittenSlot(kind, container, key, None, identity(owner), self._running.site())
        outside.hold(container)
        if self._lets_die([found], outside.name(owner, slot.suffix)):
            slots.written[address] = slot._replace(was=MISSING)
            slots.dying.add(address)
            return
        was = read.value if read is not None else outside.form(found)
        if kind == ITEM and issubclass(type(container), dict):
            slots.stored.setdefault(identity(container), {})[key] = was is not MISSING
        target = target_of(kind, container, key, owner, "")
        self._keep(container, target.kind, target.container, target.key)
        slots.written[address] = slot._replace(was=was, itself=found if outside.can_stand(found) else None)

    def _is_outside(self, container: Any) -> bool:
        return self._outside.has(container) or self._outside.given.branch(container) is not None

    def wrote(self, kind: str, container: Any, key: Any) -> bool:
        """Whether the call has written a slot."""
        return (kind, identity(container), key) in self._slots.written

    def change(self, container: Any) -> None:
        """Any member of a container that is outside is about to be written."""
        if not (self._is_outside(container) or self._outside.has_taken(container)):
            return
        self._outside.pin(container)
        self._outside.look_at_key(container)
        self._forget_told(container)
        where, slots = identity(container), self._slots
        if where in slots.changed:
            return
        held = members.values(container) if is_readable(container) else ()
        if self._lets_die(held, self._outside.name(container)):
            slots.changed[where] = WrittenSlot("", container, None, (), where, self._running.site())
        else:
            self._keep(container, CONTENTS, container, None)
            growing = slots.growing.get(where)
            was = slots.take_written(container) if growing is None else growing.written.was
            slots.changed[where] = WrittenSlot("", container, None, was, where, self._running.site())

    def _lets_die(self, values: Sequence[Any], name: str) -> bool:
        """Whether the call drops something whose death is seen: it is to die now, if it does."""
        dying = seen_dying(values)
        if dying:
            self._running.refuse(name, f"replaces {name}, and code or a weak reference tells when that dies")
            self._outside.forget(dying)
            which, growing = set(map(identity, dying)), self._slots.growing
            for where, each in [*growing.items()]:  # what a list was, which the call has added to before
                if not which.isdisjoint(map(identity, each.written.was or ())):
                    del growing[where]
        return bool(dying)

    def delete(self, table: Any, name: str, owner: Any) -> None:
        """A name is about to be deleted from a namespace that is outside: set again, it comes last."""
        where, slots = identity(table), self._slots
        written = any([each.is_in(table) for each in slots.written.values()])
        if not written:
            return
        if where not in slots.reordered:
            self._keep(table, CONTENTS, table, None)
            was = tuple([name for name, _ in slots.contents_before(table)])
            slot = WrittenSlot("", table, None, was, identity(owner), self._running.site())
            slots.reordered[where] = Reordered(slot)
        slots.reordered[where].deleted.add(name)

    def _keep(self, written: Any, kind: str, container: Any, key: Any) -> None:
        if self._before is None or self._outside.given.branch(written) is not None:
            return
        if type(container) is numpy.ndarray:
            self._before.hold(FILLED, container, None)
        elif kind != CONTENTS or is_instance(container, (list, dict, deque, set)):
            self._before.hold(kind, container, key)

    def put_back(self) -> None:
        """The call is attempted once more: everything outside is as it was before it."""
        if self._before is None:
            return
        self._before.put_back()
        for table in self._outside.staged:
            table.clear()

    def let_go(self) -> None:
        """The call is over: nothing is held any more."""
        self._before = None

    def append(self, container: Any, count: int) -> bool:
        """Members are about to be added to a list or a deque; whether a replay can add its own."""
        where, slots = identity(container), self._slots
        known = type(container) in (list, deque) and self._outside.has(container) and count >= 0
        known = known and not _is_in_operation(self._running.frame())  # a replay of it appends by itself
        if not known or where in slots.changed or self._outside.given.branch(container) is not None:
            return False
        moves = type(container) is deque and any([each.is_in(container) for each in slots.written.values()])
        if moves or self._outside.followed.moves(container):
            return False  # what is written there, or followed, moves
        full = type(container) is deque and len(container) + count > (container.maxlen or sys.maxsize)
        if full and seen_dying((container[0], container[-1]) if count == 1 < len(container) else container):
            return False
        if where not in slots.growing:
            self._outside.pin(container)
            self._forget_members(container)
            was = members.keys(container)
            slot = WrittenSlot("", container, None, was, where, self._running.site())
            slots.growing[where] = Growing(slot)
        self._forget_told(container)
        slots.growing[where].count += count
        return True

    def store(self, container: Any, key: Any) -> bool:
        """Something was stored under a number that is followed; whether a replay can store its own there.

        Nothing else of the container is written.
        """
        where, slots = identity(container), self._slots
        if not self._outside.has(container) or self._outside.given.branch(container) is not None:
            return False
        stored = [each.key for each in slots.written.values() if each.container is container]
        if where in slots.changed or where in slots.growing or stored != [key]:
            return False
        if not self._outside.is_apart(container):
            return False
        slots.keyed[where] = key
        self._forget_members(container)
        return True

    def _forget_members(self, container: Any) -> None:
        members = self._outside.members
        members.difference_update([each for each in members if each[0] == identity(container)])

    def tells(
        self, owner: Any, function: Any, args: tuple[Any, ...], named: dict[str, Any], **fixed: Any
    ) -> bool:
        """Text is about to be written to a stream; whether a replay can write its own there."""
        sink, slots = sink_of(owner), self._slots
        if sink is None or not self._outside.has(owner) or _is_in_operation(self._running.frame()):
            return False
        where, given = identity(sink), (*args, *named.values())
        if where in slots.changed or not can_tell(function, given):
            return False
        if where not in slots.growing:
            end = end_of(sink)
            if end is None:
                return False
            self._outside.pin(owner)
            slot = WrittenSlot("", sink, None, contents(sink), identity(owner), self._running.site())
            slots.growing[where] = Told(slot, end=end)
        told = slots.growing[where]
        if isinstance(told, Told):
            told.calls.append((function, tuple(named), tuple(fixed.items())))
            told.given.append(given)
        return True

    def has_told(self, stream: Any) -> bool:
        """Whether replays write what the call writes to a stream."""
        return isinstance(self._slots.growing.get(identity(sink_of(stream))), Told)

    def length_before(self, container: Any) -> int | None:
        """How many members a list had before the call has added the first one; None if it has added none."""
        growing = self._slots.growing.get(identity(container))
        return len(growing.written.was) if growing is not None else None

    def tell(self, what: tuple[Any, ...], containers: Iterable[Any]) -> None:
        """All is told of a function, as long as some containers outside are not written, nor a class."""
        self.told.add(what)
        self._told_of.update(map(identity, containers))

    def told_members(self, names: tuple[str, ...]) -> Set[int]:
        """The identities of objects outside, of which it is told what these methods do in any container."""
        return self._members.setdefault(names, set())

    def tell_member(self, value: Any, names: tuple[str, ...], containers: Iterable[Any]) -> None:
        """The same is told of one more, as long as some containers outside are not written, nor a class."""
        self._members.setdefault(names, set()).add(identity(value))
        self._told_of.update(map(identity, containers))

    def _forget_told(self, container: Any) -> None:
        """A container is written: what was told of functions that look into it may be another from now on."""
        if identity(container) in self._told_of:
            self.forget_told()

    def forget_told(self) -> None:
        """Nothing is told any more."""
        for told in (self.told, self._members, self._told_of):
            told.clear()


def _is_in_operation(frame: FrameType | None) -> bool:
    """Whether code is a kernel: it runs below an operation that is dispatched."""
    while frame is not None:
        if frame.f_code.co_name == "__torch_dispatch__" and is_own(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
