"""Whether two operations are one, at two lengths.

Calls that differ in whole numbers and in sizes of tensors do the same at other lengths, or do something else.
They do the same if their operations differ in nothing else either: each is the same one, at the same line, in
the same place, and takes and gives what lies in the same memory of the call.
"""

from __future__ import annotations

from typing import Any, cast

from ..storages import Token
from .host_data import HostValues
from .operands import Number, Operand
from .operation import Operation
from .results import Reference


def is_like(was: Operation, now: Operation) -> bool:
    """Whether an operation of a call is that of another one, at another length."""
    return (
        was.kind == now.kind
        and was.name == now.name
        and was.site == now.site
        and was.structure == now.structure
        and are_like(was.operands, now.operands)
        and are_like(was.named, now.named)
        and are_like(was.results, now.results)
    )


def are_like(was: Operand, now: Operand) -> bool:
    """Whether two operands or results differ in whole numbers and in how long tensors are, at most."""
    kind = type(was)
    if kind is not type(now):
        return False
    if kind is Token:
        return _look_alike(was, now)
    if kind is Number:
        return was.kind is now.kind and (was.kind is int or was.bits == now.bits)
    if kind is tuple or kind is HostValues or kind is Reference:
        one, other = cast("tuple[Any, ...]", was), cast("tuple[Any, ...]", now)
        return len(one) == len(other) and all(map(are_like, one, other))
    return bool(was == now)


def _look_alike(was: Token, now: Token) -> bool:
    return (
        was.origin == now.origin
        and was.dtype == now.dtype
        and was.on_host == now.on_host
        and len(was.shape) == len(now.shape)
    )
