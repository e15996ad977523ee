"""The position of an iterator, read without moving it.

A replay advances no iterator: a call that takes an item from one would get the item of the capture for ever.
No attribute holds the position. It is derived from what Python reveals: the number of items left, the text of
a counter, the line at which a generator waits, the indices in the pickle of an iterator. An iterator over
others (``zip``, ``enumerate``, a generator's own loop) has the positions of those others. The other objects
that it refers to are read as well: the locals of a generator, the closure of the function of a ``map``.

A position matters between the begin and the end of a call, not between calls: a recording does not depend on
an iterator that its call did not move, so a loop may keep its batches on an object that the call reaches. A
recording does depend on an iterator that the call copied or asked for its length: where the code names such a
function besides the iterator, the guard includes the position.

Limits: text files, ``iter(f, end)`` and iterators of C extensions reveal nothing. They count as moved
wherever the code that runs names them. From Python 3.14 on the same holds for ``product`` and its like, and
for ``tee``. A generator that waits at the same line with the same locals counts as moved if a generator with
the same code resumed in the call.
"""

from __future__ import annotations

import functools
import gc
import io
import itertools
import operator
import sys
import types
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import FunctionType, GeneratorType
from typing import Any, NamedTuple

import torch

from ...base import bits_of, is_instance
from . import members
from .classes import is_python
from .origin import said_module
from .owners import is_open

DEPTH = 6
"""The depth to which objects inside objects are read."""

FACTS = 1000
"""The largest number of values inside an iterator that are compared."""

_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_CONTAINERS = (list, tuple, deque, set, frozenset)
_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
_STANDING = (types.FrameType, types.CodeType, types.ModuleType, type)
"""Types of objects that are the same at all positions, or have only an identity that does not last."""

_TOLD = ("builtins", "itertools", "_collections", "collections", "array")
"""Modules whose iterators reveal the number of items left, or the next index."""

_OVER = (
    *(enumerate, zip, map, filter, itertools.chain, itertools.cycle, itertools.islice),
    *(itertools.accumulate, itertools.zip_longest),
)
_PICKLED = frozenset({
    "iterator", "reversed", "arrayiterator", "odict_iterator", "cycle", "product", "permutations",
    "combinations", "combinations_with_replacement", "_tee",
})  # fmt: skip
"""Names of types of iterators whose pickle reveals the position."""

_SILENT = ("callable_iterator", "memory_iterator")


class Position(NamedTuple):
    """The position of the iterator in a slot."""

    value: Any  # the content of the slot: the iterator, or a method of it
    text: str  # the position, for a message
    facts: tuple[Any, ...]  # the values inside the iterator that can be compared
    known: bool  # whether equal text and facts mean an equal position
    codes: frozenset[types.CodeType]  # the code of the generators inside the iterator
    asked: bool = False  # the code may depend on the position itself, not only on items taken from it

    def agrees(self, other: Any) -> bool:
        """Whether another position is that of the same iterator, not moved."""
        same = isinstance(other, Position) and _owner(self.value) is _owner(other.value)
        return same and other.known and (self.text, self.facts) == (other.text, other.facts)


def position(value: Any) -> Position | None:
    """The position of an iterator, or of the owner of its bound method; None for any other value."""
    owner = _owner(value)
    if not is_iterator(owner):
        return None
    look = _Look()
    text = look.iterator(owner, DEPTH)
    return Position(value, text, tuple(look.facts), look.known, frozenset(look.codes))


