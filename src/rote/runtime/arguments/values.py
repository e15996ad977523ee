"""Arguments of Python's own classes that are known by their value, and tell of it without running code."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from ..objects import VALUES_BY_TEXT

_TIMES = frozenset({datetime.datetime, datetime.time})
_ZONES = frozenset({type(None), datetime.timezone})


def value_token(leaf: Any, token: Callable[[Any], tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """What an object is compared by; None if it is not known by its value. ``token`` describes a member."""
    kind = type(leaf)
    if kind in VALUES_BY_TEXT or (kind in _TIMES and type(leaf.tzinfo) in _ZONES):
        return kind, repr(leaf)
    if kind is frozenset or kind is slice:
        # Those of a set in their order, which the callable may follow.
        members = tuple(map(token, ends_of(leaf) if kind is slice else leaf))
        return None if None in members else (kind, members)
    return None


def ends_of(value: slice) -> tuple[Any, Any, Any]:
    """Where a slice begins and ends, and its step."""
    return value.start, value.stop, value.step
