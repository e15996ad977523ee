"""Conditions: what has to be as it was for a recording to answer, slot by slot.

Each class compares slots of one kind, with a handful of loops in C over parallel lists. Where objects are
compared by identity, an equal plain value may take the place of the one that was there.

The same conditions serve the search for a recording, which asks them all (:mod:`.guards`), the explanation,
which asks for the slots that differ, and the replay, which asks those that no word of memory answers
(:mod:`.quick`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import contains, getitem
from typing import Any

import torch
from typing_extensions import override

from ...base import is_instance
from ..fingerprint import Held
from ..objects import UNSET, Content, Itself, Members, Position, TensorMark, has_plain_length, is_direct
from ..pytorch import has_memory
from ..state import (
    ASKED,
    ATTRIBUTE,
    BULK,
    CELL,
    DEFINED,
    HELD,
    ITEM,
    KIND,
    LENGTH,
    MISSING,
    ORDER,
    VARIABLE,
    Argument,
    Entry,
    form_of,
    now_in,
    read,
    same,
)
from .paths import SlotPlace

_data_ptr = torch.Tensor.data_ptr
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Classes of tensors in which no code of the user's can be."""

_GONE = (KeyError, IndexError, ValueError, AttributeError)
"""Raised where a slot is no more."""
_EXACT = frozenset({str, int, bool, type(None)})
"""Types whose values are the same if they are equal and of one type."""
_TEXT = frozenset({str})
_COMPARED = frozenset({str, bytes, int, bool, type(None), type})
"""In a set of one of these types, equal members are the same member; not so of floats: 0.0 equals -0.0."""

_Loop = Callable[[list[Any], list[Any]], Iterable[Any]]
"""Of containers and keys."""
_SAID: dict[str, _Loop] = {
    LENGTH: lambda containers, _: map(len, containers),
    ORDER: lambda containers, _: map(tuple, containers),
    DEFINED: lambda containers, keys: map(contains, containers, keys),
}
"""What plain containers say of themselves, by the kind of slot."""
_LYING: dict[str, _Loop] = {
    ITEM: lambda containers, keys: map(getitem, containers, keys),
    CELL: lambda cells, _: [cell.cell_contents for cell in cells],
    ATTRIBUTE: lambda owners, names: map(getattr, owners, names),
    VARIABLE: lambda variables, _: [variable.get(UNSET) for variable in variables],
}
"""What lies in slots that hold objects."""


class Condition:
    """Slots that are compared in one way; unless a class has a quicker one, each by itself.

    The slots of :class:`Said`, :class:`Lying` and :class:`Placed` are of one kind.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self._containers = [entry.container for entry in self.entries]
        self._keys = [entry.key for entry in self.entries]
        self._kind = self.entries[0].kind

    def holds(self) -> bool:
        """Whether all slots hold what they held."""
        return all([same(entry.value, now_in(entry)) for entry in self.entries])

    def differing(self) -> Iterator[SlotPlace]:
        """The slots that hold something else, with what lies there."""
        return _differing(self.entries)

    def first_differing(self) -> Condition | None:
        """The same condition for the first slot that holds something else; None where none is found."""
        found = next(self.differing(), None)
        if found is None:
            return None
        return self.only([next(place for place, entry in enumerate(self.entries) if entry is found.entry)])

    def is_kept(self, place: int, held: Held) -> bool:
        """Whether a slot of a dict holds what it held as long as nobody has changed the dict.

        Words of memory may be asked for it from now on.
        """
        return True

    def is_read(self, place: int, held: Held) -> bool:
        """Whether words of memory say what lies in a slot; if so, they are asked from now on."""
        return False

    def only(self, places: Sequence[int]) -> Condition:
        """The same condition for some of the slots."""
        return type(self)([self.entries[place] for place in places])


class Said(Condition):
    """Containers have as many members, the same keys or the same order as before, or still lack a key."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._said = [entry.value.value for entry in self.entries]

    @override
    def holds(self) -> bool:
        said = list(_SAID[self._kind](self._containers, self._keys))
        if said != self._said:
            return False
        return self._kind != ORDER or all([_TEXT.issuperset(map(type, keys)) for keys in said])

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return self._kind == LENGTH and held.take_length(self._containers[place], self._said[place])


