"""Between two files of tests, what lives is frozen: collections inside of tests look only at what these made.

Tests import more as they go: after the first one that compiles, a collection would look at 300,000 objects.
No fixture of a file lives at that moment, so nothing is frozen that a test wants to see die.

A search for referrers does not find what is frozen. rote finds the functions that have some code by one, so
functions are listed before they are frozen.
"""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

from rote.runtime.state import executed

_functions: dict[int, list[weakref.ref[types.FunctionType]]] = {}
"""Frozen functions, by the address of their code."""


def freeze() -> None:
    """Collect, and freeze what is left."""
    gc.collect()
    for each in gc.get_objects():
        if type(each) is types.FunctionType:
            _functions.setdefault(id(each.__code__), []).append(weakref.ref(each))
    gc.freeze()


class _Gc(types.ModuleType):
    """The collector, with a search that finds frozen functions by their code."""

    def __getattr__(self, name: str) -> Any:
        return getattr(gc, name)

    def get_referrers(self, *objects: Any) -> list[Any]:
        found = gc.get_referrers(*objects)
        for each in objects:
            listed = [reference() for reference in _functions.get(id(each), ())]
            found += [function for function in listed if function is not None and function.__code__ is each]
        return found


def install() -> None:
    """Who looks for functions by their code finds frozen ones too."""
    executed.gc = _Gc("gc")
