"""What dies with a value that is dropped, where somebody sees that."""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch

from ...base import identity, is_instance, is_own
from .classes import class_of, has_finalizer, own
from .members import keys, values

_CONTAINERS = (list, tuple, dict, deque, set, frozenset)
_MANY = 1000
_REFERENCES = 7
"""How many references an object may have that only a dropped value holds; some are of those that look."""
_SHARED = (type, types.ModuleType, types.FunctionType, types.CodeType, torch.Tensor, torch.nn.Module)
"""Types of objects that others hold, or whose watchers are PyTorch's and rote's own."""
_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size})


def seen_dying(dropped: Iterable[Any]) -> list[Any]:
    """Some values and what is held by them alone, if code is run when one of that dies; else nothing."""
    met: dict[int, Any] = {}
    left = [each for each in dropped if type(each) not in _PLAIN]
    seen = False
    while left and len(met) < _MANY:
        value = left.pop()
        if identity(value) in met or is_instance(value, _SHARED):
            continue
        met[identity(value)] = value
        seen = seen or has_finalizer(type(value)) or _is_watched(value) or _watches(value)
        left += [each for each in _parts(value) if sys.getrefcount(each) <= _REFERENCES]
    return [*met.values()] if seen else []


def _is_watched(value: Any) -> bool:
    """Whether there is a weak reference to a value, with no function of rote's to call when that dies."""
    return any([not _is_own(each.__callback__) for each in weakref.getweakrefs(value)])


def _watches(value: Any) -> bool:
    """Whether a value is a weak reference that has code run when what it leads to dies, if it lives then."""
    return is_instance(value, weakref.ref) and value.__callback__ is not None and value() is not None


def _is_own(callback: Any) -> bool:
    code = getattr(getattr(callback, "__func__", getattr(callback, "func", callback)), "__code__", None)
    return code is not None and is_own(code.co_filename)


def _parts(value: Any) -> list[Any]:
    """What a container or an object holds."""
    held = [*keys(value), *values(value)] if is_instance(value, _CONTAINERS) else []
    table = own(value, "__dict__")
    held += table.values() if type(table) is dict else ()
    held += [own(value, name) for name in class_of(type(value)).slots]
    return [each for each in held[:_MANY] if type(each) not in _PLAIN]
