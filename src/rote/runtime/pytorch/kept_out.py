"""Whether the thread is where the user wants no graphs (:func:`rote.no_graphs`).

A backward pass runs on a device's own thread, where no variable of Python's says what the caller wants.
PyTorch brings the thread-local objects of the caller along, as it does for its own graph trees, so the mark
is one of these. Their names were seen in torch 2.11 and 2.13. Where they are missing the mark is a variable
of the thread, and a backward pass on a device's thread does not see it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from .torch_private import KeptObjects, kept_objects

_NAME = "rote_no_graphs"


class _OfThread(threading.local):
    """Objects of a thread that no other thread gets."""

    def __init__(self) -> None:
        self._known: dict[str, object] = {}

    def put(self, name: str, value: object) -> None:
        self._known[name] = value

    def has(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str) -> object:
        return self._known[name]


def _objects() -> KeptObjects:
    own = _OfThread()
    return kept_objects() or KeptObjects(own.put, own.has, own.get)


_PUT, _HAS, _GET = _objects()


def is_kept_out() -> bool:
    """Whether the thread, or the one for which it walks back, is kept out of graphs."""
    return _HAS(_NAME) and _GET(_NAME) is True


@contextmanager
def keeping_out() -> Generator[None]:
    """A context in which the thread is kept out of graphs."""
    before = is_kept_out()
    _PUT(_NAME, True)
    try:
        yield
    finally:
        _PUT(_NAME, before)
