"""How the first difference between two operations is told to people."""

from __future__ import annotations

from typing import Any

from ....base import cut
from ..storages import Token
from .operands import Number
from .operation import Operation
from .results import Value

WIDEST = 80
"""Characters of an operand that are shown."""


def first_difference(was: Operation, now: Operation) -> str | None:
    """Say in which operand two calls of one operation differ, or None if the operation itself differs."""
    if was.name != now.name:
        return None
    pair = _descend((*was.operands, *was.named), (*now.operands, *now.named))
    if pair is None:
        return _other_value(was, now)
    return f"an operand of {now.name} was {_text(pair[0])} and is {_text(pair[1])}"


def _other_value(was: Operation, now: Operation) -> str | None:
    for before, after in zip(was.results, now.results, strict=False):
        if isinstance(before, Value) and isinstance(after, Value) and before != after:
            return f"{now.name} gave {before.value!r} and gives {after.value!r}"
    return None


def _descend(was: Any, now: Any) -> tuple[Any, Any] | None:
    if was == now:
        return None
    whole = isinstance(was, (Token, Number)) or isinstance(now, (Token, Number))
    if not whole and isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
        for before, after in zip(was, now, strict=True):
            pair = _descend(before, after)
            if pair is not None:
                return pair
    return was, now


def _text(value: Any) -> str:
    if isinstance(value, Token):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype}{list(value.shape)} tensor ({value.origin[0]} {value.origin[1]})"
    return cut(repr(value), WIDEST)
