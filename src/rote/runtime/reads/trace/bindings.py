"""The slots outside that a call has bound to something else: a replay binds what it computes there."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

import numpy
import torch

from ....base import identity, is_instance
from ...arguments import (
    APPENDED,
    CONTENTS,
    DEEPEST,
    DELETED,
    FILLED,
    STORED,
    TOLD,
    Bound,
    FoundObject,
    GivenTarget,
    Made,
    Marking,
    Tag,
    Target,
    leaves_of,
    read_from,
)
from ...numbers import KINDS, TRUTHS
from ...objects import UNSET, members
from ...state import ATTRIBUTE, ITEM, KIND, LENGTH, MISSING, ORDER, Read, address_of
from .kinds import CONTAINER, DERIVED, OTHER, PLAIN, PLAIN_TYPES, TENSOR, is_in_c, is_readable
from .outside import Outside
from .written import (
    MAPPINGS,
    Growing,
    Told,
    WrittenSlot,
    contents,
    has_same_members,
    has_tensors,
    is_same,
    target_of,
)

_OBJECTS = frozenset({CONTAINER, DERIVED, OTHER})
"""Kinds of what is handed out as the object that it is."""
_OF_SIZE = frozenset({LENGTH, ORDER, KIND, ATTRIBUTE})
"""Kinds of reads of a container that say nothing of what its members are: it has a ``maxlen`` beside them."""


@dataclass(frozen=True)
class Binding:
    """Slots that a call has bound, and what lies in them, in the form in which a result is taken apart.

    Args:
        often: Slots that calls have often bound to something else: they are bound if nothing changes, too.
        by_value: Slots whose number is a condition: a call that finds one of a few leaves another of these.
        others: Other slots are bound if they have changed.
    """

    marking: Marking
    often: Collection[tuple[str, int, Any]]
    by_value: Collection[object]
    others: bool
    targets: list[Target] = field(default_factory=list[Target])
    parts: list[Any] = field(default_factory=list[Any])

    def add(self, target: Target, part: Any) -> None:
        """Something lies in a slot."""
        self.targets.append(target)
        self.parts.append(self.marking.mark(part))


class Bindings:
    """What a replay of one call binds.

    Attributes:
        bound: Which of the slots written those are; what else has changed is an effect.
    """

    def __init__(self, outside: Outside) -> None:
        self.bound: set[tuple[str, int, Any]] = set()
        self._outside = outside
        self._slots = outside.slots
        self._followed = outside.followed
        self._told: set[int] | None = None  # identities of what a guard tells, once that was asked
        self._is_check = False  # the call is compared with a replay, and nobody tells what its arrays are

    def of(
        self,
        value: Any,
        often: Collection[tuple[str, int, Any]],
        by_value: Collection[object],
        *,
        others: bool,
    ) -> Any:
        """The result of a call, with the slots outside that it has bound to something else.

        A slot that it has read before holds what an earlier call has left, and is no such slot.
        """
        given, slots = self._outside.given, self._slots
        self._is_check, self._told = not others, None
        binding = Binding(Marking(self._number_of, self._outside.has, self._found), often, by_value, others)
        value = binding.marking.mark(value)
        for each in slots.written.values():
            number = given.branch(each.container)
            if identity(each.container) in slots.carriers:
                self._tag(binding, each, value)
            elif number is not None:
                self._bind_given(binding, each, number)
            elif not self._store(binding, each):
                self._bind(binding, each)
        for each in slots.changed.values():
            number = given.branch(each.container)
            if number is not None:
                self._fill_given(binding, each, number)
            else:
                self._fill(binding, each)
        for each in slots.growing.values():
            if isinstance(each, Told):
                self._tell(binding, each)
            else:
                self._grow(binding, each)
        self._pin_inside((value, binding.parts))
        return Bound(value, tuple(binding.targets), tuple(binding.parts)) if binding.targets else value

    def _number_of(self, value: Any) -> int | None:
        """The number of a branch of the arguments that is handed out as it is."""
        outside = self._outside
        number = outside.given.number_of(value)
        if number is not None:
            return number
        try:
            return outside.given.tuple_of(value)
        except KeyError:
            outside.running.refuse("a tuple", "hands out a tuple that is two of its arguments")
            return None

    def _found(self, value: Any) -> FoundObject | None:
        """What leads a replay to something outside; a tuple of plain values keeps nothing alive."""
        outside = self._outside
        if outside.kinds[type(value)] not in _OBJECTS or identity(value) in outside.given.leaves:
            return None
        if issubclass(type(value), Enum):
            return FoundObject(value)  # there is one of each, which its class keeps
        if identity(value) in outside.anchored:
            return FoundObject(value, weakly=True) if not outside.by_content(type(value)) else None
        place = outside.find_place(value)
        if place is not None and place.now() is value:  # the call leaves it there
            return FoundObject(value, place)
        if self._told is None:
            self._told = outside.told_by_slots()
        return FoundObject(value) if identity(value) in self._told or _is_plain(value) else None

    def _pin_inside(self, value: Any) -> None:
        """What a replay hands out or binds is the object that it is, whatever is found in it by then."""
        met, left = set[int](), [value]
        while left:
            part = left.pop()
            if type(part) is FoundObject:
                if part.place is None:
                    self._outside.pin(part())
                continue
            if self._outside.kinds[type(part)] in (PLAIN, TENSOR) or identity(part) in met:
                continue
            met.add(identity(part))
            self._outside.pin(part)
            if type(part) is Made:
                left.extend(part.values)
            elif is_readable(part):
                left.extend(members.values(part))
            if type(part) is defaultdict:
                left.append(self._known_factory(part.default_factory))
            if type(part) is MethodType or is_in_c(part):  # equal ones are of one object
                left += [getattr(part, "__self__", None), getattr(part, "__func__", None)]

    def _known_factory(self, factory: Any) -> Any:
        """What makes the defaults of a dict. What equals an object of the call's own may be another one."""
        known = factory is None or is_instance(factory, (type, FunctionType, MethodType)) or is_in_c(factory)
        if not known and not self._outside.has(factory):
            self._outside.running.refuse(
                "a defaultdict", "hands out a defaultdict that calls an object of its own"
            )
        return factory

    def _bind(self, binding: Binding, each: WrittenSlot) -> None:
        """A slot outside was written."""
        outside, numbers, now = self._outside, self._followed.numbers, self._slots.left_in(each)
        read = outside.reads.get(each.address)
        counts = address_of(each.kind, each.container, each.key) not in binding.by_value
        turned = read is None or _is_turned(read.value, now, counts=counts)
        filled = outside.has_filled(now)
        turned = turned or (filled and outside.is_left(each, now))  # an array, of another that is equal
        can = turned and self._can_bind(each, now, binding.marking)
        if each.address in self._slots.dying:
            return
        if not can and not (outside.given.rebuilt and outside.given.number_of(now) is not None):
            return
        if (
            (numbers is not None and numbers.expression(now) is not None)
            or each.address in binding.often
            or outside.given.number_of(now) is not None  # the next call has another argument
            or outside.is_tensors(now)
            or filled
            or (binding.others and not outside.is_left(each, now))
        ):
            owner, name = outside.get(each.owner), outside.names.path(each.owner, each.suffix)
            binding.add(target_of(each.kind, each.container, each.key, owner, name), now)
            if can:
                self.bound.add(each.address)

    def _store(self, binding: Binding, each: WrittenSlot) -> bool:
        """Whether a member was stored under a number that replays compute; then that is a part, too."""
        where, numbers, now = identity(each.container), self._followed.numbers, each.now()
        target = Target(STORED, each.container, None, self._outside.names.path(each.owner, each.suffix))
        repeats = numbers is not None and not numbers.follows and target.address in binding.often
        if where not in self._slots.keyed and not (repeats and each.kind == ITEM):
            return False
        if self._can_be_made(now, binding.marking):
            binding.add(target, (self._slots.keyed.get(where, each.key), now))
            self.bound.add(each.address)
        return True

    def _can_bind(self, each: WrittenSlot, now: Any, marking: Marking) -> bool:
        where, outside = identity(each.container), self._outside
        asked = ((kind, where, None) in outside.reads for kind in (LENGTH, ORDER))
        if each.was is MISSING and any(asked) and not self._is_check:
            return False  # it grows, and the call reads how far
        if self._slots.has_changed(each.kind, where):
            return False
        of_class = issubclass(type(outside.get(each.owner)), type)
        if of_class and type(now) not in _IN_CLASSES:
            return False  # what a class holds may be asked for what it gives instead
        return self._can_be_made(now, marking)

    def _can_be_made(self, value: Any, marking: Marking, inside: tuple[int, ...] = ()) -> bool:
        """Whether a replay can write an equal value into a slot."""
        kind, given = type(value), self._outside.given
        if kind in PLAIN_TYPES or kind in KINDS | TRUTHS or kind is torch.Tensor or value is _NOTHING:
            return True
        if issubclass(kind, Enum):
            return self._outside.has(value)
        if identity(value) in given.leaves or given.number_of(value) is not None:
            return True
        if self._outside.is_tensors(value) or (self._is_check and kind is numpy.ndarray):
            return True
        if self._outside.has_filled(value):
            return True
        numbers = self._followed.numbers
        if numbers is not None and numbers.hands_out(value):
            return True
        parts = marking.parts_of(value)
        if (
            parts is None
            or identity(value) in inside
            or len(inside) > DEEPEST
            or (self._outside.has(value) and not (_is_plain(value) or given.is_tuple(value)))
        ):
            return False
        if issubclass(kind, dict) and not all([type(key) in PLAIN_TYPES for key in value]):
            return False
        return all([self._can_be_made(part, marking, (*inside, identity(value))) for part in parts])

    def _bind_given(self, binding: Binding, each: WrittenSlot, number: int) -> None:
        """A slot of an argument was written: what lies in it now, or that nothing does, is a part."""
        changed = self._slots.has_changed(each.kind, identity(each.container))
        if changed or each.kind not in (ITEM, ATTRIBUTE):
            return
        given, now = self._outside.given, each.now()
        gone = now is MISSING or now is UNSET
        can = gone or self._can_be_made(now, binding.marking)
        if not (can or given.rebuilt):
            return
        table = each.container is not given.of(number)
        kind, name = DELETED if gone else each.kind, given.names[number] + each.suffix
        binding.add(GivenTarget(kind, number, each.key, name, table=table), None if gone else now)
        if can:
            self.bound.add(each.address)

    def _tag(self, binding: Binding, each: WrittenSlot, value: Any) -> None:
        """An attribute of a tensor was set: if that is part of the result, what is set is a part, too."""
        now, tensor = each.now(), self._slots.carriers[identity(each.container)]()
        position = next((place for place, leaf in enumerate(leaves_of(value)) if leaf is tensor), None)
        known = tensor is None or identity(tensor) in self._outside.arguments or each.was is not MISSING
        if known or position is None or not self._can_be_made(now, binding.marking):
            return
        binding.targets.append(Tag(position, each.key, f"result.{each.key}"))
        binding.parts.append((tensor, binding.marking.mark(now)))
        self.bound.add(each.address)

    def _grow(self, binding: Binding, each: Growing) -> None:
        """Members were added to a list or a deque: they are parts, unless it was read afterwards."""
        found, where = each.written.container, identity(each.written.container)
        now = members.keys(found)
        size = found.maxlen if type(found) is deque else None
        count = each.count if size is None else min(each.count, size)
        added = now[len(now) - count :]
        kept = (*each.written.was, *added)
        expected = kept if size is None else kept[len(kept) - min(size, len(kept)) :]
        others = [
            place for place, each in enumerate(zip(expected, now, strict=False)) if each[0] is not each[1]
        ]
        as_added = len(now) == len(expected) and all(
            [(where, place) in self._slots.last or is_same(expected[place], now[place]) for place in others]
        )
        if where in self._slots.changed or not as_added or not count:
            return
        if (numbers := self._followed.numbers) is not None:
            numbers.lengthen(found)
        if where in self._slots.looked and not self._is_check:
            return
        target = Target(APPENDED, found, count, self._outside.name(found))
        if not (binding.others or target.address in binding.often):
            return
        if self._can_be_made(added, binding.marking):
            binding.add(target, added)
            self.bound.add((APPENDED, where, None))

    def _tell(self, binding: Binding, each: Told) -> None:
        """Text was written to a stream: a replay writes its own, unless the stream was read afterwards."""
        sink, where, given = each.written.container, identity(each.written.container), tuple(each.given)
        if where in self._slots.looked or where in self._slots.changed:
            return
        name = self._outside.names.path(each.written.owner, "")
        target = Target(TOLD, sink, tuple(each.calls), name)
        if (binding.others or target.address in binding.often) and self._can_be_made(given, binding.marking):
            binding.add(target, given)
            self.bound.add((APPENDED, where, None))

    def _fill(self, binding: Binding, each: WrittenSlot) -> None:
        """A list, deque or dict outside was changed: all that it holds is a part.

        If anything of it was read before, that is how long it is, or plain values that stay where they are
        beside numbers that change: else an earlier call has left what is read. Not where nothing is left.
        """
        if self._outside.has_taken(each.container):
            self._fill_array(binding, each)
            return
        found, reads, where = each.container, self._outside.reads, identity(each.container)
        asked = [read for address, read in reads.items() if address[1] == identity(found)]
        if type(found) not in (list, deque, *MAPPINGS):
            return
        held = members.values(found)
        if where in self._slots.looked or (asked and held and not self._followed.moves(found)):
            return
        stays = held or has_tensors(each.was)  # which are to be arguments
        if stays and not all([read.kind in _OF_SIZE or _is_left(read) for read in asked]):
            return
        keys = members.keys(found) if type(found) in MAPPINGS else None
        target = Target(CONTENTS, found, keys, self._outside.names.path(each.owner, ""))
        if not (binding.others or target.address in binding.often):
            return
        if _are_plain(keys) and self._can_be_made(held, binding.marking):
            binding.add(target, held)
            self.bound.add(each.address)

    def _fill_array(self, binding: Binding, each: WrittenSlot) -> None:
        """An array outside was written: what it holds is a part, if that is followed."""
        numbers, array = self._followed.numbers, each.container
        target = Target(FILLED, array, None, self._outside.names.path(each.owner, ""))
        if numbers is None or not (binding.others or target.address in binding.often):
            return
        if (left := numbers.left_in(array)) is not None:
            binding.add(target, left)
            self.bound.add(each.address)

    def _fill_given(self, binding: Binding, each: WrittenSlot, number: int) -> None:
        """A list or dict among the arguments was changed: all that it holds is a part."""
        found, given = each.container, self._outside.given
        table = found is not given.of(number)
        own = not table and is_instance(found, (list, deque, dict))
        if not (own or type(found) is dict) or has_same_members(each.was, contents(found)):
            return
        held = members.values(found)
        keys = members.keys(found) if is_instance(found, dict) else None
        can = not table and self._can_be_made(held, binding.marking) and _are_plain(keys)
        if not (can or given.rebuilt):
            return
        binding.add(GivenTarget(CONTENTS, number, keys, given.names[number], table=table), held)
        if can:
            self.bound.add(each.address)


