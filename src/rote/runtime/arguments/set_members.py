"""Sets that are made again with their members in the same order.

A set has its members in the order of its table. That order follows from their hashes, from the size of the
table and, where hashes collide, from who came first. The members of a dict, given all at once, make CPython
take a table with room for them; one that is added later makes a full table grow. So a set is made of a dict
and of the members behind it, and both are searched: of the first two that come out in each other's place, one
is added earlier or later, by chance, and the set is made once more.

The search ends without an order for a few sets: for some of hundreds of members, and for some from which
members were taken. A program sees the order, so calls that return such sets stay eager.
"""

from __future__ import annotations

import random
from operator import is_
from typing import Any, NamedTuple

from ..objects import MixedKeys

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_TRIES = 60
_MOST_ADDED = 20_000
"""Members that are added while an order is searched, for each size: a large set is not tried often."""
_FIRST = (0, 5, 8, 16, 32, 64, 128, 256)
"""How many members a dict has, for each size of a table: CPython makes it at least twice as large."""


class SetMembers(NamedTuple):
    """The members of a set in the order in which they are added.

    Attributes:
        at_once: How many of them are added by one dict.
        members: All of them.
    """

    at_once: int
    members: MixedKeys

    def build(self, kind: Any) -> Any:
        """Another set, or frozen set, with these members."""
        if not self.at_once:
            return kind(self.members)
        return kind(dict.fromkeys(self.members[: self.at_once])).union(self.members[self.at_once :])


def set_members(found: Any) -> SetMembers | None:
    """What makes another set in the same order; None if nothing is found, or for other than plain values."""
    held = [*found]
    if not _PLAIN.issuperset(map(type, held)):
        return None
    sizes = [size for size in _FIRST if size < len(held)]
    tried = (_searched(type(found), size, held) for size in (*sizes, len(held)))
    return next((each for each in tried if each is not None), None)


def _searched(kind: type, at_once: int, held: list[Any]) -> SetMembers | None:
    added, draw = [*held], random.Random(0)
    for _ in range(min(_TRIES, 1 + _MOST_ADDED // (1 + len(held)))):
        made = SetMembers(at_once, MixedKeys(added))
        built = [*made.build(kind)]
        if all(map(is_, built, held)):
            return made
        pair = next(pair for pair in zip(held, built, strict=True) if pair[0] is not pair[1])
        added = _moved(added, *draw.sample(pair, 2), draw)
    return None


def _moved(added: list[Any], member: Any, other: Any, draw: random.Random) -> list[Any]:
    """The members with one of them in another place: first, last, or beside the other."""
    rest = [each for each in added if each is not member]
    beside = next(place for place, each in enumerate(rest) if each is other)
    place = draw.choice((0, beside, beside + 1, len(rest)))
    return [*rest[:place], member, *rest[place:]]
