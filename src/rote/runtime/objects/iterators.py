"""How far an iterator has come, told without moving it.

A replay advances no iterator: a call that asks one for an item would get the item of the capture for ever.
How far it is shows in no attribute. It is told by what Python lets one ask: how many items are left, the text
of a counter, the line at which a generator waits, the indices by which an iterator is pickled. Iterators over
others (``zip``, ``enumerate``, a generator's own loop) are as far as those that they refer to. What they
refer to besides is looked into as well: the locals of a generator, the closure of the function of a ``map``.

A position matters between the begin and the end of a call, not between calls: what a recording computes
depends on no iterator that its call did not move, so a loop may keep its batches on an object that the call
reaches. It does depend on one of which the call made a copy, or asked the length: where the code names such a
thing besides the iterator, the position is under guard.

What does not work: text files, ``iter(f, end)`` and iterators of C extensions tell nothing. They count as
moved wherever the code that runs names them. From Python 3.14 on that holds for ``product`` and its like, and
for ``tee``, too. A generator that waits at the same line with the same locals counts as moved if code like
its own went on in the call.
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

from ...base import bits_of
from . import members
from .origin import said_module
from .owners import is_open

DEPTH = 6
"""Objects inside of objects that are looked into."""

FACTS = 1000
"""Values inside of an iterator that are compared."""

_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_CONTAINERS = (list, tuple, deque, set, frozenset)
_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
_STANDING = (types.FrameType, types.CodeType, types.ModuleType, type)
"""What is the same for all positions, or known by nothing but an identity that does not last."""

_TOLD = ("builtins", "itertools", "_collections", "collections", "array")
"""Modules whose iterators say how many items are left, or by which index they go on."""

_OVER = (
    *(enumerate, zip, map, filter, itertools.chain, itertools.cycle, itertools.islice),
    *(itertools.accumulate, itertools.zip_longest),
)
_PICKLED = frozenset({
    "iterator", "reversed", "arrayiterator", "odict_iterator", "cycle", "product", "permutations",
    "combinations", "combinations_with_replacement", "_tee",
})  # fmt: skip
"""Names of those that are told by what they are pickled by."""

_SILENT = ("callable_iterator", "memory_iterator")


class Position(NamedTuple):
    """How far the iterator in a slot is."""

    value: Any  # what lies in the slot: the iterator, or a method of it
    text: str  # how far it is, for a message
    facts: tuple[Any, ...]  # what lies inside of it, as far as it can be compared
    known: bool  # two positions that agree in this are one position
    codes: frozenset[types.CodeType]  # the code of the generators inside of it
    asked: bool = False  # the code that runs may depend on it, and not only on what it gets by moving it

    def agrees(self, other: Any) -> bool:
        """Whether another look found the same iterator, not moved."""
        same = isinstance(other, Position) and _owner(self.value) is _owner(other.value)
        return same and other.known and (self.text, self.facts) == (other.text, other.facts)


def position(value: Any) -> Position | None:
    """How far an iterator is, or that of which something is a method; it is not moved. None for all else."""
    owner = _owner(value)
    if not is_iterator(owner):
        return None
    look = _Look()
    text = look.iterator(owner, DEPTH)
    return Position(value, text, tuple(look.facts), look.known, frozenset(look.codes))


def is_standard(stream: Any) -> bool:
    """Whether a stream is one of those that a program writes to by default."""
    return any(stream is each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator that has no attributes to tell how far it is, or a generator."""
    step = _member(type(value), "__next__")
    if step is None or _member(type(value), "__iter__") is None:
        return False
    return not isinstance(step, FunctionType) or not is_open(type(value))


def _member(kind: type, name: str) -> Any:
    """What lies under a name in a class or its bases; no descriptor runs (those of mocks make more mocks)."""
    for cls in kind.__mro__:
        if name in cls.__dict__:
            return cls.__dict__[name]
    return None


def _owner(value: Any) -> Any:
    return value.__self__ if isinstance(value, _METHODS) else value


class _Look:
    """Looks into one iterator, and into what it refers to."""

    def __init__(self) -> None:
        self.facts: list[Any] = []
        self.known = True
        self.codes: list[types.CodeType] = []
        self._seen: dict[int, Any] = {}

    def iterator(self, iterator: Any, depth: int) -> str:
        """The text of an iterator's position; what the text leaves out becomes facts."""
        self._seen[id(iterator)] = iterator
        kind = type(iterator)
        name = kind.__name__
        if isinstance(iterator, GeneratorType):
            return self._generator(iterator, depth)
        if isinstance(iterator, io.IOBase):
            return self._file(iterator)
        if isinstance(_member(kind, "__next__"), FunctionType):
            self._all(vars(iterator).values() if hasattr(iterator, "__dict__") else (), depth)
            return f"a {name}"
        if said_module(kind) not in _TOLD or name in _SILENT:
            self._all(gc.get_referents(iterator), depth)
            return self._unknown(name)
        if isinstance(iterator, itertools.count):  # of tensors, say: their text would be read from the device
            parts = gc.get_referents(iterator)  # its own type, from 3.12 on
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
        if generator.gi_running:  # the call is made from inside of it
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
        if is_standard(file):  # who writes to it does not ask how far it is
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
        """Those that say by which index they go on where they are pickled (itertools: to Python 3.13)."""
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
        """The numbers and iterators that an iterator refers to, those on the stack of a generator too."""
        parts: list[Any] = gc.get_referents(iterator)
        own = isinstance(iterator, GeneratorType)
        if not own:  # some keep theirs in a tuple
            parts = [each for part in parts for each in (part if type(part) is tuple else (part,))]
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
        """What a value holds; plain ones by value, containers by what is in them, all else by identity."""
        if isinstance(value, _PLAIN):
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
        """What is looked at of an object; None where it is compared by which it is."""
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
