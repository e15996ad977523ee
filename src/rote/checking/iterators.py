"""Iterators that a call advances: a replay advances none, and gives the item of the capture for ever.

How far an iterator has come shows in no attribute. It is told by what Python lets one ask without moving it:
how many items are left, the text of a counter, the line at which a generator waits. Iterators over others
(``zip``, ``enumerate``, a generator's own loop) are as far as those that they refer to.

What this does not see: ``product``, ``permutations`` and ``tee``, a ``cycle`` after its first round, what a
function is asked for (``iter(f, end)``), and iterators of C extensions. Those of the user's own classes have
attributes, which the walk of the state compares.
"""

from __future__ import annotations

import dis
import functools
import gc
import itertools
import operator
from collections.abc import Iterable, Iterator
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

from ..base.location import Site
from ..signature.state import Snapshot

DEPTH = 4
"""Iterators inside of iterators that are asked."""

_COUNTS = (itertools.count, itertools.repeat)
_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_OVER = (
    enumerate,
    zip,
    map,
    filter,
    itertools.chain,
    itertools.cycle,
    itertools.islice,
    itertools.accumulate,
)
_LOOPS = ("GET_ITER", "FOR_ITER")
_LOADS = frozenset({"LOAD_ATTR", "LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_CONST"})

Positions = dict[tuple[str, int, Any], tuple[Any, str, str]]
"""The iterators that a call can reach, by slot: each with its position and its name."""


class Advanced(NamedTuple):
    """An iterator that a call moved.

    Attributes:
        name: Its slot, as a user would write it.
        was: How far it was.
        now: How far it is.
    """

    name: str
    was: str
    now: str


def positions(snapshot: Snapshot, arguments: Iterable[tuple[str, Any]]) -> Positions:
    """How far the iterators are that a call can reach.

    Args:
        snapshot: A walk of the state; the positions are those of now.
        arguments: Leaves of the arguments, with their names.
    """
    found: Positions = {
        ("argument", id(leaf), None): (leaf, position(leaf), name)
        for name, leaf in arguments
        if is_iterator(leaf)
    }
    for address, entry in snapshot.entries.items():
        if is_iterator(entry.value):
            found[address] = (entry.value, position(entry.value), snapshot.name_of(entry))
    return found


def advanced(before: Positions, after: Positions) -> list[Advanced]:
    """The iterators that were there before and are further now."""
    found: list[Advanced] = []
    for address, (iterator, now, name) in after.items():
        known = before.get(address)
        if known is not None and known[0] is iterator and known[1] != now:
            found.append(Advanced(name, known[1], now))
    return found


def is_iterator(value: Any) -> bool:
    """Whether a value is one of Python's own iterators, or a generator."""
    return _iterates(type(value))


@functools.lru_cache(maxsize=4096)  # a walk has a slot for each parameter of a model
def _iterates(kind: type) -> bool:
    return kind.__module__ in ("builtins", "itertools") and issubclass(kind, Iterator)


def position(iterator: Any, depth: int = DEPTH) -> str:
    """How far an iterator is, as text; it is not moved."""
    name = type(iterator).__name__
    if isinstance(iterator, _COUNTS):
        return repr(iterator)
    if isinstance(iterator, GeneratorType):
        frame: Any = iterator.gi_frame  # pyright: ignore[reportUnknownMemberType]
        if frame is None:
            return "a generator at its end"
        parts = [f"line {frame.f_lineno}", *_inside(iterator, depth)]
        return f"a generator at {', '.join(parts)}"
    left = operator.length_hint(iterator, -1)
    if left >= 0 and not isinstance(iterator, _OVER):
        return f"a {name} with {left} left"
    inside = _inside(iterator, depth)
    return f"a {name}{' of ' if inside else ''}{', '.join(inside)}"


def _inside(iterator: Any, depth: int) -> list[str]:
    """The numbers and iterators that an iterator refers to, those on the stack of a generator too."""
    parts = gc.get_referents(iterator) if depth else []
    if isinstance(iterator, (zip, map)):  # they keep theirs in a tuple
        parts = [each for part in parts if type(part) is tuple for each in part]
    own = isinstance(iterator, GeneratorType)
    names = (iterator.__name__, iterator.__qualname__) if own else ()
    found: list[str] = []
    for each in parts:
        if is_iterator(each):
            found.append(position(each, depth - 1))
        elif own and isinstance(each, _PLAIN) and each not in names:
            found.append(repr(each))
    return found


def line_that_advances(name: str, codes: Iterable[CodeType]) -> Site | None:
    """The line in executed code that most likely advances an iterator: it names it, and asks for an item.

    Args:
        name: Its slot, as in ``model.batches`` or ``table['k']``.
        codes: Code objects that ran.
    """
    wanted = name.replace("]", "").replace("[", ".").rpartition(".")[2].strip("'")
    mentioned: Site | None = None
    for code in codes:
        line, named = code.co_firstlineno, 0
        for instruction in dis.get_instructions(code):
            if instruction.positions is not None and instruction.positions.lineno:
                line = instruction.positions.lineno
            if instruction.opname in _LOADS and instruction.argval == wanted:
                named = line
                mentioned = mentioned or Site(code.co_filename, line, code.co_name)
            asks = instruction.argval in ("next", "__next__", "send") or instruction.opname in _LOOPS
            if asks and named == line:
                return Site(code.co_filename, line, code.co_name)
    return mentioned
