"""Where in one arena each block of memory goes: a pure function of sizes and lifetimes.

A lifetime is the half-open span of operation indices ``[birth, death)`` in which a block may be read or
written. Two blocks whose lifetimes overlap must not share a byte; all others may.

Two greedy orders are tried. *Largest first* puts every block into the smallest gap that its placed
contemporaries leave, which packs best but looks at all pairs; *in time* plays allocator, with one list of
free gaps, in nearly linear time. Up to ``PAIRWISE_LIMIT`` blocks both run and the smaller arena wins; above
it only the second does, so that a recording of ten thousand temporaries is planned in milliseconds.

Optimal packing is NP-hard and not attempted: on decoders largest first ends within 10 % of the lower bound.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

ALIGNMENT = 64
PAIRWISE_LIMIT = 1500
STRETCH = 32


class Lifetime(NamedTuple):
    """One block to place: ``nbytes`` needed by operations ``birth`` up to, not including, ``death``."""

    nbytes: int
    birth: int
    death: int


class Plan(NamedTuple):
    """An offset per block, in the order given, and the arena's size in bytes."""

    offsets: tuple[int, ...]
    nbytes: int


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment that the CPU allocator gives every tensor."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def arrange(blocks: Sequence[Lifetime]) -> Plan:
    """Give every block an aligned offset such that no two live blocks overlap.

    Args:
        blocks: Sizes in bytes and lifetimes. Blocks without bytes or without a lifetime get offset 0.
    """
    needed = [n for n, block in enumerate(blocks) if block.nbytes > 0 and block.death > block.birth]
    best, most = _in_time(blocks, needed)
    if len(needed) <= PAIRWISE_LIMIT and best.nbytes > most:
        best = min(best, _largest_first(blocks, needed), key=_size)
    return best


def _size(plan: Plan) -> int:
    return plan.nbytes


def _largest_first(blocks: Sequence[Lifetime], needed: Sequence[int]) -> Plan:
    offsets = [0] * len(blocks)
    placed = _Placed()
    total = 0
    for n in sorted(needed, key=lambda n: (-aligned(blocks[n].nbytes), blocks[n].birth)):
        block, size = blocks[n], aligned(blocks[n].nbytes)
        offset = _smallest_gap(placed.near(block), block, size)
        placed.add(block, offset, size)
        offsets[n] = offset
        total = max(total, offset + size)
    return Plan(tuple(offsets), total)


class _Placed:
    """Blocks that have a place, as ``(offset, end, birth, death)``, by the stretches of time they live in.

    Most blocks die young: only few of a thousand have to be looked at to place another one.
    """

    def __init__(self) -> None:
        self._stretches: defaultdict[int, list[tuple[int, int, int, int]]] = defaultdict(list)

    def add(self, block: Lifetime, offset: int, size: int) -> None:
        """Put a block into every stretch that it lives in."""
        for stretch in _stretches_of(block):
            insort(self._stretches[stretch], (offset, offset + size, block.birth, block.death))

    def near(self, block: Lifetime) -> Sequence[tuple[int, int, int, int]]:
        """All that live at a time at which this one does, and some others, by offset."""
        lists = [self._stretches[stretch] for stretch in _stretches_of(block)]
        return lists[0] if len(lists) == 1 else sorted(set(chain.from_iterable(lists)))


def _stretches_of(block: Lifetime) -> range:
    return range(block.birth // STRETCH, (block.death - 1) // STRETCH + 1)


def _smallest_gap(placed: Sequence[tuple[int, int, int, int]], block: Lifetime, size: int) -> int:
    reached, best, best_gap = 0, -1, 0
    for offset, end, birth, death in placed:
        if death <= block.birth or birth >= block.death:
            continue
        gap = offset - reached
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = reached, gap
        if end > reached:
            reached = end
    return reached if best < 0 else best


def _in_time(blocks: Sequence[Lifetime], needed: Sequence[int]) -> tuple[Plan, int]:
    """The plan, and the lower bound: the most bytes that were taken at once."""
    arena = _FreeList()
    offsets = [0] * len(blocks)
    sizes = [aligned(block.nbytes) for block in blocks]
    births = sorted([(blocks[n].birth, -blocks[n].nbytes, n) for n in needed])
    deaths = sorted([(blocks[n].death, n) for n in needed])
    dead = live = most = 0
    for birth, _, n in births:
        while deaths[dead][0] <= birth:
            gone = deaths[dead][1]
            arena.give_back(offsets[gone], sizes[gone])
            live -= sizes[gone]
            dead += 1
        offsets[n] = arena.take(sizes[n])
        live += sizes[n]
        most = max(most, live)
    return Plan(tuple(offsets), arena.top), most


class _FreeList:
    """Gaps below ``top``, by offset, never adjacent to each other."""

    def __init__(self) -> None:
        self.top = 0
        self._gaps: list[tuple[int, int]] = []  # (offset, size)

    def take(self, size: int) -> int:
        fitting = [(gap, offset) for offset, gap in self._gaps if gap >= size]
        if fitting:
            gap, offset = min(fitting)
            self._gaps.remove((offset, gap))
            if gap > size:
                insort(self._gaps, (offset + size, gap - size))
            return offset
        offset = self.top
        if self._gaps and sum(self._gaps[-1]) == self.top:
            offset = self._gaps.pop()[0]
        self.top = offset + size
        return offset

    def give_back(self, offset: int, size: int) -> None:
        insort(self._gaps, (offset, size))
        at = self._gaps.index((offset, size))
        if at + 1 < len(self._gaps) and offset + size == self._gaps[at + 1][0]:
            size += self._gaps.pop(at + 1)[1]
        if at and sum(self._gaps[at - 1]) == offset:
            at, offset, size = at - 1, self._gaps[at - 1][0], size + self._gaps.pop(at - 1)[1]
        self._gaps[at] = (offset, size)
