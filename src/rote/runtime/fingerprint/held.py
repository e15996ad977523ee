"""What cells, lists, functions and classes hold, and the class of an object.

A cell and a function are a few words in memory, one of which is the address of what they hold. A list is its
length and the address of its members' addresses. So whether such a slot holds what it held is a question of
words (:mod:`.words`), as it is for tensors and dicts, and costs a nanosecond where asking by name takes
fifty. That matters most when the caches are cold, which they are for a caller who waits for the device after
each call: a list that is asked in Python touches its type, its methods and its members.

An address says what is held only while that is alive: the guard keeps plain values, and watches the tensors
that are read. Only lists whose length is under guard as well are read here, so that members are looked for
in memory that is still there.

A small set is its table: an address and a hash for each member; an attribute with a slot is a word of its
object. A model of transformers' reads both in each call: the fields of its outputs' classes, and what it has
registered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import CellType
from typing import Any, NamedTuple, Protocol

from ...base import InternalError
from .layout import (
    find_attributes,
    find_cell,
    find_items,
    find_lengths,
    find_sets,
    place_of_slot,
    place_of_table,
)
from .words import NEVER, Stage, expecting, places, word, words_at

_EMPTY_WITHOUT = ("__defaults__", "__kwdefaults__")
"""Attributes of functions whose word is zero while there are none."""


_OF_HEAP_TYPES, _HEAP_TYPE = ("__name__", "__qualname__"), 1 << 9
"""Attributes of classes that are words of those made by Python, and the flag of these."""

_MOST_MEMBERS = 64
"""Members up to which the table of a set is read."""


class HeldWords(Protocol):
    """Slots, and what has to lie in them."""

    def identity(self, place: int) -> int:
        """Identity of what has to lie in the slot with a number."""
        ...


class _ListHead(NamedTuple):
    """A list under guard, its length, and the words with its length and with its members' address."""

    container: list[Any]
    length: int
    length_at: int
    items_at: int


class _ReadSet(NamedTuple):
    """A set under guard: what gives it, as another one may come to lie in its place, and what compares it."""

    now: Callable[[], Any]
    is_same: Callable[[Any], bool]


class Held:
    """Slots that are read word by word."""

    def __init__(self) -> None:
        self._sets: list[_ReadSet] = []
        self._last: list[Any] = []  # the sets whose words were read last: their memory is still there
        self._cell = find_cell()
        self._attributes: dict[tuple[type, str], int | None] = {**find_attributes()}
        self._items, self._length = find_items(), find_lengths().get(list)
        self._places: list[int] = []
        self._wanted: list[int | Callable[[], int]] = []
        self._lists: dict[int, _ListHead] = {}
        self._members: list[tuple[int, int]] = []
        self._wanted_members: list[Callable[[], int]] = []

    def take_cell(self, cell: CellType, slots: HeldWords, place: int) -> bool:
        """Take on what a cell holds, one of some slots; False if cells cannot be read."""
        if self._cell is None:
            return False
        self._places += places(id(cell), [self._cell])
        self._wanted.append(partial(slots.identity, place))
        return True

    def take_attribute(self, owner: Any, name: str, value: Any) -> bool:
        """Take on an attribute, if it can be read. A function without defaults has a word of zero."""
        kind = type if isinstance(owner, type) else type(owner)
        if (kind, name) not in self._attributes:
            self._attributes[kind, name] = place_of_slot(kind, name)
        place = self._attributes[kind, name]
        if place is None or (kind is type and name in _OF_HEAP_TYPES and not owner.__flags__ & _HEAP_TYPE):
            return False
        empty = value is None and name in _EMPTY_WITHOUT
        return self._take(owner, place, 0 if empty else id(value))

    def take_kind(self, owner: Any) -> bool:
        """Take on the class of an object; False if it cannot be read."""
        return self._cell is not None and self._take(owner, 1, id(type(owner)))

    def take_table(self, owner: Any, table: Any) -> bool:
        """Take on which dict the attributes of an object lie in; False if it cannot be read."""
        place = place_of_table(type(owner))
        return place is not None and self._take(owner, place, id(table))

    def _take(self, owner: Any, place: int, wanted: int) -> bool:
        """Take on one word of an object, if it has the wanted value now."""
        at = places(id(owner), [place])
        if words_at(at) != [wanted]:
            return False
        self._places += at
        self._wanted.append(wanted)
        return True

    def take_set(self, now: Callable[[], Any], is_same: Callable[[Any], bool]) -> bool:
        """Take on the members of a small set that may be replaced by an equal one.

        Args:
            now: Gives the set.
            is_same: Whether a set has the members that it has to have, which somebody keeps alive.

        Returns:
            Whether its words can be read.
        """
        container = now()
        if find_sets() is None or type(container) is not set or len(container) > _MOST_MEMBERS:
            return False
        if not is_same(container):
            return False
        self._sets.append(_ReadSet(now, is_same))
        self._last.append(container)
        return True

    def take_length(self, container: Any, length: int) -> bool:
        """Take on the length of a list; False if it is no list, or lists cannot be read."""
        if type(container) is not list or self._items is None or self._length is None:
            return False
        head = _ListHead(container, length, self._length, self._items)
        self._lists[id(container)] = head  # pyright: ignore[reportUnknownArgumentType]
        return True

    def take_member(self, container: Any, key: Any, slots: HeldWords, place: int) -> bool:
        """Take on a member, one of some slots, of a list whose length has been taken on."""
        known = self._lists.get(id(container))
        if known is None or type(key) is not int or not 0 <= key < known.length:
            return False
        self._members.append((id(container), key))
        self._wanted_members.append(partial(slots.identity, place))
        return True

    def stages(self) -> tuple[Stage, Stage]:
        """The words of cells, functions and lists, and those of the members of lists."""
        at = list(self._places)
        words = [each if isinstance(each, int) else each() for each in self._wanted]
        starts: dict[int, int] = {}
        for key, head in self._lists.items():
            starts[key] = word(key, head.items_at)
            at += places(key, [head.length_at, head.items_at])
            words += [head.length, starts[key]]
        inside = [places(starts[key], [index])[0] for key, index in self._members]
        members = [each() for each in self._wanted_members]
        for number, found in enumerate(self._sets):
            with suppress(KeyError, IndexError, AttributeError, ValueError):  # the slot is gone
                self._last[number] = found.now()
            container = self._last[number]
            if type(container) is not set:
                return NEVER, NEVER
            head, table = _read_set(id(container))
            at += head
            inside += table
            words += words_at(head)
            members += words_at(table)
            if not found.is_same(container):  # asked after they were read: it has changed
                words[-1] = 0  # which no table lies at
        return expecting(at, words), expecting(inside, members)


def _read_set(address: int) -> tuple[list[int], list[int]]:
    """The words that say where the table of a set lies, and those of the table."""
    layout = find_sets()
    if layout is None:
        raise InternalError("the words of a set are read, and it is not known where they lie")
    mask, table = words_at(places(address, layout))
    return places(address, layout), places(table, range(2 * mask + 2))
