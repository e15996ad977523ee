"""Whether the thread is where the user wants no graphs (:func:`rote.no_graphs`).

A backward pass runs on a device's own thread, where no variable of Python's says what the caller wants.
PyTorch brings the thread-local objects of the caller along, as it does for its own graph trees, so the mark
is one of these.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .torch_private import KEPT_OBJECTS

_NAME = "rote_no_graphs"


_PUT, _HAS, _GET = KEPT_OBJECTS


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
