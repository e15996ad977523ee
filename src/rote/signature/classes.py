"""What is asked of the class of an object that is looked into."""

from __future__ import annotations

from typing import Any, NamedTuple

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


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple([_mangled(cls, name) for name in names if name not in ("__dict__", "__weakref__")])


def _mangled(cls: type, name: str) -> str:
    """The name of the attribute that a slot is: of a private one it has the name of the class in it."""
    private = name.startswith("__") and not name.endswith("__")
    return f"_{cls.__name__.lstrip('_')}{name}" if private else name
