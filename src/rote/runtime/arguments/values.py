"""Arguments of Python's own classes that are known by their value, and tell of it without running code."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import uuid
from collections.abc import Callable
from typing import Any

import torch

_SAME_TEXT = frozenset({
    decimal.Decimal, fractions.Fraction, datetime.date, datetime.timedelta, uuid.UUID, torch.finfo,
    torch.iinfo, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
})  # fmt: skip
"""Objects of these have the same text if, and only if, they are alike (``Decimal("1.0")`` and
``Decimal("1.00")``, which compare equal, are not)."""
_TIMES = frozenset({datetime.datetime, datetime.time})
_ZONES = frozenset({type(None), datetime.timezone})


def value_token(leaf: Any, token: Callable[[Any], tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """What an object is compared by; None if it is not known by its value. ``token`` describes a member."""
    kind = type(leaf)
    if kind in _SAME_TEXT or (kind in _TIMES and type(leaf.tzinfo) in _ZONES):
        return kind, repr(leaf)
    if kind is frozenset:
        members = tuple(map(token, leaf))  # in their order, which the callable may follow
        return None if None in members else (kind, members)
    return None