class Lying(Condition):
    """Slots hold the objects and tensors that they held, or plain values that are equal to them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._values = [entry.value for entry in self.entries]  # kept alive, but for tensors
        self._identities = [
            value.identity if is_instance(value, TensorMark) else id(value) for value in self._values
        ]

    @override
    def holds(self) -> bool:
        try:
            return list(map(id, self._held())) == self._identities or self._adopt()
        except _GONE:
            return False

    @override
    def differing(self) -> Iterator[SlotPlace]:
        try:
            found = list(zip(self.entries, map(id, self._held()), self._identities, strict=True))
        except _GONE:
            return super().differing()
        return _differing(
            [entry for entry, now, was in found if now != was or is_instance(entry.value, TensorMark)]
        )

    @override
    def is_read(self, place: int, held: Held) -> bool:
        container, key = self._containers[place], self._keys[place]
        if self._kind == ITEM:
            return held.take_member(container, key, self, place)
        if self._kind == CELL:
            return held.take_cell(container, self, place)
        return self._kind == ATTRIBUTE and held.take_attribute(container, key, self._values[place])

    @override
    def only(self, places: Sequence[int]) -> Lying:
        part = type(self)([self.entries[place] for place in places])
        part._values = [self._values[place] for place in places]
        part._identities = [self._identities[place] for place in places]
        return part

    def identity(self, place: int) -> int:
        """Identity of what has to lie in a slot."""
        return self._identities[place]

    def _held(self) -> Iterable[Any]:
        return _LYING[self._kind](self._containers, self._keys)

    def _adopt(self) -> bool:
        """Take equal plain values that are other objects; False if a value really differs."""
        for place, entry in enumerate(self.entries):
            now = read(entry)
            if id(now) == self._identities[place]:
                continue
            if not same(entry.value, now):
                return False
            self._values[place], self._identities[place] = now, id(now)
        return True


class Placed(Lying):
    """Slots hold the tensors that they held, whose memory is where it was; nobody watches over these."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._addresses = [value.address for value in self._values]

    @override
    def holds(self) -> bool:
        try:
            held = list(self._held())
            return list(map(id, held)) == self._identities and list(map(_data_ptr, held)) == self._addresses
        except _GONE:
            return False

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return False


class Contents(Condition):
    """Slots hold objects whose content is what it was."""

    @override
    def is_kept(self, place: int, held: Held) -> bool:
        entry = self.entries[place]
        return not isinstance(entry.value, (Content, TensorMark)) and read(entry) is entry.value


