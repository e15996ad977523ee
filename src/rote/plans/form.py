"""Facts as JSON, and back: each value has the type that its class says, or the file is refused."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from typing import Any, TypeVar

from .folder import PlanError

_Kind = TypeVar("_Kind")

LONGEST = 1 << 16
"""Characters of one text."""


def written(value: Any) -> bytes:
    """Facts as JSON, the same for the same facts."""
    return json.dumps(_printable(asdict(value)), sort_keys=True, ensure_ascii=True).encode("ascii")


def _printable(value: Any) -> Any:
    """A value whose texts can be read back: without what moves a terminal's cursor, and not without end."""
    if isinstance(value, str):
        return "".join([each if each.isprintable() else "?" for each in value[:LONGEST]])
    if isinstance(value, dict):
        pairs = typing.cast("dict[Any, Any]", value).items()
        return {_printable(key): _printable(each) for key, each in pairs}
    if isinstance(value, (list, tuple)):
        return [_printable(each) for each in typing.cast("list[Any]", value)]
    return value


def read(kind: type[_Kind], payload: bytes) -> _Kind:
    """Facts of a class.

    Raises:
        PlanError: It is no JSON, or something in it has another type, is missing, or is too much.
    """
    try:
        value = json.loads(payload.decode("ascii"), parse_constant=_refuse)
        return _made(kind, value)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"it is no JSON that rote writes: {type(error).__name__}") from error


def _refuse(name: str) -> Any:
    raise PlanError(f"it holds {name}, which is no number")


@cache
def _types(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _made(wanted: Any, value: Any) -> Any:
    kind: Any = wanted
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _made(next(each for each in inner if each is not type(None)), value)
    if origin is tuple and isinstance(value, list):
        return tuple([_made(inner[0], each) for each in typing.cast("list[Any]", value)])
    if origin is dict and isinstance(value, dict):
        pairs = typing.cast("dict[Any, Any]", value).items()
        return {_made(inner[0], key): _made(inner[1], each) for key, each in pairs}
    if hasattr(kind, "__dataclass_fields__") and isinstance(value, dict):
        return _instance(kind, typing.cast("dict[str, Any]", value))
    if hasattr(kind, "_fields") and isinstance(value, list):  # a named tuple
        parts = typing.cast("list[Any]", value)
        hints = [*_types(kind).values()]
        if len(parts) == len(hints):
            return kind(*[_made(hint, part) for hint, part in zip(hints, parts, strict=True)])
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 1 << 53 else None
    if kind is str and type(value) is str and len(value) <= LONGEST and value.isprintable():
        return value
    if kind in (bool, float, int) and type(value) is kind:
        return value
    raise PlanError(f"it holds a {type(value).__name__} where {kind} is expected, or a text that is none")


def _instance(kind: Any, found: dict[str, Any]) -> Any:
    known = {each.name: each for each in fields(kind)}
    needed = [name for name, each in known.items() if each.default is MISSING]
    if not found.keys() <= known.keys() or not found.keys() >= set(needed):
        raise PlanError(f"it does not have the fields of {kind.__name__}")
    hints = _types(kind)
    return kind(**{name: _made(hints[name], value) for name, value in found.items()})
