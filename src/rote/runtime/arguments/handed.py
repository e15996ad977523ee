"""Results that are more than tensors in containers: arguments that were taken apart, and objects.

Before a result is taken apart, an argument in it is replaced by its number, an object that the call has made
by what it holds, and one that it has found outside by what leads to it. A replay hands out the argument of
its own call, makes another object, and hands out the one that was found.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from ...base import is_instance
from ..objects import members
from ..state import show
from .opened import Name, Opening, is_openable
from .places import StatePlace
from .set_members import SetMembers, set_members

DEEPEST = 64
"""Containers around each other that are taken apart."""
_WHOLE = None


class GivenBranch:
    """An argument that was taken apart, in a result: its number among the branches, and itself."""

    __slots__ = ("number", "value")

    def __init__(self, number: int, value: Any) -> None:
        self.number = number
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is GivenBranch and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


class FoundObject:
    """Something in a result that the call has found outside.

    A replay finds it again in the slot in which it lay, whichever object lies there by then. Without such a
    slot the guard says that it is the same; what that does not keep alive is not kept alive here, ``weakly``.
    """

    __slots__ = ("_reference", "_value", "place")

    def __init__(self, value: Any, place: StatePlace | None = None, *, weakly: bool = False) -> None:
        self.place = place
        self._reference = weakref.ref(value) if weakly else None
        self._value = value if place is None and not weakly else None

    def __call__(self) -> Any:
        """The object itself."""
        if self.place is not None:
            return self.place.now()
        return self._value if self._reference is None else self._reference()

    @property
    def token(self) -> Any:
        """Its form for comparison with what another call finds."""
        if self.place is None:
            return id(self())
        key = self.place.key
        return self.place.kind, self.place.name, key if type(key) in (str, int) else id(key)

    def __eq__(self, other: object) -> bool:
        return type(other) is FoundObject and self() is other()

    def __hash__(self) -> int:
        return id(self())

    def __repr__(self) -> str:
        return show(self())


class Made(NamedTuple):
    """An object that the call has made: its class, its attributes and members, and what lies in them.

    Of a set the names are its members.
    """

    kind: type
    names: tuple[Name, ...] | SetMembers
    values: tuple[Any, ...]


SETS = frozenset({set, frozenset})


class Marking:
    """Replaces arguments and objects in a result.

    Args:
        number_of: Gives the number of a branch of the arguments; None for anything else.
        is_outside: Whether something was there before the call.
        found: Gives what leads to it; None if a replay cannot hand it out.
    """

    def __init__(
        self,
        number_of: Callable[[Any], int | None],
        is_outside: Callable[[Any], bool],
        found: Callable[[Any], FoundObject | None],
    ) -> None:
        self._number_of = number_of
        self._is_outside = is_outside
        self._found = found
        self._marked: dict[int, Any] = {}
        self._depth = 0
        self._looked_at: list[Any] = []  # what was marked, so that its identity stays its own
        self._openings: dict[type, Opening | None] = {}

    def mark(self, value: Any) -> Any:
        """The result in the form in which it is taken apart; itself where there is nothing to replace."""
        number = self._number_of(value)
        if number is not None:
            return GivenBranch(number, value)
        if self._is_outside(value):
            found = self._found(value)
            return value if found is None else found  # it is to be that very object
        kind = type(value)
        if kind is tuple:
            return self._replaced(value, [*value], kind)
        if kind is list:
            return self._replaced(value, [*value], kind)
        if kind is deque:
            return self._replaced(value, [*value], lambda parts: deque(parts, value.maxlen))
        if kind is dict or (kind is OrderedDict and not vars(value)):
            return self._replaced(
                value, [*value.values()], lambda parts: kind(zip(value, parts, strict=True))
            )
        if kind is defaultdict:
            factory = value.default_factory
            return self._replaced(
                value, [*value.values()], lambda parts: defaultdict(factory, zip(value, parts, strict=True))
            )
        if is_instance(value, tuple) and is_named(kind):
            make: Any = tuple.__new__  # the class may have another way
            return self._replaced(value, [*value], lambda parts: make(kind, parts))
        if is_output(value):  # an argument in it is handed out as itself
            names, parts = members.keys(value), [*members.values(value)]
            return self._replaced(value, parts, lambda marked: kind(**dict(zip(names, marked, strict=True))))
        if kind in SETS:
            return self._made_set(value, kind)
        opening = self._opening(kind)
        if opening is None:
            return value
        if id(value) not in self._marked and self._depth <= DEEPEST:
            self._looked_at.append(value)
            self._marked[id(value)] = value  # as long as it is looked into, for it may contain itself
            names, held = opening.look(value)
            self._depth += 1
            self._marked[id(value)] = Made(kind, names, tuple([self.mark(each) for each in held]))
            self._depth -= 1
        return self._marked.get(id(value), value)

    def parts_of(self, value: Any) -> list[Any] | None:
        """What lies in a container or an object that could be made again; None if it could not."""
        kind = type(value)
        if kind in (dict, defaultdict) or (kind is OrderedDict and not vars(value)):
            return [*value.values()]
        if kind in (list, tuple, deque) or (is_instance(value, tuple) and is_named(kind)):
            return [*value]
        if kind in SETS:
            return [] if set_members(value) is not None else None
        opening = self._opening(kind)
        return opening.look(value)[1] if opening is not None else None

    def _replaced(self, value: Any, parts: list[Any], make: Callable[[list[Any]], Any]) -> Any:
        if id(value) not in self._marked and self._depth <= DEEPEST:
            self._looked_at.append(value)
            self._marked[id(value)] = value  # likewise
            self._depth += 1
            marked = [self.mark(part) for part in parts]
            self._depth -= 1
            if any([new is not old for new, old in zip(marked, parts, strict=True)]):
                self._marked[id(value)] = make(marked)
        return self._marked.get(id(value), value)

    def _made_set(self, value: Any, kind: type) -> Any:
        added = set_members(value)
        if added is None:
            return value
        self._looked_at.append(value)
        return self._marked.setdefault(id(value), Made(kind, added, ()))

    def _opening(self, kind: type) -> Opening | None:
        if kind not in self._openings:
            can = kind.__module__ != "builtins" and (kind is OrderedDict or is_openable(kind))
            self._openings[kind] = Opening(kind, _WHOLE) if can else None
        return self._openings[kind]


def is_named(kind: type) -> bool:
    """Whether a class of tuples names its members."""
    return hasattr(kind, "_make")


def is_output(value: Any) -> bool:
    """Whether something is a dict of its fields and no other members, like the outputs in transformers."""
    kind = type(value)
    if not (issubclass(kind, dict) and is_dataclass(kind)):
        return False
    return {each.name for each in fields(kind)} >= {*members.keys(value)}
