"""State in objects of the standard library, where programs ask for it.

Of Python's own objects most are taken by identity: paths, patterns, locks, formatters. Some hold what a
program branches on: whether an event is set (a robot's emergency stop), a number that another process
writes, how much is left in a queue, the level of a logger. Those are looked into, in one of three ways: by
their attributes (:func:`holds_state`), by their bytes (:func:`memory_of`), or by asking what the program
asks (:func:`question_for`), which is done only where its code names the question: to guard the state of every
lock would give up recordings whenever another thread holds one.

What does not work: to look into everything. A logger keeps what it was asked, a path its parts, an executor
its threads; they change while nothing changes that a program can tell.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy

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
"""Classes whose attributes are state; by name, since to import them all takes long."""

_C_DATA: Any = ctypes.Structure.__mro__[1]


def holds_state(kind: type) -> bool:
    """Whether instances of a class of the standard library hold state in their attributes."""
    return full_name(kind) in _STATEFUL


def memory_of(value: Any) -> Any:
    """The memory of an object as an array; None for objects without."""
    if not isinstance(value, (memoryview, mmap.mmap, _C_DATA)):
        return None
    try:
        return numpy.asarray(value) if isinstance(value, memoryview) else numpy.frombuffer(value, numpy.uint8)
    except (ValueError, BufferError):  # it is empty, closed or released
        return numpy.empty(0)