class Plain(Condition):
    """Sets hold the plain members that they held; functions give the plain answers that they gave.

    Models have a dozen such sets (which outputs a class records, which weights are kept in float32). To mark
    each and to compare the marks takes longer than to compare their members, with their types and in order.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._were = [_plain_was(entry) for entry in self.entries]

    @override
    def holds(self) -> bool:
        try:
            return [_exactly(_plain_in(entry)) for entry in self.entries] == self._were
        except _GONE:
            return False

    @override
    def is_kept(self, place: int, held: Held) -> bool:
        return type(read(self.entries[place])) is frozenset or self._is_taken(place, held)

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return self.entries[place].kind == BULK and self._is_taken(place, held)

    def _is_taken(self, place: int, held: Held) -> bool:
        entry, was = self.entries[place], self._were[place]
        if was is None or was[0] is not set:
            return False
        return held.take_set(partial(_plain_in, entry), lambda now: _exactly(now) == was)


class Kinds(Condition):
    """Objects are of the classes that they were of, and have their attributes in the same dicts."""

    @override
    def is_read(self, place: int, held: Held) -> bool:
        entry = self.entries[place]
        if read(entry) is not entry.value:
            return False
        return held.take_table(entry.container, entry.value) if entry.key else held.take_kind(entry.container)


_IN_ORDER: tuple[tuple[type[Condition], tuple[str, ...]], ...] = (
    (Said, (LENGTH, ORDER)), (Lying, (ITEM, CELL, ATTRIBUTE, VARIABLE)), (Said, (DEFINED,)),
    (Placed, (CELL, ATTRIBUTE, VARIABLE)), (Kinds, ("",)), (Plain, ("",)), (Contents, ("",)),
)  # fmt: skip
"""All classes, in the order in which they are asked (members of a list after its length), and the kinds of
slots that each compares apart."""
_APART = frozenset({Said, Lying, Placed})


def conditions_of(entries: Iterable[Entry], watched: set[tuple[int, int]]) -> list[Condition]:
    """What has to hold of some slots.

    The tensors with the ``watched`` identities and addresses are watched elsewhere.
    """
    found = defaultdict[tuple[type[Condition], str], list[Entry]](list)
    for entry in entries:
        kind = _class_for(entry, watched)
        if kind is not None:
            found[kind, entry.kind if kind in _APART else ""].append(entry)
    groups = [(kind, found[kind, each]) for kind, kinds in _IN_ORDER for each in kinds]
    return [kind(group) for kind, group in groups if group]


def _class_for(entry: Entry, watched: set[tuple[int, int]]) -> type[Condition] | None:
    """How a slot is compared; None if nothing in it can change."""
    container, value, kind = type(entry.container), entry.value, entry.kind
    if container is Argument or value is MISSING or type(entry.key) is Itself:
        return Contents
    if container is frozenset and kind in (BULK, HELD) and _COMPARED.issuperset(map(type, entry.container)):
        return None
    if kind in (BULK, ASKED):
        return Plain if _plain_was(entry) else Contents
    if kind == DEFINED:
        return Said if container is dict else Contents
    if kind == LENGTH and has_plain_length(container):
        return Said
    if kind in (ITEM, LENGTH, ORDER) and not is_direct(container):
        return Contents
    if kind in _SAID:
        return Said if kind == LENGTH or all([type(key) is str for key in value.value]) else Contents
    if is_instance(value, TensorMark):
        known = kind == ITEM or (kind == CELL and (value.identity, value.address) in watched)
        is_plain = kind in _LYING and type(now := read(entry)) in PLAIN_TENSORS and has_memory(now)
        return Lying if known else Placed if is_plain else Contents
    if value is UNSET or is_instance(value, (Content, Position)):
        return Plain if _plain_was(entry) else Contents
    if kind == ITEM:
        return None if container is tuple else Lying
    if (kind == KIND or kind in _LYING) and read(entry) is value:
        return Kinds if kind == KIND else Lying
    return Contents


def _exactly(value: Any) -> tuple[Any, ...]:
    """A form that tells plain values from others that are equal to them; of sets in their order."""
    if type(value) in (tuple, set, frozenset):
        return type(value), [*map(type, value)], [*value]
    return type(value), value


def _plain_in(entry: Entry) -> Any:
    """The set in a slot, or the set whose members are all under guard; or the answer of a function."""
    if entry.kind == ASKED:
        return entry.container(*entry.key)
    return entry.container if entry.kind == BULK else entry.container[entry.key]


def _plain_was(entry: Entry) -> tuple[Any, ...] | None:
    """The same as it was, exactly; None if it was not plain."""
    content: Any = entry.value.value if isinstance(entry.value, Content) else None
    if entry.kind == ASKED and type(entry.key) is tuple:
        try:
            said = _exactly(_plain_in(entry))
        except _GONE:
            return None
        types = said[1] if said[0] is tuple else said[:1]
        return _exactly(content) if _EXACT.issuperset(types) else None
    if entry.kind == BULK and type(entry.container) is set:
        found = (set, [*map(type, content)], [*content])
    elif entry.kind == ITEM and type(content) is tuple and isinstance(content[-1], Members):
        found = (content[0], [kind for kind, _ in content[-1]], [member for _, member in content[-1]])
    else:
        return None
    types = {*found[1]}
    return found if found[0] in (set, frozenset) and len(types) < 2 and types.issubset(_COMPARED) else None


def _differing(entries: Iterable[Entry]) -> Iterator[SlotPlace]:
    for entry in entries:
        now = read(entry)
        if now is not entry.value and not same(entry.value, form_of(entry.value, now)):
            yield SlotPlace(entry, "", entry.value, now)