_NOTHING = ()
"""The tuple without members, of which there is but one."""
_IN_CLASSES = PLAIN_TYPES | KINDS | {torch.Tensor, tuple, list, dict, OrderedDict, deque}
"""Types of what a class hands out as it is: none of them says what is to be given instead."""
_COUNT = KINDS | {complex}
"""Types of what calls count by; where it is not followed, no call finds again what another one has found."""


def _is_turned(was: Any, now: Any, *, counts: bool) -> bool:
    """Whether a slot that was read has turned from one plain value or member to another, and does not count.

    A replay begins with the one, and leaves the other.
    """
    kinds = type(was), type(now)
    plain = all([kind in PLAIN_TYPES or kind in KINDS or issubclass(kind, Enum) for kind in kinds])
    return plain and not (counts and _COUNT.issuperset(kinds))


def _is_plain(value: Any) -> bool:
    """Whether something is a plain value, or a tuple of such that has members."""
    parts = members.values(value) if is_instance(value, tuple) else ()
    return type(value) in PLAIN_TYPES or (len(parts) > 0 and all(map(_is_plain, parts)))


def _are_plain(keys: tuple[Any, ...] | None) -> bool:
    return all([type(key) in PLAIN_TYPES for key in keys or ()])


def _is_left(read: Read) -> bool:
    """Whether a plain value that was read in a container lies there still."""
    try:
        return read.kind == ITEM and is_same(read.value, read_from(ITEM, read.container, read.key))
    except LookupError:
        return False
