"""Names of PyTorch that rote replaces while a call is traced, so that its code goes the way it goes in eager.

What runs aside, as compiled code that PyTorch still has to compile, gets the originals: its guards look at
functions by their identity, and would fit no plain call.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NamedTuple


class _Replacement(NamedTuple):
    """A name that stands for something else."""

    owner: Any
    name: str
    original: Any
    value: Any


class Replacements:
    """The names that are replaced now, in the order in which they were."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._replaced: list[_Replacement] = []

    @contextmanager
    def replaced(self, owner: Any, name: str, value: Any) -> Generator[Any]:
        """A context in which a module or a class has something else under a name; gives the original."""
        with self._lock:
            made = _Replacement(owner, name, getattr(owner, name), value)
            self._replaced.append(made)
            setattr(owner, name, value)
        try:
            yield made.original
        finally:
            with self._lock:
                self._take_back(made)

    def _take_back(self, made: _Replacement) -> None:
        """Threads end in any order: what was put on top keeps its place, over what lay below this one."""
        place = next(n for n, each in enumerate(self._replaced) if each.value is made.value)
        original = self._replaced.pop(place).original
        for n, each in enumerate(self._replaced[place:], place):
            if each.owner is made.owner and each.name == made.name:
                self._replaced[n] = each._replace(original=original)
                return
        setattr(made.owner, made.name, original)

    @contextmanager
    def withdrawn(self) -> Generator[None]:
        """A context in which the names stand for what they stand for outside of traced calls."""
        with self._lock:
            replaced = [*self._replaced]
            for each in reversed(replaced):
                setattr(each.owner, each.name, each.original)
        try:
            yield
        finally:
            with self._lock:
                for each in replaced:
                    setattr(each.owner, each.name, each.value)


REPLACEMENTS = Replacements()
"""The names are the process's."""
