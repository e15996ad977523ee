"""Objects that hold functions without being one: static methods, properties, caches, bound methods."""

from __future__ import annotations

import functools
import types
from typing import Any

from .owners import module_of

WRAPPERS = (
    *(staticmethod, classmethod, property, functools.cached_property),
    type(functools.lru_cache(print)),
)
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
    if isinstance(value, types.MethodType):
        return True
    return _is_ours(value) and hasattr(value, "__func__") and hasattr(value, "__self__")


def _is_ours(value: Any) -> bool:
    return module_of(type(value)).startswith("rote.")
