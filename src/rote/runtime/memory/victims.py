"""Which recordings to release for their memory: a pure function of who holds what and what it is worth.

Memory is given back by the *region* (a chunk of the host's pool, a pool of CUDA's allocator, the storages of
one recording's outputs), and a region only when the last recording in it goes. So the choice is a set of
recordings that free something together: all that hold one region, or one alone. Of all such sets the one with
the least value for each byte it frees goes first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """A recording, as the choice sees it.

    Attributes:
        regions: The regions it has memory in.
        own: Bytes that are freed with it alone, outside all regions (its static inputs).
        value: What it is worth: operations that its recent replays saved.
        fixed: It must not be released.
    """

    regions: frozenset[Hashable]
    own: int
    value: float
    fixed: bool = False


def held(items: Iterable[Item], sizes: Mapping[Hashable, int]) -> int:
    """Bytes that recordings hold together, each region counted once."""
    found = list(items)
    regions: set[Hashable] = set().union(*(item.regions for item in found))
    return sum(item.own for item in found) + sum(sizes.get(region, 0) for region in regions)


def choose(items: Sequence[Item], sizes: Mapping[Hashable, int]) -> list[int]:
    """The set of recordings to release next, as indices; empty if no set that may go frees anything.

    No others hold their regions, whose bytes are ``sizes``.
    """
    holders = _holders(items)
    candidates = [members for members in holders.values() if len(members) > 1]
    candidates += [[index] for index in range(len(items))]
    best: list[int] = []
    least = float("inf")
    for members in candidates:
        if any(items[index].fixed for index in members):
            continue
        freed = _freed(members, items, holders, sizes)
        if freed <= 0:
            continue
        price = sum(items[index].value for index in members) / freed
        if price < least:
            best, least = members, price
    return best


def shares(items: Sequence[Item], demands: Sequence[int], sizes: Mapping[Hashable, int]) -> list[int]:
    """Bytes of each recording: its own, and a part of every region in proportion to the demands there.

    The items are all recordings that hold the regions; a demand is the bytes each would need alone.
    """
    found = [float(item.own) for item in items]
    for region, members in _holders(items).items():
        total = sum(max(demands[index], 1) for index in members)
        for index in members:
            found[index] += sizes.get(region, 0) * max(demands[index], 1) / total
    return [round(nbytes) for nbytes in found]


def _holders(items: Sequence[Item]) -> dict[Hashable, list[int]]:
    holders: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        for region in item.regions:
            holders.setdefault(region, []).append(index)
    return holders


def _freed(
    members: list[int],
    items: Sequence[Item],
    holders: Mapping[Hashable, list[int]],
    sizes: Mapping[Hashable, int],
) -> int:
    """Bytes given back when these go together: their own, and the regions nobody else holds."""
    leaving = set(members)
    freed = sum(items[index].own for index in members)
    regions: set[Hashable] = set().union(*(items[index].regions for index in members))
    for region in regions:
        if leaving.issuperset(holders[region]):
            freed += sizes.get(region, 0)
    return freed
