"""What a call leaves behind outside and a replay does not, and what has to hold for that to be all."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import ref

from ....base import identity
from ...arguments import APPENDED, can_be_carried, holds_tensors
from ...numbers import GLOBAL_GENERATORS, KINDS, can_be_filled, is_array
from ...objects import UNSET, Content, Position, members, said_module, text_of
from ...pytorch import gathers
from ...state import (
    BULK,
    DEFINED,
    HELD,
    ITEM,
    LENGTH,
    LENGTHENED,
    LIES,
    MISSING,
    ORDER,
    WHETHER,
    Address,
    Read,
    address_of,
    answer,
)
from .kinds import PLAIN_TYPES
from .noted import Effect
from .outside import SLOTS, Outside
from .written import (
    MAPPINGS,
    Reordered,
    Told,
    WrittenSlot,
    as_text,
    contents,
    difference,
    has_same_members,
    has_tensors,
    is_same,
)


class OutsideEffects:
    """The effects of one call: what it has written, but for slots that a replay has bound.

    A slot that the call restores is read by that: a replay leaves it as it is.
    """

    def __init__(self, outside: Outside, bound: set[tuple[str, int, Any]]) -> None:
        self._outside = outside
        self._slots = outside.slots
        self._followed = outside.followed
        self._bound = bound

    def found(self) -> Iterable[Effect]:
        """The call is over: what it leaves behind."""
        self._identify_kept()
        self._outside.keep_arrays()
        self._outside.read_tensors()
        yield from self._drawn_otherwise()
        for where, grown in self._slots.growing.items():
            if (APPENDED, where, None) in self._bound or where in self._slots.changed:
                continue
            if isinstance(grown, Told):  # the position of a file need not tell
                yield self._effect(grown.written, " (what is written to it)", MISSING, "text")
            else:
                yield from self._in_container(grown.written)
        for each in self._slots.written.values():
            if each.address not in self._bound:
                yield from self._in_slot(each)
        for each in self._slots.changed.values():
            if each.address not in self._bound:
                self._followed.leaves(contents(each.container))
                yield from self._in_container(each)
        for where, each in self._slots.reordered.items():
            if where not in self._slots.changed:
                yield from self._in_order(each)

    def _identify_kept(self) -> None:
        """What is state and taken apart lies in another slot now: which object it is matters there."""
        given, slots = self._outside.given, self._slots
        if not given.slots:
            return
        written = [each.now() for each in slots.written.values()]
        grown = [each.written for each in slots.growing.values()]
        filled = [contents(each.container) for each in (*slots.changed.values(), *grown)]
        parts = [part for each in filled if type(each) is tuple for part in each]
        pairs = [part for each in parts if type(each) is tuple for part in each]
        for value in (*written, *parts, *pairs):
            if given.is_state(value):
                self._outside.identify(value, "keeps it somewhere else, too")

    def _drawn_otherwise(self) -> Iterable[Effect]:
        """Generators that are elsewhere than behind what replays draw."""
        followed = self._followed
        for each in followed.drawn.values():
            known = any(each.generator is one for one in GLOBAL_GENERATORS)  # they are looked at apart
            if known or not followed.is_drawn_from(each.generator) or followed.numbers is None:
                continue
            if not each.is_behind(followed.numbers.drawn):
                name, site = (
                    self._outside.name(each.generator),
                    followed.draws or self._outside.running.site(),
                )
                yield Effect(name, "at one state", "at another", site, address_of(HELD, each.generator, None))

    def _in_slot(self, each: WrittenSlot) -> Iterable[Effect]:
        """The effect on a slot, if what lies in it is not as it was."""
        outside, slots = self._outside, self._slots
        carrier = slots.carriers.get(identity(each.container))
        if carrier is not None and carrier() is None:
            return  # the call has made it, and nobody has it
        left = slots.left_in(each)
        if each.address in slots.carried and left is slots.carried[each.address]:
            return  # it is as it was given, whatever that is
        if left is not each.was and left is not each.itself:  # what that holds is written where it lies
            self._followed.leaves(left)
        now = outside.form(left)
        if not (outside.is_left(each, left) and outside.keep(left, each)):
            yield self._effect(each, each.suffix, each.was, now)
            return
        if outside.looks_at_another(left):  # somebody may write to that
            lies = self._as_it_is(each, answer(left.__array_interface__))._replace(
                kind=LIES, key=(each.kind, each.key), suffix=f"{each.suffix} (how it lies)"
            )
            outside.reads.setdefault(_key(lies), lies)
        read = self._as_it_is(each, now)  # a replay leaves it as the call does, if it is so before
        if outside.given.branch(each.container) is not None:
            outside.given.read(read.kind, read.container, read.key, now, read.name)
        else:
            outside.reads.setdefault(_key(read), read)

    def _in_order(self, reordered: Reordered) -> Iterable[Effect]:
        """The effect on the order of names, of which some were deleted; a replay leaves it as it is."""
        each, outside = reordered.written, self._outside
        table = each.container
        now = [name for name, _ in contents(table)]
        added = [slot.key for slot in self._slots.written.values() if slot.is_in(table) and slot.key in table]
        as_left = [name for name in each.was if name in table]
        expected = [*as_left, *[name for name in added if name not in each.was]]
        if now != expected:
            other = next(place for place, name in enumerate(now) if name != expected[place])
            name, given = outside.names.path(each.owner, " (order)"), outside.given.branch(table) is not None
            was, later = as_text(expected[other]), as_text(now[other])
            yield Effect(name, was, later, each.site, address_of(ORDER, table, None), given)
            return
        if reordered.deleted.isdisjoint(as_left):
            return
        read = Read(ORDER, table, None, Content(each.was), each.owner, " (order)", outside.names)
        if outside.given.branch(table) is not None:
            outside.given.read(read.kind, table, None, read.value, read.name)
        else:
            outside.reads.setdefault(_key(read), read)

    def _as_it_is(self, each: WrittenSlot, now: Any) -> Read:
        """The condition that a slot holds this before a replay, or is empty."""
        kind, value = each.kind, now
        if now is MISSING and kind == ITEM:
            kind, value = DEFINED, WHETHER[False]
        return Read(kind, each.container, each.key, value, each.owner, each.suffix, self._outside.names)

    def _in_container(self, each: WrittenSlot) -> Iterable[Effect]:
        """The effect on a container, if it does not hold what it held."""
        outside, now = self._outside, contents(each.container)
        if type(now) is Position and each.was.agrees(now):  # how far it is was looked at, and that is all
            held = now._replace(asked=True)
            read = Read(HELD, each.container, None, held, each.owner, "", outside.names)
            outside.reads[_key(read)] = read
        elif not has_same_members(each.was, now):
            yield self._effect(each, *difference(each.container, each.was, now))
        elif not all([outside.keep(slot.was, slot) for slot in _slots_in(each)]):
            yield self._effect(each, "", each.was, now)
        elif outside.given.branch(each.container) is None:  # what is emptied at first is not read by that
            for read in self._as_it_was(each.container, each.was):
                outside.reads.setdefault(_key(read), read)

    def _as_it_was(self, found: Any, was: Any) -> Iterable[Read]:
        """Conditions before a replay on a container that the call changes and restores."""

        def read(kind: str, key: Any, value: Any, suffix: str = "") -> Read:
            return Read(kind, found, key, value, identity(found), suffix, self._outside.names)

        if type(was) is not tuple:
            yield read(HELD, None, was)
            return
        if issubclass(type(found), (set, frozenset)):
            yield read(BULK, None, Content(was))
            return
        yield read(LENGTH, None, Content(len(was)), " (length)")
        pairs: Iterable[tuple[Any, Any]] = enumerate(was)
        if issubclass(type(found), dict):
            yield read(ORDER, None, Content(tuple([key for key, _ in was])), " (order)")
            pairs = was
        for key, value in pairs:
            yield read(ITEM, key, self._outside.form(value), f"[{text_of(key)}]")

    def _has_moved(self, each: WrittenSlot) -> bool:
        """Whether a container of tensors is to be carried. Of one that only grows each call finds more."""
        if not (holds_tensors(each.container) or has_tensors(each.was)):
            return False  # numbers are followed where they lie
        length, given = len(each.was), self._outside.given
        return len(each.container) <= length or given.finds_again(each.container, length)

    def _effect(self, each: WrittenSlot, suffix: str, was: Any, now: Any) -> Effect:
        outside = self._outside
        number = outside.given.branch(each.container)
        if number is None and has_tensors(each.now() if each.kind else contents(each.container)):
            outside.given.fills(outside.names.owners(each.owner))
        replaced = each.kind in SLOTS and each.address in outside.reads
        owner = outside.get(each.owner)
        if (
            number is None
            and replaced
            and can_be_carried(each.now())
            and not gathers(said_module(type(owner)))
        ):
            outside.replaced.append((each.kind, each.container, each.key, owner, each.suffix))
        if number is None and not each.kind and self._has_moved(each):
            outside.moved.append(each.container)
        path = outside.names.path(each.owner, suffix)
        name = path if number is None else outside.given.names[number] + suffix
        address = address_of(each.kind, each.container, each.key)
        left = (*self._other_numbers(each), *self._lengthened(each)) if number is None else ()
        window = _window(each) if number is None else None
        holds = _holds_more(each.was, each.now() if each.kind else contents(each.container))
        return Effect(
            name, as_text(was), as_text(now), each.site, address, number is not None, left, window, holds
        )

    def _lengthened(self, each: WrittenSlot) -> tuple[Address, ...]:
        """How long a container is to which the call adds members, if nothing else about it changes."""
        container, slots = each.container, self._slots
        where = identity(container)
        grows = where in slots.growing or (each.kind == ITEM and each.was is MISSING)
        if not grows or where in slots.changed or type(container) not in LENGTHENED:
            return ()
        return (address_of(LENGTH, container, None),)

    def _other_numbers(self, each: WrittenSlot) -> tuple[Address, ...]:
        """The slots that have changed, and had numbers and have numbers; those of an array that has."""
        if can_be_filled(each.container):
            return tuple([slot.address for slot in self._outside.slots_of(each.container)])
        return _other_numbers(each)


def _window(each: WrittenSlot) -> ref[deque[Any]] | None:
    """The container, if it is a deque without tensors that takes more members than it has."""
    window: Any = each.container
    if each.kind or type(window) is not deque or window.maxlen is None or holds_tensors(window):
        return None
    return ref(window) if len(window) < window.maxlen else None


def _holds_more(was: Any, now: Any) -> bool:
    """Whether more than plain values lies in a slot or in a container, and did not before."""
    if type(now) is not tuple:
        plain = type(now) in PLAIN_TYPES or type(now) in KINDS or now is MISSING or now is UNSET
        return not plain and now is not was
    before = {identity(part) for each in (was if type(was) is tuple else ()) for part in _parts(each)}
    return any(
        [identity(part) not in before and _holds_more(None, part) for each in now for part in _parts(each)]
    )


def _parts(member: Any) -> tuple[Any, ...]:
    """A member of a container; of a mapping its key and what lies under it."""
    return member if type(member) is tuple else (member,)


def _slots_in(each: WrittenSlot) -> list[WrittenSlot]:
    """The members of a container that a call has changed and restored, as slots."""
    found, was = each.container, each.was
    if type(was) is not tuple or issubclass(type(found), (set, frozenset)):
        return []
    pairs: Iterable[tuple[Any, Any]] = was if issubclass(type(found), dict) else enumerate(was)
    return [WrittenSlot(ITEM, found, key, value, each.owner, each.site) for key, value in pairs]


def _key(read: Read) -> tuple[str, int, Any]:
    """Which slot was read, among the reads of one call."""
    return read.kind, identity(read.container), read.key


def _other_numbers(each: WrittenSlot) -> tuple[Address, ...]:
    """The slots that have changed, and had numbers and have numbers."""
    if each.kind:
        pairs = [(each.kind, each.key, each.was, each.now())]
    elif type(each.container) in MAPPINGS:
        now = dict(members.slots(each.container))
        pairs = [(ITEM, key, was, now.get(key)) for key, was in each.was]
    elif type(each.container) in (list, deque):
        now = members.keys(each.container)
        pairs = [(ITEM, *each) for each in zip(itertools.count(), each.was, now)]
    else:
        pairs = []
    return tuple(
        [
            address_of(kind, each.container, key)
            for kind, key, was, now in pairs
            if _are_numbers(was, now) and not is_same(was, now)
        ]
    )


def _are_numbers(was: Any, now: Any) -> bool:
    """Whether numbers of one type, or arrays of numbers, were in a slot and are there."""
    return (type(was) is type(now) and type(was) in KINDS) or (type(was) is Content and is_array(now))
