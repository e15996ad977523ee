"""Facts about classes: whether their instances are read, whether they are made in C or by rote."""

from __future__ import annotations

import types
from typing import Any, Generic, NamedTuple, Protocol

from .origin import said_module
from .owners import is_open, is_users


class Class(NamedTuple):
    """One class."""

    is_open: bool  # whether its instances hold the user's state in attributes
    slots: tuple[str, ...]
    users: tuple[type, ...]  # the class and its bases that are the user's


UNSET = object()
"""The value of an attribute or context variable that is not set."""

_CLOSED = Class(False, (), ())


def class_of(kind: type) -> Class:
    """The facts about a class."""
    if not is_open(kind):
        return _CLOSED
    slots = tuple([name for cls in kind.__mro__ for name in _slots(cls)])
    return Class(True, slots, tuple([cls for cls in kind.__mro__ if is_users(cls)]))


def own(value: Any, name: str) -> Any:
    """An attribute, without the ``__getattr__`` of the class: that may answer to every name, or raise."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return UNSET


def _slots(cls: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots; private names have the class's name as a prefix."""
    named = list(vars(cls).items()) if "__slots__" in vars(cls) else []
    return tuple([name for name, slot in named if type(slot) is types.MemberDescriptorType])


_PARTS_OF_C = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    types.GetSetDescriptorType,
)
_BASES = frozenset({object, Generic, Protocol})
_BOUND_BY_PYBIND = "instancemethod"
"""The name of the type of methods that pybind11 makes; Python code cannot import the type."""
_OWN_ATTRIBUTES = frozenset({"__dict__", "__weakref__"})


def is_python(kind: type) -> bool:
    """Whether a class and all its bases were made by class statements."""
    return not any(has_parts_in_c(cls) for cls in kind.__mro__)


def made_by(kind: type) -> type:
    """The first class with parts in C among a class and its bases: it makes the instances."""
    return next((cls for cls in kind.__mro__ if has_parts_in_c(cls)), object)


def has_parts_in_c(cls: type) -> bool:
    """Whether a class itself defines methods or attributes in C."""
    if cls in _BASES:
        return False
    for name, value in list(vars(cls).items()):
        if isinstance(value, types.BuiltinFunctionType):
            if value.__self__ is cls:  # its __new__
                return True
        elif isinstance(value, _PARTS_OF_C):
            if name not in _OWN_ATTRIBUTES and value.__objclass__ is cls:
                return True
        elif is_of_pybind(value):
            return True
    return False


def is_of_pybind(value: object) -> bool:
    """Whether a value is a C method of a pybind11 class."""
    return type(value).__name__ == _BOUND_BY_PYBIND and hasattr(value, "__func__")


def is_getter_of_pybind(value: object) -> bool:
    """Whether a value is what a property of a pybind11 class calls; some have no name."""
    return is_of_pybind(value) or (type(value) is types.BuiltinFunctionType and not value.__name__)


def is_graphed(value: Any) -> bool:
    """Whether a value is a graphed callable; a traced call runs the callable that it wraps."""
    return _is_ours(value) and hasattr(value, "__wrapped__")


def is_bound_method(value: Any) -> bool:
    """Whether a value is a bound method of Python or of rote.

    The type decides: an instance with its own ``__getattr__`` may answer to every name, or raise.
    """
    if issubclass(type(value), types.MethodType):
        return True
    return _is_ours(value) and hasattr(value, "__func__") and hasattr(value, "__self__")


def _is_ours(value: Any) -> bool:
    return said_module(type(value)).startswith("rote.")


def has_finalizer(kind: type) -> bool:
    """Whether a class has Python code run when an instance dies."""
    found = [vars(each)["__del__"] for each in kind.__mro__ if "__del__" in vars(each)]
    return bool(found) and type(found[0]) is not types.WrapperDescriptorType
