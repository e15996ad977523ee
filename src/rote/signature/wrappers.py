"""What stands for other objects: static methods, properties, caches, bound methods, views, references."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

from .origin import said_module

WRAPPERS = (
    *(staticmethod, classmethod, property, functools.cached_property),
    type(functools.lru_cache(print)),
)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_PARTS = ("__wrapped__", "__func__", "fget", "fset", "func")


def wrapped_functions(wrapper: Any) -> list[types.FunctionType]:
    """The Python functions in one of :data:`WRAPPERS`."""
    parts = [getattr(wrapper, name, None) for name in _PARTS]
    return [part for part in parts if isinstance(part, types.FunctionType)]


def is_graphed(value: Any) -> bool:
    """Whether a value is a graphed callable: what it wraps is what runs when a graphed one calls it."""
    return _is_ours(value) and hasattr(value, "__wrapped__")


def is_bound_method(value: Any) -> bool:
    """Whether a value is a bound method, Python's or ours.

    Asked by type: an instance with a ``__getattr__`` of its own may answer to every name, or raise.
    """
    if issubclass(type(value), types.MethodType):
        return True
    return _is_ours(value) and hasattr(value, "__func__") and hasattr(value, "__self__")


def stands_for(value: Any) -> tuple[Any, ...] | None:
    """What an object has to give to who looks at it, and is nothing but; None for all else.

    Bound methods, graphed callables, weak references, views of dicts.
    """
    if is_bound_method(value):
        return value.__self__, value.__func__
    if is_graphed(value):
        return (value.__wrapped__,)
    if isinstance(value, weakref.ref):
        return (value(),)
    return (value.mapping,) if isinstance(value, _VIEWS) else None


def _is_ours(value: Any) -> bool:
    return said_module(type(value)).startswith("rote.")
