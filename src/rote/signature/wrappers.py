"""Which objects stand for functions: bound methods, graphed callables."""

from __future__ import annotations

import types
from typing import Any

from .origin import said_module


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


def _is_ours(value: Any) -> bool:
    return said_module(type(value)).startswith("rote.")
