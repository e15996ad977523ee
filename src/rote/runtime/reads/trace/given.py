"""Arguments of a traced call that are taken apart: what the call reads of them, and writes to them.

The key holds their contents, so reading them adds no condition. For objects, the key holds the attributes
that earlier calls read. If this call reads others, they are noted, and the key of the next call has them. A
write to an argument is an effect; a replay repeats it on the arguments of its own call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy
import torch

from ....base import identity, is_instance
from ...arguments import (
    DEVICE,
    OPAQUE,
    SEED,
    Call,
    GivenParts,
    Opening,
    Openings,
    StatePlace,
    containers,
    is_mutable,
    parts_of,
    place_of,
    slots_of,
)
from ...objects import ARRAY_FACTS
from ...state import ASKED, ATTRIBUTE, BULK, DEFINED, ITEM, KIND, LENGTH, NUMBERS, ORDER, SAID, Address

_OF_ARRAYS = (DEFINED, NUMBERS)
_SAID = (ATTRIBUTE, SAID)
_OF_ALL = (BULK, LENGTH, ORDER)
_OF_GENERATORS = {(ATTRIBUTE, "device"): DEVICE, (ASKED, "initial_seed"): SEED}
"""What may be asked of a random generator, whichever it is."""


class Given:
    """The arguments of one call."""

    def __init__(self) -> None:
        # which branch a container is, by identity; the dict of an object's attributes is that object
        self.numbers: dict[int, int] = {}
        # branches as the caller has them, by identity, where the callable has others
        self.originals: dict[int, int] = {}
        # objects that are taken apart, and their dicts, by identity: the class
        self.objects: dict[int, type] = {}
        self.rebuilt = False  # the callable has other leaves than the caller
        self.missing: list[str] = []  # attributes that the call read and its key does not have
        self.shared: list[Any] = []  # dicts of the attributes of other objects, and objects that have these
        self.leaves: set[int] = set()  # arguments that are known by their identity
        # slots outside that the key looks at: what lies there, by kind, container and key
        self.slots: dict[tuple[str, int, Any], Any] = {}
        self._outside: dict[int, str] = {}
        self._containers: set[int] = set()
        self.names: list[str] = []
        self._values: list[Any] = []
        # objects that are known by their identity, and whose class may be opened: the class
        self.watched: dict[int, type] = {}
        self._openings = Openings()
        # tuples and views, by their identity: which branch each is; None if it is several
        self._tuples: dict[int, int | None] = {}
        self._opened: Mapping[type, Opening] = {}

    def take(self, call: Call, given: GivenParts) -> list[tuple[str, Any]]:
        """The callable is about to be called; returns the objects that are taken apart, with their names."""
        if call.openings is not None:
            self._openings = call.openings
        opened = self._opened = call.opened or {}
        mine, theirs = list(containers(call.spec, given)), call.branches()
        self.names = call.branch_names()
        self.rebuilt = given is not call.given
        self._values = [*mine]
        tables = set[int]()  # dicts with the attributes of objects
        for number, (value, original) in enumerate(zip(mine, theirs, strict=True)):
            if any([value is part for part in given]):
                continue
            if not is_mutable(type(value)):
                for which in {*map(identity, (value, original))}:
                    self._tuples[which] = None if which in self._tuples else number
                continue
            if identity(value) in tables:
                self.shared.append(value)
            for part, whole in zip(parts_of(value), parts_of(original), strict=False):
                if self.numbers.setdefault(identity(part), number) != self.numbers[identity(value)]:
                    self.shared.append(value)
                if part is not value:
                    tables.add(identity(part))
                if whole is not part:
                    self.originals.setdefault(identity(whole), number)
                    self._values.append(whole)
                if type(value) in opened:
                    self.objects[identity(part)] = type(value)
                    self._note_container(value)
        for leaf, kind in zip(call.leaves, call.kinds, strict=True):
            if kind == OPAQUE:
                self.leaves.add(identity(leaf))
                self.watch(leaf, inner=False)
        objects = {identity(value): value for value in mine if identity(value) in self.objects}
        found = [(self.names[self.numbers[which]], value) for which, value in objects.items()]
        for place, generator in call.state:
            self.slots[place.kind, identity(place.container()), place.key] = generator
            if not self.is_one(generator):
                self.objects[identity(generator)] = torch.Generator
                self._outside[identity(generator)] = place.name
                found.append((place.name, generator))
        return found

    def name_of(self, value: Any) -> str | None:
        """The name of what is taken apart; None if a value is not."""
        number = self.numbers.get(identity(value), self.originals.get(identity(value)))
        return self.names[number] if number is not None else self._outside.get(identity(value))

    def meet_in(self, kind: str, container: Any, key: Any, generator: Any, owner: Any, name: str) -> None:
        """A random generator is found in a slot outside that no key looks at."""
        place = place_of(kind, container, key, owner, name)
        if place is not None:
            self._openings.meet_in(place, (kind, identity(container), key), generator)

    def finds(self, address: Address, value: Any) -> bool:
        """A slot outside is read that is not carried; returns whether others lay there before."""
        return self._openings.carried.meet(address, value)

    def finds_again(self, container: Any, length: int) -> bool:
        """A container outside grows; returns whether an earlier call has found it as long as this one."""
        return self._openings.carried.meet_length((ITEM, identity(container), None), length)

    def holds(self, which: int) -> bool:
        """Whether an argument has this identity."""
        return which in self.leaves or which in self.numbers or which in self.originals

    def carry(self, place: StatePlace) -> None:
        """What lies in a slot outside is replaced from call to call."""
        self._openings.carried.carry(place)

    def branch(self, container: Any) -> int | None:
        """Which branch a container is; None if it is none."""
        return self.numbers.get(identity(container))

    def number_of(self, value: Any) -> int | None:
        """Which branch a value is, as the callable has it; None for the dict of an object's attributes."""
        number = self.numbers.get(identity(value))
        return number if number is not None and self._values[number] is value else None

    def is_one(self, value: Any) -> bool:
        """Whether a value is a container of the arguments, or state that is taken apart as they are."""
        which = identity(value)
        return which in self.numbers or which in self.originals or which in self._outside

    def arrays(self) -> list[Any]:
        """The arrays among the arguments that are taken apart."""
        return [each for each in self._values if type(each) is numpy.ndarray]

    def arrays_of(self, call: Call) -> list[tuple[int, str, Any]]:
        """The same, with the leaf of each, and its name."""
        mine = [each for each in self._values[: len(self.names)] if type(each) is numpy.ndarray]
        names = [
            name for name, each in zip(self.names, self._values, strict=False) if type(each) is numpy.ndarray
        ]
        return list(zip(call.arrays, names, mine, strict=True)) if len(mine) == len(call.arrays) else []

    def is_tuple(self, value: Any) -> bool:
        """Whether a value is a tuple in the arguments or in such state: no key says which one it is."""
        return identity(value) in self._tuples

    def tuple_of(self, value: Any) -> int | None:
        """Which branch a tuple in the arguments is, if it is one and has members, and is no other as well.

        Raises:
            KeyError: It is several, and the key does not say so.
        """
        which = identity(value)
        if which not in self._tuples or (type(value) is tuple and not value):
            return None
        if (number := self._tuples[which]) is None:
            raise KeyError(which)
        return number

    def is_state(self, value: Any) -> bool:
        """Whether a value is taken apart and lies outside."""
        return identity(value) in self._outside

    def of(self, number: int) -> Any:
        """The container or object of a number, as the callable has it."""
        return self._values[number]

    # ------------------------------------------------------------------ what is read

    def watch(self, value: Any, *, inner: bool) -> None:
        """Note reads of an object known by identity, in case its class is opened later."""
        kind = type(value)
        if identity(value) not in self.watched and self._openings.may_open(kind):
            self.watched.update([(identity(part), kind) for part in parts_of(value)])
            self._note_container(value)
            self._values.append(value)
            if inner:
                self._openings.find_inside(kind)

    def _note_container(self, value: Any) -> None:
        """All members of an object that is a container are in the key, where its class is opened."""
        if is_instance(value, (dict, list)):
            self._containers.add(identity(value))

    def fills(self, owners: Iterable[int]) -> None:
        """The call leaves tensors in the first of some objects; each was found in the one after it."""
        for which in owners:
            if (kind := self.watched.get(which)) is not None:
                self._openings.fill(kind)

    def read(self, kind: str, container: Any, key: Any, value: Any, name: str) -> bool:
        """Something is read; returns whether the key tells of it."""
        if identity(container) in self._containers and kind in (ITEM, DEFINED, *_OF_ALL):
            if identity(container) in self.watched and kind == ITEM:
                self.watch(value, inner=True)
            return identity(container) in self.objects
        watched = self.watched.get(identity(container))
        if watched is not None:
            self._note(watched, kind, key)
            self.watch(value, inner=True)
        of = self.objects.get(identity(container))
        if of is None:
            return False
        names = self._note(of, kind, key)
        if not all([self._opened[of].has(each) for each in names]):
            self.missing.append(name)
            self.watch(value, inner=True)
        return True

    def _note(self, of: type, kind: str, key: Any) -> list[str | None]:
        """Note which attributes of a class are read; returns them."""
        names: list[str | None] = []
        if of is numpy.ndarray and (kind in _OF_ARRAYS or (kind in _SAID and key in ARRAY_FACTS)):
            return []  # its numbers are a condition, where it is known by its identity
        if of is torch.Generator and (kind, key) in _OF_GENERATORS:
            names = [_OF_GENERATORS[kind, key]]
        elif kind in (ITEM, DEFINED) or (kind == ATTRIBUTE and key in slots_of(of)):
            names = [key if type(key) is str else None]
        elif kind in _OF_ALL:
            names = [None]
        elif kind != KIND:
            self._openings.close(of, f"{kind} of it is read")
        for each in names:
            self._openings.note(of, each)
        return names

    def close(self, value: Any, why: str) -> None:
        """Close the class of an argument, since it matters which object the argument is."""
        kind = self.objects.get(identity(value)) or type(value)
        if self._openings.may_open(kind):
            self._openings.close(kind, why)
