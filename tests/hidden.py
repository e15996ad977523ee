"""A place that rote does not look into, for tests of what it does where it cannot see."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

import rote


def queued(items: Iterable[Any] = ()) -> Any:
    """A queue whose methods are declared to depend on their arguments alone, which is not true."""
    held: Any = logging.Logger("hidden")
    waiting = deque(items)
    held.get = held.get_nowait = waiting.popleft
    held.put = waiting.append
    held.qsize = waiting.__len__
    held.empty = lambda: not waiting
    for method in (held.get, held.put, held.qsize, held.empty):
        rote.pure(method)
    return held
