"""What the Python nodes of a graph keep for their backward, and whether a backward changes it.

Each plain call of a ``torch.autograd.Function`` makes a context, and only the backward of that call sees it.
A recording has one context, which serves the backward of every replay. So a backward that writes to its
context, or to an object that only the context leads to, finds in the next pass what it left in the last one.
The first pass over a context is right. What it changes is noted, and the key of the forward runs eagerly from
the next call on.

What a context leads to and other state of the callable leads to as well keeps its changes in eager, too. It
is state of the walk's own key (:meth:`.subject.Subject.walking`), like everything that a backward reads.

What does not work: to look into iterators of unknown kinds and into objects made in C. A graph whose contexts
lead to one is not recorded.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from ..base.location import TORCH_NEEDS, Site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..signature.executed import ExecutedCode
from ..signature.iterators import Position, position
from ..signature.made_in_c import is_python
from ..signature.owners import is_open, module_of
from ..signature.slots import same, show
from ..signature.snapshot import Snapshot
from ..signature.state import StateWalk
from .pinpoint import line_that_changes

REMEDY = "Keep what backward makes in its own variables, and let forward save on ctx all that backward needs."

Reaches = Callable[[Any], bool]
"""Whether other state of the callable leads to a container."""

_LOOKED_INTO = (
    *(dict, list, tuple, deque, set, frozenset, types.MappingProxyType, threading.local, ContextVar),
    *(int, float, complex, str, bytes, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
    *(types.ModuleType, weakref.ref, functools.partial),
)
_KNOWN = frozenset(
    {"builtins", "datetime", "decimal", "enum", "fractions", "pathlib", "re", "types", "typing"}
)
"""Modules of Python whose objects do not change, or are compared by what they hold."""
_LIBRARIES = frozenset({"torch", "rote", *TORCH_NEEDS})


class Contexts:
    """The contexts of one graph.

    Args:
        nodes: The nodes that are Python code.
    """

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes
        self._executed = ExecutedCode()  # of no call: what a context leads to counts as a whole

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._nodes)

    def roots(self) -> tuple[tuple[str, Any], ...]:
        """Where the state is found that a backward can read, with names: contexts and classes."""
        classes = {id(node._forward_cls): node._forward_cls for node in self._nodes}
        return (*self._named(), *((cls.__qualname__, cls) for cls in classes.values()))

    def _named(self) -> list[tuple[str, Any]]:
        return [(f"the ctx of {node._forward_cls.__qualname__}", node) for node in self._nodes]

    def look(self) -> Snapshot:
        """What they lead to now."""
        return StateWalk(self._executed).take(self._named())

    def hidden_reasons(self, site: Site) -> list[Reason]:
        """Why what a backward does to them could not be seen: the first object that is not looked into."""
        if not self._nodes:
            return []
        seen = self.look()
        for entry in seen.entries.values():
            if _is_hidden(entry.value):
                held = entry.value.value if isinstance(entry.value, Position) else entry.value
                text = (
                    f"a backward may change {seen.name_of(entry)}, a {type(held).__qualname__}, out of sight"
                )
                return [reason(rules.STATE_CHANGES, text, site, REMEDY)]
        return []

    def changed_since(self, before: Snapshot, reaches: Reaches, site: Site) -> Reason | None:
        """Why they cannot serve another pass: a backward has changed what nothing else leads to.

        Args:
            before: What :meth:`look` returned before the pass.
            reaches: Tells what is state of the callable.
            site: The line that ran the pass, where the one that changed it is not found.
        """
        after = self.look()
        for address, entry in before.entries.items():
            later = after.entries.get(address)
            if later is not None and (entry.value is later.value or same(entry.value, later.value)):
                continue
            if not reaches(entry.container):
                was, now = show(entry.value), show(later.value) if later is not None else "gone"
                text = f"its backward changes {before.name_of(entry)}, which was {was} and is {now}"
                line = line_that_changes(before.name_of(entry), self._codes())
                return reason(rules.STATE_CHANGES, text, line or site, REMEDY)
        return None

    def _codes(self) -> list[types.CodeType]:
        functions = [inspect.unwrap(node._forward_cls.backward) for node in self._nodes]
        return [function.__code__ for function in functions if isinstance(function, types.FunctionType)]


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
