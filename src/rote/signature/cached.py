"""What a function with a cache remembers."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from .marks import mark


def cached_in(function: Any) -> list[Any]:
    """Keys and results of a cache; of one of limited size the links are left out, which tell nothing."""
    own, found = vars(function), gc.get_referents(function)
    tables = [each for each in found if type(each) is dict and each is not own]
    held = [part for table in tables for pair in table.items() for part in pair]
    left_out = {id(each) for each in (own, function.__wrapped__, *tables)}
    return [each for each in (*found, *held) if id(each) not in left_out and not _is_link(each)]


def _is_link(value: Any) -> bool:
    """Whether something is of the cache itself, or one of its types."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__ == "functools" and kind.__name__ in (
        "_lru_list_elem",
        "_lru_cache_wrapper",
        "CacheInfo",
    )


@dataclass(frozen=True)
class Remembered:
    """What a cache has in it, in a form that can be compared.

    Attributes:
        count: How many results.
        held: Keys and results: plain values, and which objects.
    """

    count: int
    held: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.count} result{'s' if self.count != 1 else ''}"


def remembered(function: Any) -> Remembered:
    """What a cache has in it now."""
    held = [mark(each) if _is_plain(each) else id(each) for each in cached_in(function)]
    return Remembered(function.cache_info().currsize, tuple(held))


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, bytes, complex, bool, type(None)))
