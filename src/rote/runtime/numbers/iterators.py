"""Iterators that replays advance, as the call does: each item is drawn, as a number is from a generator.

A replay asks for the items when it begins. If the recording does not answer the call, the iterator goes back
to where it was, so only such are here that can: a counter by ones, an iterator over a list or a tuple, a
cycle behind its first turn, which goes back by going on, and ``zip`` and ``enumerate`` of those. None
of them runs code of the user's.

Where a counter is lies in its memory, as Python shows it in the counter's text. That was tried with CPython
3.11 to 3.13; where it does not lie there, counters are not advanced.

What does not work: to copy an iterator, take items from the copy, and advance the iterator at the end. A
cycle in its first turn shares what it keeps with its copy, and since Python 3.14 there is none. Nor ``zip``
over two ways to one iterator.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import operator
from functools import cache
from typing import Any

from ...base import identity

_OVER = frozenset({type(iter([])), type(iter(()))})
ITERATORS = _OVER | {itertools.count, itertools.cycle, zip, enumerate}
"""Types of those that may go back."""
_LONGEST = 64
"""Items of a cycle; to look where it is takes a turn."""
_LARGEST = 1 << 60
_DEEPEST = 3
_HEAD = object.__basicsize__


def can_go_back(value: Any, depth: int = _DEEPEST) -> bool:
    """Whether it is an iterator of C that can be advanced, and set back to where it was."""
    kind = type(value)
    if kind is itertools.count:
        return _place_of(value) is not None
    if kind is itertools.cycle:
        return bool(_items_of(value))
    if kind in (zip, enumerate):
        parts = _parts_of(value)
        apart = len({identity(each) for each in parts}) == len(parts)
        return bool(depth and parts and apart) and all([can_go_back(each, depth - 1) for each in parts])
    return kind in _OVER


def has_next(iterator: Any) -> bool:
    """Whether it has an item; one that was asked behind its last item never goes back."""
    if type(iterator) in _OVER:
        return operator.length_hint(iterator) > 0
    return all(map(has_next, _parts_of(iterator))) if type(iterator) in (zip, enumerate) else True


def standing(iterator: Any) -> Any:
    """Where it is; two of these are equal if it is at the same place."""
    kind = type(iterator)
    if kind is itertools.count:
        return _place_of(iterator)
    if kind is itertools.cycle:
        return _Turn([next(iterator) for _ in range(len(_items_of(iterator)))])
    if kind in _OVER:
        return _next_of(iterator)
    own = (_index(iterator).value,) if kind is enumerate else ()
    return own + tuple(map(standing, _parts_of(iterator)))


def set_back(iterator: Any, place: Any) -> None:
    """Set it to where it was."""
    kind = type(iterator)
    if kind is itertools.count:
        _index(iterator).value = place
    elif kind is itertools.cycle:
        while standing(iterator) != place:
            next(iterator)
    elif kind in _OVER:
        iterator.__setstate__(place)
    else:
        places = place
        if kind is enumerate:
            _index(iterator).value, *places = place
        for part, each in zip(_parts_of(iterator), places, strict=True):
            set_back(part, each)


class _Turn:
    """The items of a cycle, from the next one on."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Turn) and list(map(identity, self._items)) == list(
            map(identity, other._items)
        )

    __hash__ = None  # type: ignore[assignment]


def _parts_of(iterator: Any) -> tuple[Any, ...]:
    """The iterators over which another one goes."""
    found = iterator.__reduce__()[1]
    return found if type(iterator) is zip else found[:1]


def _next_of(iterator: Any) -> int:
    """The index of the next item; -1 behind the last one."""
    state = iterator.__reduce__()[2:]
    return state[0] if state else -1


def _items_of(cycle: Any) -> list[Any]:
    """The items of a cycle behind its first turn; empty in that, and if there are many."""
    held = [each for each in gc.get_referents(cycle) if not isinstance(each, type)]
    known = len(held) == 1 and type(held[0]) is list and len(held[0]) <= _LONGEST
    return held[0] if known else []


def _place_of(counter: Any) -> int | None:
    """The next number of a counter by ones; None if it does not lie where it is looked for."""
    text = repr(counter)[len("count(") : -1]
    number = int(text) if text.removeprefix("-").isdecimal() else _LARGEST
    known = abs(number) < _LARGEST and _is_tried() and _index(counter).value == number
    return number if known else None


def _index(iterator: Any) -> Any:
    """The number that a counter or an enumeration gives next, in its memory."""
    return ctypes.c_ssize_t.from_address(id(iterator) + _HEAD)


@cache
def _is_tried() -> bool:
    """Whether numbers lie there, and can be set."""
    counter, pairs = itertools.count(7), enumerate("abc", 11)
    if _index(counter).value != 7 or _index(pairs).value != 11:
        return False
    for each in (counter, pairs):
        next(each)
    if _index(counter).value != 8 or _index(pairs).value != 12:
        return False
    _index(counter).value, _index(pairs).value = 3, 5
    return [next(counter), next(counter), repr(counter), next(pairs)] == [3, 4, "count(5)", (5, "b")]
