"""How Python finds an attribute: which classes it asks, and what lies there; no code of the user's runs."""

from __future__ import annotations

import types
from collections.abc import Iterator
from threading import local
from typing import Any, NamedTuple

MISSING: Any = object()
"""What a class has under a name that it does not have."""

_IMMUTABLE = 1 << 8
_DATA = {
    types.FunctionType: False, types.WrapperDescriptorType: False, types.MethodDescriptorType: False,
    types.BuiltinFunctionType: False, types.ClassMethodDescriptorType: False, staticmethod: False,
    classmethod: False,
    property: True, types.GetSetDescriptorType: True, types.MemberDescriptorType: True,
    int: False, str: False, bool: False, float: False, type(None): False, dict: False, tuple: False,
    type: False,
}  # fmt: skip
"""Whether descriptors of a class go before what the instance has, for Python's own."""

_mro = type.__dict__["__mro__"].__get__
_namespace = type.__dict__["__dict__"].__get__
_flags = type.__dict__["__flags__"].__get__
_bases = type.__dict__["__bases__"].__get__
_module_table: Any = vars(types.ModuleType)["__dict__"].__get__


class Found(NamedTuple):
    """What a look through classes has come to."""

    passed: tuple[type, ...]  # the classes that were asked before, and do not have it
    owner: type | None  # the class that has it; None if none has
    value: Any


def find(kind: type, name: str, after: type | None = None) -> Found:
    """Look for a name in a class and its bases, or in those behind one of them, as ``super`` does."""
    order = _mro(kind)
    if after is not None and after in order:
        order = order[order.index(after) + 1 :]
    passed: list[type] = []
    for each in order:
        value = _namespace(each).get(name, MISSING)
        if value is not MISSING:
            return Found(tuple(passed), each, value)
        passed.append(each)
    return Found(tuple(passed), None, MISSING)


def namespace(kind: type) -> Any:
    """The namespace of a class, a view that is new each time."""
    return _namespace(kind)


def bases(kind: type) -> tuple[type, ...]:
    """A class and its bases, in the order in which they are asked."""
    return _mro(kind)


def first_base(kind: type) -> type | None:
    """The first of the classes that a class is derived from; None for ``object``."""
    found = _bases(kind)
    return found[0] if found else None


def subclasses(kind: type) -> tuple[type, ...]:
    """The classes that are directly derived from a class, and alive."""
    return tuple(type.__subclasses__(kind))


def special_methods(kind: type) -> Iterator[types.FunctionType]:
    """The methods in Python by which C runs an object's own code: those with two underscores on each side."""
    for name in {name for each in _mro(kind) for name in _namespace(each)}:
        value = find(kind, name).value if name[:2] == name[-2:] == "__" else None
        if type(value) is types.FunctionType:
            yield value


def can_change(kind: type) -> bool:
    """Whether names of a class can be set: those of Python's own and most of C extensions cannot."""
    return not _flags(kind) & _IMMUTABLE


def is_data(descriptor: Any) -> bool:
    """Whether a descriptor goes before what the instance has."""
    kind = type(descriptor)
    known = _DATA.get(kind)
    if known is None:
        return find(kind, "__set__").owner is not None or find(kind, "__delete__").owner is not None
    return known


def is_in_c(descriptor: Any) -> bool:
    """Whether a descriptor is a getter of C."""
    return issubclass(type(descriptor), (types.GetSetDescriptorType, types.MemberDescriptorType))


def slots(kind: type) -> list[str]:
    """Names under which instances of a class have what lies in no dict."""
    members = [pair for each in bases(kind) for pair in namespace(each).items()]
    return [name for name, value in members if isinstance(value, types.MemberDescriptorType)]


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The dict in which an object has its attributes; None if it has none."""
    if issubclass(type(value), types.ModuleType):
        return _module_table(value)
    try:
        asks = local if issubclass(type(value), local) else object
        found = asks.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if issubclass(type(found), dict) else None
