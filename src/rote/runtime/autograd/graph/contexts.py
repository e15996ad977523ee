"""What the Python nodes of a graph keep for their backward, and whether a backward changes it.

Each plain call of a ``torch.autograd.Function`` makes a context, and only the backward of that call sees it.
A recording has one context, which serves the backward of every replay. So a backward that writes to its
context, or to an object that only the context leads to, finds in the next pass what it left in the last one.
The first pass over a context is right. What it changes is noted, and the key of the forward runs eagerly from
the next call on.

An object that other state of the callable leads to as well keeps its changes in eager, too. It is state of
the walk's own key (:meth:`...engine.subject.Subject.walking`), like everything that a backward reads.

What does not work: to look into iterators of unknown kinds and into objects made in C. A graph whose contexts
lead to one is not recorded.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

from ....base import TORCH_NEEDS, Site
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...conditions import slots_in
from ...objects import Position, is_open, is_python, mark, members, module_of, position
from ...pytorch import plain_functions
from ...state import MISSING, same, show
from .pinpoint import line_that_changes

REMEDY = "Keep what backward makes in its own variables, and let forward save on ctx all that backward needs."

Reaches = Callable[[Any], bool]
"""Whether other state of the callable leads to a container."""

_LOOKED_INTO = (
    *(dict, list, tuple, deque, set, frozenset, types.MappingProxyType, threading.local, ContextVar),
    *(int, float, complex, str, bytes, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
    *(types.ModuleType, weakref.ref, functools.partial),
)
_CONTAINERS = (dict, list, deque, types.CellType, ContextVar, threading.local, BackwardCFunction)
_KNOWN = frozenset(
    {"builtins", "datetime", "decimal", "enum", "fractions", "pathlib", "re", "types", "typing"}
)
"""Modules of Python whose objects do not change, or are compared by what they hold."""
_ALONE = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, torch.Tensor)
"""Types that are compared by identity, or have state of their own."""
_LIBRARIES = frozenset({"torch", "rote", *TORCH_NEEDS})


class Change(NamedTuple):
    """A place that a backward has changed: its name, and texts of what was there and is there."""

    name: str
    was: str
    now: str


class HeldByContext(NamedTuple):
    """One object that a context leads to.

    Attributes:
        name: What the user would write for it.
        parts: What lies in it, as it is compared, each with what one writes behind the name.
    """

    value: Any
    name: str
    parts: tuple[tuple[str, Any], ...]

    def differing(self, now: tuple[tuple[str, Any], ...]) -> Iterator[Change]:
        """The places in which something else lies by now."""
        for was, later in zip_longest(self.parts, now, fillvalue=("", MISSING)):
            if was[0] != later[0] or not same(was[1], later[1]):
                gone = was[0] != later[0] and was[1] is not MISSING
                suffix = was[0] if was[1] is not MISSING else later[0]
                yield Change(self.name + suffix, show(was[1]), show(MISSING if gone else later[1]))


class Contexts:
    """The contexts of one graph: its nodes that are Python code."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes

    def __bool__(self) -> bool:
        """Whether the graph has any."""
        return bool(self._nodes)

    def roots(self) -> tuple[tuple[str, Any], ...]:
        """Where the state is found that a backward can read, with names: contexts and classes."""
        classes = {id(node._forward_cls): node._forward_cls for node in self._nodes}
        return (*self._named(), *((cls.__qualname__, cls) for cls in classes.values()))

    def _named(self) -> list[tuple[str, Any]]:
        return [(f"the ctx of {node._forward_cls.__qualname__}", node) for node in self._nodes]

    def look(self) -> dict[int, HeldByContext]:
        """What they lead to now, by the identity of each object."""
        found, left = dict[int, HeldByContext](), deque(self._named())
        with plain_functions():  # to look at a tensor is not to use it
            while left:
                name, value = left.popleft()
                if id(value) in found or isinstance(value, _ALONE):
                    continue
                parts = _parts(value)
                found[id(value)] = HeldByContext(
                    value, name, tuple([(suffix, mark(each)) for suffix, each in parts])
                )
                left.extend([(name + suffix, each) for suffix, each in parts])
        return found

    def held(self) -> list[Any]:
        """What they lead to."""
        return [each.value for each in self.look().values()]

    def hidden_reasons(self, site: Site) -> list[Reason]:
        """Why what a backward does to them could not be seen: the first object that is not looked into."""
        for held in self.look().values() if self._nodes else ():
            for suffix, value in held.parts:
                if _is_hidden(value):
                    hidden = value.value if isinstance(value, Position) else value
                    kind, name = type(hidden).__qualname__, held.name + suffix
                    text = f"a backward may change {name}, a {kind}, out of sight"
                    return [reason(rules.STATE_CHANGES, text, site, REMEDY)]
        return []

    def changed_since(self, before: dict[int, HeldByContext], reaches: Reaches, site: Site) -> Reason | None:
        """Why they cannot serve another pass: a backward has changed what nothing else leads to.

        Args:
            before: What :meth:`look` returned before the pass.
            reaches: Tells what is state of the callable.
            site: The line that ran the pass, for where the one that changed something is not found.
        """
        after = self.look()
        for address, held in before.items():
            now = after[address].parts if address in after else held.parts
            found = next(held.differing(now), None)
            if found is not None and not reaches(held.value):
                text = f"its backward changes {found.name}, which was {found.was} and is {found.now}"
                line = line_that_changes(found.name, self._codes())
                return reason(rules.STATE_CHANGES, text, line or site, REMEDY)
        return None

    def _codes(self) -> list[types.CodeType]:
        functions = [inspect.unwrap(node._forward_cls.backward) for node in self._nodes]
        return [function.__code__ for function in functions if isinstance(function, types.FunctionType)]


def _parts(value: Any) -> list[tuple[str, Any]]:
    """What lies in an object, each with what one writes behind its name."""
    if isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return [*[(f".{name}", cell) for name, cell in cells], (".__defaults__", value.__defaults__)]
    if isinstance(value, weakref.ref):
        return [("()", value())]
    if isinstance(value, (tuple, set, frozenset)):
        return [("", each) for each in members.values(value)]
    if isinstance(value, (types.MethodType, functools.partial, types.MappingProxyType)):
        return [("", each) for each in gc.get_referents(value)]
    if isinstance(value, _CONTAINERS) or is_open(type(value)):
        return [(slot.suffix, slot.value) for slot in slots_in(value)]
    return []


def _is_hidden(value: Any) -> bool:
    if isinstance(value, Position):
        found = position(value.value)
        return found is None or not found.known
    if isinstance(value, _LOOKED_INTO):
        return False
    kind = type(value)
    package = module_of(kind).partition(".")[0]
    if package in _LIBRARIES:
        return isinstance(value, torch.ScriptObject)
    if package in sys.stdlib_module_names:
        return package not in _KNOWN and not is_open(kind)
    return not is_python(kind)
