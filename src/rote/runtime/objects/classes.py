"""Facts about classes: whether their instances are read, made in C or by rote; how they are told apart."""

from __future__ import annotations

import types
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol

import torch

from .origin import said_module, said_name
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


_PARTS_OF_C = frozenset({
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
})  # fmt: skip
_PARTS_OF_PYTHON = frozenset(
    {types.FunctionType, str, tuple, type(None), property, classmethod, staticmethod}
)
"""Types of most attributes of classes; none has methods in C."""
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
    parts = [each for each in list(vars(cls).items()) if type(each[1]) not in _PARTS_OF_PYTHON]
    for name, value in parts:
        if type(value) is types.BuiltinFunctionType:
            if value.__self__ is cls:  # its __new__
                return True
        elif type(value) in _PARTS_OF_C:
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


_HASHES = frozenset({object.__hash__, Enum.__hash__})
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)
_HASHES_OF_OTHERS = (Enum.__hash__, torch.Tensor.__hash__)
"""Methods of Python's and PyTorch's by which objects are hashed that are what they are."""
_OF_TEXT = "<string>"
"""The file of code that ``dataclasses`` makes."""
_TEXTS = (str, bytes, int, float, complex)
"""Types whose own methods write what a class derived from them holds."""
DEEPEST = 64
"""Levels of tuples in tuples that are looked into: a chain of them may be as long as the stack."""
_WRITTEN = (
    *_TEXTS, bool, range, type, *map(type, (None, ..., NotImplemented)), types.FunctionType,
    types.BuiltinFunctionType, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip


class Itself:
    """Stands for an object in what is compared, where its class says of others that they are equal to it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Itself and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return text_of(self.value)


def tells_itself(kind: type[Any]) -> bool:
    """Whether instances of a class are equal to themselves alone, and no code of the user's says so."""
    return kind.__eq__ is object.__eq__ and kind.__hash__ in _HASHES


def is_hashed_in_c(key: Any, depth: int = 0) -> bool:
    """Whether no code of the user's runs where a key is looked for in a dict."""
    kind = type(key)
    if kind is tuple or kind is frozenset:
        return depth < DEEPEST and all([is_hashed_in_c(each, depth + 1) for each in key])
    hashes: Any = kind.__hash__
    known = issubclass(type(hashes), _IN_C) or any([hashes is each for each in _HASHES_OF_OTHERS])
    return (known and issubclass(type(kind.__eq__), _IN_C)) or _is_hashed_by_fields(key, hashes, depth)


def _is_hashed_by_fields(key: Any, hashes: Any, depth: int) -> bool:
    """Whether an object is a frozen dataclass: the code that it is hashed and compared by asks its fields."""
    both, table = (hashes, type(key).__eq__), own(key, "__dict__")
    of_text = [type(each) is types.FunctionType and each.__code__.co_filename == _OF_TEXT for each in both]
    if table is UNSET or not (is_dataclass(key) and all(of_text)):
        return False
    return depth < DEEPEST and all([is_hashed_in_c(each, depth + 1) for each in table.values()])


def key_of(key: Any) -> Any:
    """The key of a dict in rote's own tables, where no code of the user's is to run."""
    return key if type(key) is str or type(key) is int or is_hashed_in_c(key) else Itself(key)


def text_of(value: Any, depth: int = 0) -> str:
    """A value as the user would write it; an object is its class, since no code of the user's runs here."""
    kind = type(value)
    if kind is str or kind is int or kind is Itself or any([kind is each for each in _WRITTEN]):
        return repr(value)
    if kind is tuple:
        members = [text_of(each, depth + 1) for each in value] if depth < DEEPEST else ["..."]
        return f"({', '.join(members)}{',' * (len(value) == 1)})"
    if kind is slice:
        return f"slice{text_of((value.start, value.stop, value.step), depth + 1)}"
    name = said_name(kind).rpartition(".")[2]
    if issubclass(kind, Enum):
        return f"<{name}.{own(value, '_name_')}: {text_of(own(value, '_value_'), depth + 1)}>"
    base = next((each for each in _TEXTS if issubclass(kind, each)), None)
    return f"<{name}>" if base is None else f"{name}({base.__repr__(value)})"
