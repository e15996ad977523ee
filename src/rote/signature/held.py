"""What lies in closures' cells, in functions and classes, and of which class an object is.

A cell and a function are a few words in memory, one of which is the address of what they hold. So whether a
slot of them holds what it held is a question of words (:mod:`.words`), as with tensors and dicts, and costs a
nanosecond where asking by name takes fifty.

An address says what is held only as long as that is alive: the guard keeps plain values, and watches the
tensors that are read.

What does not work: to read the members of lists and the tables of sets, too. Of the calls in
``benchmarks/words.py`` either took less than 1 % off any (``nvidia-h200/2026-11-23-words.json``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CellType
from typing import Any, Protocol

from .layout import find_attributes, find_cell, place_of_table
from .words import Stage, expecting, places, words_at

_EMPTY_WITHOUT = ("__defaults__", "__kwdefaults__")
"""Attributes of functions whose word is zero while there are none."""


class Holding(Protocol):
    """Slots, and what has to lie in them."""

    def identity(self, place: int) -> int:
        """Identity of what has to lie in the slot with a number."""
        ...


class Held:
    """Slots that are read word by word."""

    def __init__(self) -> None:
        self._cell, self._attributes = find_cell(), find_attributes()
        self._places: list[int] = []
        self._wanted: list[int | Callable[[], int]] = []

    def take_cell(self, cell: CellType, slots: Holding, place: int) -> bool:
        """Take on what a cell holds, which is one of some slots; False if cells cannot be read."""
        if self._cell is None:
            return False
        self._places += places(id(cell), [self._cell])
        self._wanted.append(partial(slots.identity, place))
        return True

    def take_attribute(self, owner: Any, name: str, value: Any) -> bool:
        """Take on an attribute, if it can be read. A function without defaults has a word of zero."""
        place = self._attributes.get((type if isinstance(owner, type) else type(owner), name))
        if place is None:
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
        """Take on one word of an object, if it is what it has to be."""
        at = places(id(owner), [place])
        if words_at(at) != [wanted]:
            return False
        self._places += at
        self._wanted.append(wanted)
        return True

    def stage(self) -> Stage:
        """The words of cells, functions and objects."""
        return expecting(self._places, [each if isinstance(each, int) else each() for each in self._wanted])
