"""State in objects of the standard library.

Most of Python's own objects are compared by identity: paths, patterns, locks, formatters. Some hold state
that a program branches on: whether an event is set (a robot's emergency stop), a number that another process
writes, the length of a queue. Those are read by their attributes (:func:`holds_state`) or by their bytes
(:func:`memory_of`). State that only a method reveals, such as whether a lock is free, is read only where the
call asks for it: a guard on every lock would give up recordings whenever another thread holds one.

Not everything can be read. A logger caches answers, a path its parts, an executor its threads; these change
while nothing changes that a program can observe.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy

from ...base import is_instance
from .origin import full_name

_STATEFUL = frozenset({
    *("threading.Event", "threading.Semaphore", "threading.BoundedSemaphore", "threading.Barrier"),
    *("queue.Queue", "queue.LifoQueue", "queue.PriorityQueue", "concurrent.futures._base.Future"),
    *("asyncio.locks.Event", "asyncio.queues.Queue", "asyncio.queues.LifoQueue"),
    *("asyncio.queues.PriorityQueue", "contextlib.ExitStack", "graphlib.TopologicalSorter"),
    *("configparser.RawConfigParser", "configparser.ConfigParser", "configparser.SectionProxy"),
    *("multiprocessing.synchronize.Event", "multiprocessing.synchronize.Semaphore"),
    *("multiprocessing.synchronize.BoundedSemaphore", "multiprocessing.synchronize.Condition"),
    *("multiprocessing.sharedctypes.Synchronized", "multiprocessing.sharedctypes.SynchronizedArray"),
    *("multiprocessing.sharedctypes.SynchronizedString", "multiprocessing.sharedctypes.SynchronizedBase"),
    *("multiprocessing.shared_memory.SharedMemory", "multiprocessing.shared_memory.ShareableList"),
    *("collections.UserString", "sched.scheduler", "string.Template"),
})  # fmt: skip
"""Classes whose attributes are state; by name, since importing them all takes long."""

_C_DATA: Any = ctypes.Structure.__mro__[1]


def holds_state(kind: type) -> bool:
    """Whether instances of a class of the standard library hold state in their attributes."""
    return full_name(kind) in _STATEFUL


def memory_of(value: Any) -> Any:
    """The memory of an object as an array; None if the object has none."""
    if not is_instance(value, (memoryview, mmap.mmap, _C_DATA)):
        return None
    try:
        return numpy.asarray(value) if isinstance(value, memoryview) else numpy.frombuffer(value, numpy.uint8)
    except (ValueError, BufferError):  # the memory is empty, closed or released
        return numpy.empty(0)
