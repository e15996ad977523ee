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
    if kind is frozenset:
        members = tuple(map(token, leaf))  # in their order, which the callable may follow
        return None if None in members else (kind, members)
    return None
