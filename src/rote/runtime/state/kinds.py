"""Kinds of slots, with a reader for each."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import ref

import torch

from ..objects import UNSET, Content, DefinedOperators, cached_in, counted, members, own, remembered, scripted
from .reads import Argument, Read

ITEM, ATTRIBUTE, CELL, VARIABLE, SCRIPTED = "item", "attribute", "cell", "variable", "scripted"
LAST = "last"
"""Kind for a member of a list; the key is how far it lies before the end."""
LENGTH, ORDER, DEFINED, BULK = "length", "order", "defined", "bulk"
OPERATORS = "operators"
KIND, SUBCLASS, REFERENT, NUMBERS, HELD = "kind", "subclass", "referent", "numbers", "held"
CACHED, RESULT, ASKED, SAID = "cached", "result", "asked", "said"
LIES = "lies"
"""Kind for the memory of an array in a slot, of which kind and key are the key."""
FOLLOWED = "followed"
"""Kind for a group of slots whose objects keep being replaced (:mod:`..conditions.paths`)."""
NUMBERED = frozenset({DEFINED, LENGTH})
"""Kinds of slots whose value is always a number of one type."""
LENGTHENED: frozenset[type] = frozenset({list, deque, dict, OrderedDict, defaultdict})
"""Containers whose length is a number that is followed, where calls make them longer."""
LOOKED = "looked"
"""Key of the numbers of an array that Python code has read: those are always compared."""

MISSING: Any = object()
"""The value read from a slot that is gone."""
WHETHER = Content(False), Content(True)
"""Whether there is something in a slot, by whether there is."""


class Entry(NamedTuple):
    """One slot and its value."""

    kind: str
    container: Any
    key: Any
    value: Any
    label: str | Read  # its name, or the read that has it: hardly one is ever asked

    @property
    def name(self) -> str:
        """The name of the slot, as the user would write it."""
        return self.label if isinstance(self.label, str) else self.label.name


def container_of(entry: Entry) -> Any:
    """The object that a slot belongs to.

    Raises:
        ValueError: The object was an argument and is gone.
    """
    return entry.container() if type(entry.container) is Argument else entry.container


def read(entry: Entry) -> Any:
    """The value in the slot now."""
    kind, container, key, was, _ = entry
    try:
        if type(container) is Argument:
            container = container()
        if was is UNSET and kind == ATTRIBUTE:
            return getattr(container, key, UNSET)
        return _READERS[kind](container, key)
    except (KeyError, IndexError, AttributeError, ValueError):
        return MISSING


def lying_in(kind: str, container: Any, key: Any) -> Any:
    """The value in a slot.

    Raises:
        KeyError, IndexError, ValueError, AttributeError: There is no such slot.
    """
    return _READERS[kind](container, key)


def _length(container: Any, _: Any) -> Content:
    return counted(members.length(container))


def _bulk(container: Any, _: Any) -> Content:
    whole = members.items if isinstance(container, Mapping) else members.keys
    return Content(whole(container))


def _asked(asked: Any, key: Any) -> Content:
    return answer(asked(*key) if type(key) is tuple else getattr(asked, key)())


def _subclass(base: Any, kind: type) -> Content:
    try:
        return Content(issubclass(kind, base))
    except Exception as error:  # some protocols answer their own code alone
        raise ValueError(f"{base!r} does not tell") from error


_READERS: dict[str, Callable[[Any, Any], Any]] = {
    ITEM: members.member,
    ATTRIBUTE: getattr,
    CELL: lambda cell, _: cell.cell_contents,
    DEFINED: lambda container, key: WHETHER[members.has(container, key)],
    LAST: lambda container, back: members.member(container, -back),
    LENGTH: _length,
    BULK: _bulk,
    OPERATORS: lambda namespace, _: Content(DefinedOperators.of(namespace)),
    ORDER: lambda container, _: Content(members.keys(container)),
    VARIABLE: lambda variable, _: variable.get(UNSET),
    SCRIPTED: scripted,
    KIND: lambda value, table: own(value, "__dict__") if table else type(value),
    SUBCLASS: _subclass,
    REFERENT: lambda reference, _: Content(reference() is not None),
    ASKED: _asked,
    SAID: lambda value, name: answer(getattr(value, name)),
    NUMBERS: lambda array, _: Content(array.tobytes()),
    RESULT: lambda function, key: cached_in(function, key[0])[key[1]],
    CACHED: lambda function, asked: Content(remembered(function, asked)),
    HELD: lambda value, _: value,
    LIES: lambda container, slot: answer(lying_in(slot[0], container, slot[1]).__array_interface__),
    FOLLOWED: lambda followed, _: Content(followed.holds()),
}


def answer(said: Any) -> Content:
    """The answer of a C function, in a form that can be compared."""
    if isinstance(said, (int, float, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size)):
        return Content(said)
    if isinstance(said, (list, tuple)):  # classes may go, which shows among those of a base
        return Content(tuple([ref(each) if isinstance(each, type) else each for each in said]))
    return Content(repr(said))
