"""The contents of a function's cache (``functools.lru_cache``)."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import torch

from ...base import bits_of

_PLAIN = (int, float, str, bytes, complex, bool, type(None))
_MARK = object()
"""Stands for the object that separates keywords from other arguments in a key."""


def asked_key(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The key under which a cache keeps the result of a call; None if it cannot be told."""
    given = (*args, *kwargs.values())
    if not all([_is_simple(each) for each in given]):
        return None
    named = [_MARK, *[part for pair in kwargs.items() for part in pair]] if kwargs else []
    if function.cache_parameters()["typed"]:
        return (*args, *named, *map(type, given))
    return args[0] if not named and len(args) == 1 and type(args[0]) in (int, str) else (*args, *named)


def is_full(function: Any) -> bool:
    """Whether a new result replaces another one of the cache, depending on the order of earlier calls."""
    info = function.cache_info()
    return info.maxsize is not None and info.currsize >= info.maxsize


def _is_simple(value: Any) -> bool:
    """Whether a cache finds a value by plain equality or by identity, without the user's code."""
    if type(value) in (tuple, torch.Size):
        return all(map(_is_simple, value))
    return _is_equal(value) or type(value).__hash__ is object.__hash__


def _is_equal(value: Any) -> bool:
    return _is_plain(value) or type(value) in (torch.dtype, torch.device)


def _is_same(key: Any, asked: Any) -> bool:
    if asked is _MARK:
        return type(key) is object
    if isinstance(key, tuple) and isinstance(asked, tuple):  # a named tuple is equal to one without names
        return tuple.__len__(key) == len(asked) and all(map(_is_same, tuple.__iter__(key), asked))
    may_be = _is_equal(asked) and isinstance(key, (*_PLAIN, torch.dtype, torch.device))
    return key is asked or (may_be and key == asked)


def _pairs_in(function: Any) -> list[tuple[Any, Any]]:
    """Keys and results; a cache of limited size refers to the key, result and type of each link in turn."""
    found, own = gc.get_referents(function), vars(function)
    links = [place for place, each in enumerate(found) if isinstance(each, type) and _is_link(each)]
    pairs = [(found[place - 2], found[place - 1]) for place in links if place >= 2]
    tables = [each for each in found if type(each) is dict and each is not own]
    return [*pairs, *[pair for table in tables for pair in table.items() if not _is_link(pair[1])]]


def cached_in(function: Any, asked: Any = None) -> list[Any]:
    """Keys and results of a cache, or only the results under one key (:func:`asked_key`)."""
    if asked is not None:
        return [result for key, result in _pairs_in(function) if _is_same(key, asked)]
    own, found = vars(function), gc.get_referents(function)
    tables = [each for each in found if type(each) is dict and each is not own]
    held = [part for table in tables for pair in table.items() for part in pair]
    left_out = {id(each) for each in (own, function.__wrapped__, *tables)}
    return [each for each in (*found, *held) if id(each) not in left_out and not _is_link(each)]


def table_of(function: Any, asked: Any = None) -> dict[Any, Any] | None:
    """The dict that changes with whatever a cache keeps now (:func:`remembered`).

    None if there is no such dict, or if it is not all: each hit changes the order in which a cache of limited
    size lets go of several results.
    """
    own, size = vars(function), function.cache_parameters()["maxsize"]
    tables = [each for each in gc.get_referents(function) if type(each) is dict and each is not own]
    ordered = asked is None and size is not None and size > 1
    return tables[0] if len(tables) == 1 and not ordered else None


def _is_link(value: Any) -> bool:
    """Whether a value is an internal object of the cache, or the class of one."""
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__ == "functools" and kind.__name__ in (
        "_lru_list_elem",
        "_lru_cache_wrapper",
        "CacheInfo",
    )


@dataclass(frozen=True)
class Remembered:
    """The contents of a cache, in a form that can be compared."""

    count: int
    held: tuple[Any, ...]  # keys and results: plain values with their types, identities of other objects
    full: bool  # each new result replaces the least recently used one

    def __str__(self) -> str:
        return f"{self.count} result{'s' if self.count != 1 else ''}" + (" and full" if self.full else "")


def remembered(function: Any, asked: Any = None) -> Remembered:
    """The contents of a cache now, or the results under one key."""
    held = [_form(each) for each in cached_in(function, asked)]
    count = function.cache_info().currsize if asked is None else len(held)
    return Remembered(count, tuple(held), is_full(function))


def _form(value: Any) -> Any:
    if type(value) in (float, complex):
        return type(value), bits_of(value)
    return (type(value), value) if _is_plain(value) else id(value)


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN
