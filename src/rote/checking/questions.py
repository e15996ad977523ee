"""What the checker asks objects of the standard library: whether a lock is taken, what is left in a queue.

An object is asked only what the program asks it, by the names in its code.
"""

from __future__ import annotations

import gc
import logging
import threading
from _queue import SimpleQueue
from collections.abc import Callable
from typing import Any

import torch

from ..base.collector import COLLECTOR
from ..signature.processes import groups

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_ASKS_A_THREAD = frozenset({"is_alive", "ident", "native_id"})
_ASKS_THE_COLLECTOR = frozenset({
    "gc", "enable", "disable", "isenabled", "set_threshold", "get_threshold", "set_debug", "get_debug",
})  # fmt: skip
_ASKS_A_LOGGER = frozenset({"isEnabledFor", "getEffectiveLevel", "level", "disabled"})


def question_for(value: Any, names: frozenset[str] | set[str]) -> str | None:
    """The question that a program asks an object, by the names in its code; one of :data:`ANSWERS`."""
    if value is torch.distributed:
        return "groups"
    if value is gc:
        return None if _ASKS_THE_COLLECTOR.isdisjoint(names) else "settings"
    if isinstance(value, SimpleQueue):
        return "qsize()"
    if isinstance(value, logging.Logger):
        return None if _ASKS_A_LOGGER.isdisjoint(names) else "getEffectiveLevel()"
    if isinstance(value, _LOCKS):
        return "locked()" if "locked" in names and hasattr(value, "locked") else None
    if isinstance(value, threading.Thread):
        return None if _ASKS_A_THREAD.isdisjoint(names) else "is_alive()"
    if type(value).__name__ == "SemLock":  # what multiprocessing is made of; one that is no mutual exclusion
        return "value" if value.kind == 1 and value.maxvalue > 1 else None
    return None


def _left(semaphore: Any) -> int | bool:
    try:
        return semaphore._get_value()
    except NotImplementedError:  # macOS
        return semaphore._is_zero()


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "qsize()": lambda queue: queue.qsize(),
    "getEffectiveLevel()": lambda logger: (
        logger.getEffectiveLevel(), logger.level, logger.disabled, logger.manager.disable,
    ),
    "is_alive()": lambda thread: (thread.is_alive(), thread.ident),
    "locked()": lambda lock: lock.locked(),
    "value": _left,
    "settings": lambda collector: COLLECTOR.settings(),
    "groups": lambda distributed: groups(),
}  # fmt: skip
