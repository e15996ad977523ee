"""The making of classes: by a class statement, or by ``type(name, bases, namespace)``.

C runs the body of a class statement, and hooks of the bases, of the metaclass and of attributes. What a body
binds lies in a namespace of its own, so that is no write of the call. Hooks of attributes that a body makes
are not known before it has run: they run without being followed, which is seen.

A class is a new one in each call. So what the call reads of a class that it has made is no condition.
"""

from __future__ import annotations

from typing import Any

from ....base import identity
from ..trace import Trace
from .containers import content, methods, special

_OF_METACLASSES = ("__prepare__", "__call__", "__new__", "__init__", "mro")


def asked_or_made(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note ``type(value)``, or the making of a class, which runs hooks of its bases and of its attributes."""
    if len(args) == 1 and trace.outside.has(args[0]):
        trace.outside.kind(args[0])
        trace.seen.add(("type", identity(args[0])))
    if len(args) < 3:
        return
    bases, table = args[-2:]
    content(trace, table, inside=False)
    _made(trace, bases if issubclass(type(bases), tuple) else ())
    for each in tuple(table.values()) if type(table) is dict else ():
        methods(trace, each)
        trace.callables.run(trace.classes.read(type(each), "__set_name__"))


def stated(trace: Trace, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note a class statement: ``__build_class__(body, name, *bases, metaclass=..., **keywords)``."""
    for each in (*args, *kwargs.values()):
        trace.outside.pin(each)
    for each in args[:1]:
        trace.callables.run(each)
    bases = args[2:]
    _made(trace, bases)
    for each in bases:
        if not issubclass(type(each), type):
            special(trace, each, "__mro_entries__")
    meta = kwargs.get("metaclass", type)
    if not issubclass(type(meta), type):
        trace.call((), meta)
    for kind in (*map(type, bases), meta):
        if kind is not type and issubclass(type(kind), type) and issubclass(kind, type):
            for name in _OF_METACLASSES:
                trace.callables.run(trace.classes.read(kind, name))


def _made(trace: Trace, bases: tuple[Any, ...]) -> None:
    """Note that a class with these bases is made."""
    trace.classes.make(bases)
    for each in bases:
        if issubclass(type(each), type):
            trace.callables.run(trace.classes.read(each, "__init_subclass__"))
