"""The members of containers, read by the methods of the builtin class.

A subclass may compute the results of ``table[key]``, ``len`` and iteration: transformers' table of
activations makes a new module at each read, a ``defaultdict`` makes a missing value. State is what the
container itself holds, and a look at it must change nothing.
"""

from __future__ import annotations

import gc
from collections import OrderedDict, deque
from types import MappingProxyType
from typing import Any

from .classes import Itself, key_of

_BUILTIN: tuple[type, ...] = (OrderedDict, dict, list, tuple, deque, frozenset, set)
_BUILTINS = frozenset(_BUILTIN)
_READING = ("__getitem__", "__len__", "__iter__")
_GONE: Any = object()


def is_direct(kind: type) -> bool:
    """Whether ordinary reads of a container of this class return what it holds."""
    if kind in _BUILTINS:
        return True
    base = _builtin(kind)
    if base is kind:
        return True
    same = all(getattr(kind, name, None) is getattr(base, name, None) for name in _READING)
    return same and not hasattr(kind, "__missing__")


def has_plain_length(kind: type) -> bool:
    """Whether ``len`` of a container of this class is its number of members."""
    base = _builtin(kind)
    return kind is base or getattr(kind, "__len__", None) is getattr(base, "__len__", None)


def length(container: Any) -> int:
    """The number of members."""
    return _builtin(type(container)).__len__(container)


def keys(container: Any) -> tuple[Any, ...]:
    """The keys of a mapping, or the members of any other container, in order."""
    return tuple(_builtin(type(container)).__iter__(container))


def member(container: Any, key: Any) -> Any:
    """The member under a key or at a position.

    Raises:
        KeyError: There is no such key.
        IndexError: There is no such position.
    """
    kind = type(container)
    if type(key) is Itself:
        return _found(container, key)
    if kind is dict or kind is list:  # the common types, for speed
        return container[key]
    if not isinstance(container, dict):
        return _builtin(kind).__getitem__(container, key)
    found = dict.get(container, key, _GONE)  # does not call __missing__
    if found is _GONE:
        raise KeyError(key)
    return found


def has(container: Any, key: Any) -> bool:
    """Whether a mapping has a key, or another container a member."""
    if type(key) is Itself:
        return any([each is key.value for each in dict.keys(container)])
    return _builtin(type(container)).__contains__(container, key)


def _found(mapping: Any, key: Itself) -> Any:
    """The member under a key that is looked for without asking who is equal to it.

    Raises:
        KeyError: There is no such key.
    """
    for held, value in dict.items(mapping):
        if held is key.value:
            return value
    raise KeyError(key)


def items(container: Any) -> tuple[tuple[Any, Any], ...]:
    """The members of a mapping with their keys, in order."""
    return tuple(_builtin(type(container)).items(container))


def slots(mapping: Any) -> tuple[tuple[Any, Any], ...]:
    """The members of a mapping with their keys, in order, as rote's own tables have the keys."""
    return tuple([(key_of(key), value) for key, value in items(mapping)])


def values(container: Any) -> tuple[Any, ...]:
    """The members, without their keys, in order."""
    return (
        tuple(_builtin(type(container)).values(container)) if isinstance(container, dict) else keys(container)
    )


def refill(container: Any, keys: tuple[Any, ...] | None, values: Any) -> None:
    """Replace all members of a container; ``keys`` is None for a list and a set."""
    builtin = _builtin(type(container))
    builtin.clear(container)
    if keys is None:
        add = "update" if isinstance(container, set) else "extend"
        getattr(builtin, add)(container, values)
    for key, value in zip(keys or (), values, strict=False):
        put(container, key, value)


def put(container: Any, key: Any, value: Any) -> None:
    """Set the value of an existing slot."""
    _builtin(type(container)).__setitem__(container, key.value if type(key) is Itself else key, value)


def _builtin(kind: type) -> Any:
    """The builtin class that a container class derives from, or the class itself."""
    if kind in _BUILTINS:
        return kind
    return next((base for base in _BUILTIN if issubclass(kind, base)), kind)


def behind(view: MappingProxyType[Any, Any]) -> Any:
    """The mapping that a read-only view shows, such as the namespace of a class."""
    return gc.get_referents(view)[0]
