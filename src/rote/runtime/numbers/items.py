"""What a loop, ``zip`` or ``list`` takes from an array that is followed: its numbers one by one.

An iterator of numpy's gives a number when it is asked, as the array holds it then. So does one of these, and
says how the number was computed. Only loops have one, and iterators of Python's that hand on what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .arrays import is_array

MOST_ITEMS = 64
"""Numbers of an array that are followed one by one."""
_OF_NUMPY: type = type(iter(numpy.zeros(1)))
OVER_ITEMS = frozenset({_OF_NUMPY, zip, enumerate})
"""Types of what may go over the numbers of arrays."""
Item = Callable[[Any, int], Any]
"""Gives a number of an array, and follows it."""


def gives_items(array: Any) -> bool:
    """Whether an array gives numbers, and few."""
    return is_array(array) and array.ndim == 1 and array.dtype.kind != "b" and array.size <= MOST_ITEMS


class FollowedItems:
    """An iterator over the numbers of an array."""

    __slots__ = ("_array", "_item", "_next")

    def __init__(self, item: Item, array: Any) -> None:
        self._item, self._array, self._next = item, array, 0

    def __iter__(self) -> FollowedItems:
        return self

    def __next__(self) -> Any:
        index = self._next
        if index >= len(self._array):
            raise StopIteration
        self._next = index + 1
        return self._item(self._array, index)


def iterated(value: Any, arrays: Sequence[Any], item: Item) -> tuple[Any, list[Any]]:
    """What stands for something that goes over arrays, or was made of one; and of which arrays that is so."""
    kind = type(value)
    if kind is list or kind is tuple:
        found = [*FollowedItems(item, arrays[0])]
        if kind is tuple:
            return tuple(found), [arrays[0]]
        value[:] = found
        return value, [arrays[0]]
    if kind is numpy.ndarray:  # it is unpacked
        return FollowedItems(item, value), [value]
    if kind is _OF_NUMPY:
        return _over(value, arrays, item)
    if kind not in (zip, enumerate):
        return value, []
    _, parts, *state = value.__reduce__()
    pairs = [_over(each, arrays, item) for each in parts]
    made = [one for one, _ in pairs]
    known = [each for _, found in pairs for each in found]
    return (enumerate(*made) if kind is enumerate else zip(*made, strict=bool(state and state[0]))), known


def _over(value: Any, arrays: Sequence[Any], item: Item) -> tuple[Any, list[Any]]:
    """An iterator over the numbers of an array, in the place of numpy's own."""
    if type(value) is _OF_NUMPY:
        _, given, *_ = value.__reduce__()
        for each in arrays:
            if given and given[0] is each:
                return FollowedItems(item, each), [each]
    return value, []
