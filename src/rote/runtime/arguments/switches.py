"""PyTorch's global switches: asked by name, or all at once as words of memory.

A dozen switches decide which kernels run; to ask them one by one takes 4 us of a replay of 32 on the host.
All but those of a thread (grad mode, autocast) lie in one object of PyTorch's that lives as long as the
process, and a table behind it. So their words are read beside those of a guard (:mod:`..fingerprint.words`),
at a nanosecond each; where one differs, the switches are asked by name.

PyTorch says where the object lies. Where the switches lie in it is known for some versions, and the values
found there have to be what the accessors say. The table's nodes are made once and never freed, and it counts
them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..fingerprint import BYTES, NOTHING, Stage, places, stage, word
from ..pytorch import ACCESSORS, SwitchPlaces, place_of_switches, sizes_of_objects

SWITCHES = tuple(ACCESSORS.values())
"""Argument-less readers of the switches, cheap enough to call at every call."""

_FIRST, _COUNT = 2, 3
"""Words of a ``std::unordered_map``: the first node, and how many there are."""

_PRECISION = 2
"""Of a node: the first word is the next node, then follow a device and an operation, half a word each."""

_MOST = 64
"""Nodes that a table of precisions may have: there are three kinds of devices, and four of operations."""


def read_switches() -> tuple[Any, ...]:
    """What the switches are."""
    return tuple([accessor() for accessor in SWITCHES])


class Switches:
    """The switches as a key has them.

    Attributes:
        words: Words that say of all switches whether one has changed since :meth:`holds` was asked.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self.words: Stage = NOTHING

    @staticmethod
    def readable() -> bool:
        """Whether their words are known."""
        return bool(_words())

    def say(self, asked: Any, answer: Any) -> bool:
        """Whether a function answers this as long as they hold."""
        return any(
            [asked is each and answer is was for each, was in zip(SWITCHES, self._values, strict=True)]
        )

    def holds(self) -> bool:
        """Whether they are as the key has them; each is asked by name."""
        if read_switches() != self._values:
            return False
        self.words = stage(_words())
        return read_switches() == self._values  # what changes from now on changes the words


def _words() -> list[int]:
    """Where the words are; none if that is not known."""
    found = _find()
    return _search(found, word(found.address + found.table, _COUNT)) if found is not None else []


@cache
def _find() -> SwitchPlaces | None:
    """Where the switches lie, if what lies there is what the accessors say."""
    found = place_of_switches() if sizes_of_objects() is not None else None
    right = found is not None and all(
        [
            name in ACCESSORS and ACCESSORS[name]() is bool(_byte(found.address, byte))
            for name, byte in found.flags
        ]
    )
    return found if right else None


@cache
def _search(at: SwitchPlaces, count: int) -> list[int]:
    """The words of the object, and the precision in each of the table's nodes."""
    found = places(at.address, range(at.first // BYTES, at.end // BYTES))
    found += places(at.address + at.table, [_COUNT])
    node = word(at.address + at.table, _FIRST)
    for _ in range(count if count <= _MOST else 0):
        if not node or node % BYTES:
            return []
        found += places(node, [_PRECISION])
        node = word(node, 0)
    return found if not node else []


def _byte(address: int, place: int) -> int:
    return word(address, place // BYTES) >> place % BYTES * 8 & 0xFF