def is_standard(stream: Any) -> bool:
    """Whether a stream is one of the standard streams."""
    return any(stream is each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def is_iterator(value: Any) -> bool:
    """Whether a value is a generator, or an iterator without attributes that hold its position."""
    step = _member(type(value), "__next__")
    if step is None or _member(type(value), "__iter__") is None:
        return False
    return not isinstance(step, FunctionType) or not is_open(type(value)) or not is_python(type(value))


def _member(kind: type, name: str) -> Any:
    """The value under a name in a class or its bases; no descriptor runs (a mock's make more mocks)."""
    for cls in kind.__mro__:
        if name in cls.__dict__:
            return cls.__dict__[name]
    return None


def _owner(value: Any) -> Any:
    return value.__self__ if is_instance(value, _METHODS) else value


class _Look:
    """Reads one iterator and the objects it refers to."""

    def __init__(self) -> None:
        self.facts: list[Any] = []
        self.known = True
        self.codes: list[types.CodeType] = []
        self._seen: dict[int, Any] = {}

    def iterator(self, iterator: Any, depth: int) -> str:
        """The text of an iterator's position; values that the text leaves out become facts."""
        self._seen[id(iterator)] = iterator
        kind = type(iterator)
        name = kind.__name__
        if isinstance(iterator, GeneratorType):
            return self._generator(iterator, depth)
        if isinstance(iterator, io.IOBase):
            return self._file(iterator)
        if isinstance(_member(kind, "__next__"), FunctionType):
            self._all(vars(iterator).values() if hasattr(iterator, "__dict__") else (), depth)
            return f"a {name}" if is_python(kind) else self._unknown(name)
        if said_module(kind) not in _TOLD or name in _SILENT:
            self._all(gc.get_referents(iterator), depth)
            return self._unknown(name)
        if isinstance(iterator, itertools.count):  # may count by tensors, whose text is read from the device
            parts = gc.get_referents(iterator)  # includes its type from 3.12 on
            plain = all([isinstance(part, (*_PLAIN, type)) for part in parts])
            return repr(iterator) if plain else self._unknown(name)
        if name in _PICKLED:
            return self._pickled(iterator, depth)
        left = operator.length_hint(iterator, -1)
        if left >= 0 and not isinstance(iterator, _OVER):
            return f"a {name} with {left} left"
        inside = self._inside(iterator, depth)
        return f"a {name}{' of ' if inside else ''}{', '.join(inside)}"

    def _unknown(self, name: str) -> str:
        self.known = False
        return f"a {name}"

    def _generator(self, generator: Any, depth: int) -> str:
        if generator.gi_running:  # the generator makes the call
            return "a generator that runs"
        frame = generator.gi_frame
        if frame is None:
            return "a generator at its end"
        self.facts.append(frame.f_lasti)
        self.codes.append(generator.gi_code)
        parts = [f"line {frame.f_lineno}", *self._inside(generator, depth)]
        return f"a generator at {', '.join(parts)}"

    def _file(self, file: Any) -> str:
        name = type(file).__name__
        if is_standard(file):  # code that writes to it does not depend on its position
            return f"a {name}"
        if said_module(type(file)) == "_io":
            with suppress(OSError, ValueError):  # detached
                if file.closed or not file.readable():
                    return f"a {name}"
                if not isinstance(file, io.TextIOWrapper) and file.seekable():
                    if isinstance(file, (io.BytesIO, io.StringIO)):
                        self._value(file.getvalue(), 1)
                    return f"a {name} at {file.tell()}"
        return self._unknown(name)

    def _pickled(self, iterator: Any, depth: int) -> str:
        """An iterator whose pickle holds its next index (those of itertools: up to Python 3.13)."""
        name = type(iterator).__name__.lstrip("_")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                _, _, *state = parts = iterator.__reduce__()
        except TypeError:
            return self._unknown(name)
        self._all(parts[1:], depth)
        numbers = [repr(part) for part in state if isinstance(part, int)]
        numbers += [repr(part[0]) for part in state if name == "permutations"]
        return f"a {name}{' at ' if numbers else ''}{', '.join(numbers)}"

    def _inside(self, iterator: Any, depth: int) -> list[str]:
        """The numbers and iterators that an iterator refers to, also from the stack of a generator."""
        parts: list[Any] = gc.get_referents(iterator)
        own = isinstance(iterator, GeneratorType)
        if not own:  # zip and others keep their iterators in a tuple, that of zip_longest comes to have holes
            held = [reversed(gc.get_referents(part)) if type(part) is tuple else (part,) for part in parts]
            parts = [each for members_of in held for each in members_of]
        names = (iterator.__name__, iterator.__qualname__) if own else ()
        found: list[str] = []
        for each in parts:
            if is_iterator(each) and depth and id(each) not in self._seen:
                found.append(self.iterator(each, depth - 1))
            elif own and isinstance(each, _PLAIN) and each not in names:
                found.append(repr(each))
            else:
                self._value(each, depth - 1)
        return found

    def _all(self, values: Iterable[Any], depth: int) -> None:
        for value in list(values):
            self._value(value, depth - 1)

    def _value(self, value: Any, depth: int) -> None:
        """Add facts of a value: a plain value itself, the members of a container, else the identity."""
        if type(value) in _PLAIN:
            self.facts.append((type(value), bits_of(value) if isinstance(value, (float, complex)) else value))
            return
        known = isinstance(value, _STANDING) or id(value) in self._seen
        if known or depth <= 0 or len(self.facts) >= FACTS:
            return
        self._seen[id(value)] = value
        if is_iterator(value):
            self.facts.append(self.iterator(value, depth))
            return
        if isinstance(value, (dict, *_CONTAINERS)):
            self.facts.append(members.length(value))
        parts = self._parts(value)
        if parts is None:
            self.facts.append(id(value))
        else:
            self._all(parts, depth)

    def _parts(self, value: Any) -> Iterable[Any] | None:
        """The parts of an object that are compared; None if its identity is compared instead."""
        if isinstance(value, dict):
            return itertools.chain.from_iterable(members.items(value))
        if isinstance(value, _CONTAINERS):
            return members.keys(value)[: FACTS - len(self.facts)]
        if isinstance(value, FunctionType):
            return value.__closure__ or ()
        if isinstance(value, types.CellType):
            return gc.get_referents(value)
        if isinstance(value, types.MethodType):
            return value.__self__, value.__func__
        if isinstance(value, functools.partial):
            return value.func, value.args, value.keywords
        if isinstance(value, _METHODS):
            return (value.__self__,)
        opens = not isinstance(value, torch.Tensor) and is_open(type(value)) and hasattr(value, "__dict__")
        return vars(value).values() if opens else None
