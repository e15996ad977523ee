"""Which classes were made by class statements, and which in C, whose methods are code that is not seen."""

from __future__ import annotations

import types
from typing import Generic, Protocol

_PARTS_OF_C = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    types.GetSetDescriptorType,
)
_BASES = frozenset({object, Generic, Protocol})
_BOUND_BY_PYBIND = "instancemethod"
"""The type of methods of classes that pybind11 makes, which has no name in Python."""
_OWN_ATTRIBUTES = frozenset({"__dict__", "__weakref__"})


def is_python(kind: type) -> bool:
    """Whether a class and its bases were made by class statements."""
    return not any(has_parts_in_c(cls) for cls in kind.__mro__)


def made_by(kind: type) -> type:
    """The class in C that makes the instances of a class; that is the class itself if it was made in C."""
    return next((cls for cls in kind.__mro__ if has_parts_in_c(cls)), object)


def has_parts_in_c(cls: type) -> bool:
    """Whether a class has methods or attributes of its own that were made in C."""
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
    """Whether a value is a method in C of a class that pybind11 has made."""
    return type(value).__name__ == _BOUND_BY_PYBIND and hasattr(value, "__func__")
