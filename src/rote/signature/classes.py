"""What a walk of the state asks of the class of each instance that it meets."""

from __future__ import annotations

import types
from collections.abc import Container
from typing import Any, NamedTuple

from .origin import said_name
from .owners import is_open, is_users


class Class(NamedTuple):
    """One class.

    Attributes:
        is_open: Its instances are looked into.
        slots: The slots of its instances.
        users: It and its bases, as far as they are the user's.
    """

    is_open: bool
    slots: tuple[str, ...]
    users: tuple[type, ...]


UNSET = object()
"""What an attribute, or a context variable, is that was not set."""

DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
MADE_WITH_A_CLASS = ("__dict__", "__weakref__", "__new__", "__class_getitem__")
HOOKS_OF = {
    "_forward_hooks_with_kwargs": "_forward_hooks",
    "_forward_hooks_always_called": "_forward_hooks",
    "_forward_pre_hooks_with_kwargs": "_forward_pre_hooks",
    "_is_full_backward_hook": "_backward_hooks",
}
"""What modules keep to say something about hooks, and where the hooks are: without any it says nothing."""

_CLOSED = Class(False, (), ())


def class_of(kind: type) -> Class:
    """What is to be known of a class."""
    if not is_open(kind):
        return _CLOSED
    slots = tuple([name for cls in kind.__mro__ for name in _slots(cls)])
    return Class(True, slots, tuple([cls for cls in kind.__mro__ if is_users(cls)]))


def own(value: Any, name: str) -> Any:
    """An attribute without the ``__getattr__`` of the class, which may answer to every name, or raise."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return UNSET


def members_of(cls: type, ran: Container[types.CodeType]) -> list[tuple[str, Any]]:
    """The attributes of a class that are state: values, methods that ran, and classes defined inside.

    Args:
        cls: The class.
        ran: The code that ran.
    """
    found: list[tuple[str, Any]] = []
    for name, value in list(vars(cls).items()):
        if isinstance(value, types.FunctionType):
            noted = value.__code__ in ran
        elif isinstance(value, type):
            noted = said_name(value) == f"{said_name(cls)}.{name}"
        else:
            noted = not name.startswith(("__", "_abc_")) and not isinstance(value, DESCRIPTORS)
        if noted:
            found.append((name, value))
    return found


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple([_mangled(cls, name) for name in names if name not in ("__dict__", "__weakref__")])


def _mangled(cls: type, name: str) -> str:
    """The name of the attribute that a slot is: of a private one it has the name of the class in it."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if private else name
