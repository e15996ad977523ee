"""What fixtures hide from rote."""

from __future__ import annotations

from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any


def queued(items: Iterable[Any]) -> SimpleQueue[Any]:
    """A queue of items; to look at one is to take it."""
    found: SimpleQueue[Any] = SimpleQueue()
    for item in items:
        found.put(item)
    return found
