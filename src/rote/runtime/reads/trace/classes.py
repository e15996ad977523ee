"""What a traced call reads of classes: their attributes, their bases, and which of them it has made."""

from __future__ import annotations

import gc
from functools import _lru_cache_wrapper, partial
from operator import attrgetter, itemgetter, methodcaller
from types import BuiltinFunctionType, MethodWrapperType
from typing import Any

from ....base import identity
from ...objects import Content, DefinedOperators, said_module, said_name
from ...state import ATTRIBUTE, ITEM, OPERATORS
from ..table import is_nobody, lookup
from .kinds import is_compilers
from .outside import Outside

_BOUND = frozenset({BuiltinFunctionType, MethodWrapperType})
"""Types of functions in C that are no method of the class in which they lie."""
_CALLING = frozenset({partial, itemgetter, attrgetter, methodcaller, _lru_cache_wrapper})
"""Types of callables in C that look into what they are given, or into what they hold."""
_DEPENDS_ON_ARGUMENTS = frozenset({"pure", "none", "fixed"})
SPECIAL = "special"
"""Marks classes whose special methods are noted."""


class Classes:
    """The classes that one call looks into; what was ``seen`` by way of them is forgotten if one changes.

    Attributes:
        tables: Objects outside whose class and whose table of attributes are noted: that table, by identity.
    """

    def __init__(self, outside: Outside, seen: set[Any]) -> None:
        self._outside = outside
        self._seen = seen
        self.tables: dict[int, dict[str, Any]] = {}
        self._namespaces: dict[type, dict[str, Any]] = {}
        self._subclasses: dict[int, tuple[type, ...]] = {}  # of bases, before the call made its first one
        self._slots: dict[tuple[type, str, type | None], Any] = {}  # as they were looked up
        self._found: dict[tuple[type, str], Any] = {}  # the same, of which nothing is read

    def make(self, bases: tuple[Any, ...]) -> None:
        """A class is about to be made; those that the first base has by now were there before.

        They are held until the call is over, so that no other class gets the identity of one.
        """
        base = bases[0] if bases else object
        if issubclass(type(base), type) and identity(base) not in self._subclasses:
            self._subclasses[identity(base)] = lookup.subclasses(base)

    def has_made(self, kind: type) -> bool:
        """Whether the call has made a class, by a class statement or by ``type(name, bases, namespace)``."""
        if not self._subclasses or self._outside.has(kind):
            return False
        base = lookup.first_base(kind)
        before = self._subclasses.get(identity(base)) if base is not None else None
        return before is not None and not any(each is kind for each in before)

    def namespace(self, kind: type) -> dict[str, Any]:
        """The dict behind the namespace of a class: views of it are new each time.

        The class is outside, unless the call has made it; nothing that is in it is a condition then.
        """
        found = self._namespaces.get(kind)
        if found is None:
            found = self._namespaces[kind] = gc.get_referents(lookup.namespace(kind))[0]
            if self.has_made(kind):
                self._outside.slots.own.add(identity(found))
                self._outside.hold(found)
                return found
            self._outside.find(kind, None, said_name(kind))
            if lookup.can_change(kind):
                self._outside.read(ATTRIBUTE, kind, "__mro__", lookup.bases(kind), ".__mro__")
        return found

    def read_operators(self, kind: type) -> None:
        """Note what a class defines itself for operators: C looks it up, where no note says so."""
        table = self.namespace(kind)
        self._outside.read(
            OPERATORS, table, None, Content(DefinedOperators.of(table)), " (its operators)", kind
        )

    def look_up(self, kind: type, name: str) -> Any:
        """What a class has under a name, or MISSING; that is no read."""
        value = self._found.get((kind, name), self)
        if value is self:
            value = self._found[kind, name] = lookup.find(kind, name).value
        return value

    def read(self, kind: type, name: str, after: type | None = None) -> Any:
        """Note what a class has under a name, itself or from a base; returns it, or MISSING."""
        slot = (kind, name, after)
        value = self._slots.get(slot, self)
        if value is self:
            value = self._slots[slot] = self._read(kind, name, after)
        return value

    def _read(self, kind: type, name: str, after: type | None) -> Any:
        found, outside = lookup.find(kind, name, after), self._outside
        owner = found.owner
        if owner is not None and is_compilers(said_module(owner)):
            return found.value
        if owner is not None and lookup.can_change(owner) and name.startswith("__") and name.endswith("__"):
            self._special(owner, name, found.value)
        for passed in found.passed:
            if lookup.can_change(passed):
                outside.absent(self.namespace(passed), name, f".{name}", passed)
        if owner is not None:
            table = self.namespace(owner)
            if lookup.can_change(owner):
                outside.read(ITEM, table, name, found.value, f".{name}", owner)
            else:
                outside.find(found.value, owner, f".{name}")
        return found.value

    def _special(self, owner: type, name: str, value: Any) -> None:
        """Refuse a special method that is no code of the class's, but C's about something else.

        C calls it with what no note says. Where the call itself does (``__call__``), it is noted.
        """
        rows, running = self._outside.running.rows, self._outside.running
        value = value.__func__ if issubclass(type(value), (staticmethod, classmethod)) else value
        kind = type(value)
        if kind in _BOUND:
            whose: Any = value.__self__
            if whose in lookup.bases(owner):
                return  # its own __new__
            free = is_nobody(type(whose)) or issubclass(type(whose), type) or whose is None
            row = rows.of(value)
            if free and row.handler is None and row.row in _DEPENDS_ON_ARGUMENTS:
                return
        elif kind not in _CALLING:
            return
        if name != "__call__" and not rows.is_pure(value):
            what = f"{said_name(owner)}.{name}"
            running.refuse(what, f"has {what} called by a function in C, with what it does not say")

    def compare_by_identity(self, value: Any) -> bool:
        """Whether an object is found and compared by which it is, and all its class says of that is noted."""
        kind, which, outside = type(value), identity(value), self._outside
        if (SPECIAL, kind) not in self._seen or which in outside.given.objects:
            return False
        if which in outside and which not in outside.pinned:
            return False
        return self.look_up(kind, "__eq__") is object.__eq__ and (
            self.look_up(kind, "__hash__") is object.__hash__
        )

    def forget(self) -> None:
        """What was found by way of classes may be another from now on: it is noted anew."""
        for known in (self._slots, self._found, self._seen, self.tables):
            known.clear()

    def let_go(self) -> None:
        """The call is over: nothing is held any more."""
        for held in (self._slots, self._found, self._namespaces):
            held.clear()
