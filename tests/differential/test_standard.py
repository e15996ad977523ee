"""State in objects of the standard library: changed between calls, asked for and changed by calls."""

from __future__ import annotations

import array
import collections
import configparser
import contextlib
import ctypes
import io
import logging
import mmap
import multiprocessing
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy
import pytest
import torch
from tests.differential.harness import check, drive

import rote
from rote.runtime.objects.marks import ARRAY_BYTES

Case = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[], object]]


def event() -> Case:
    stop = threading.Event()
    return lambda x: x * 0 if stop.is_set() else x, stop.set


def process_event() -> Case:
    stop = multiprocessing.Event()
    return lambda x: x * 0 if stop.is_set() else x, stop.set


def process_value() -> Case:
    gain = multiprocessing.Value("d", 1.0)
    return lambda x: x * gain.value, lambda: setattr(gain, "value", 5.0)


def process_array() -> Case:
    gains = multiprocessing.Array("d", [1.0, 2.0])
    return lambda x: x * gains[0], lambda: gains.__setitem__(0, 5.0)


def raw_value() -> Case:
    gain = ctypes.c_double(1.0)
    return lambda x: x * gain.value, lambda: setattr(gain, "value", 5.0)


def structure() -> Case:
    class Gains(ctypes.Structure):
        _fields_ = (("first", ctypes.c_double),)

    gains = Gains(1.0)
    return lambda x: x * gains.first, lambda: setattr(gains, "first", 5.0)


def lock() -> Case:
    busy = threading.Lock()
    return lambda x: x * 2 if busy.locked() else x, busy.acquire


def semaphore() -> Case:
    free = threading.Semaphore(1)
    return lambda x: x if free._value else x * 2, free.acquire


def barrier() -> Case:
    gate = threading.Barrier(2)
    return lambda x: x * 2 if gate.broken else x, gate.abort


def logger() -> Case:
    log = logging.getLogger("rote.tests.standard.child")
    log.parent.setLevel(logging.INFO)
    return lambda x: x * 2 if log.isEnabledFor(logging.DEBUG) else x, lambda: log.parent.setLevel(
        logging.DEBUG
    )


def length_of_a_queue() -> Case:
    waiting: queue.Queue[int] = queue.Queue()
    return lambda x: x * 2 if waiting.empty() else x, lambda: waiting.put(1)


def first_of_a_queue() -> Case:
    waiting: queue.PriorityQueue[float] = queue.PriorityQueue()
    waiting.put(2.0)
    return lambda x: x * waiting.queue[0], lambda: waiting.put(1.0)


def length_of_a_simple_queue() -> Case:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    return lambda x: x * 2 if waiting.empty() else x, lambda: waiting.put(1)


def future() -> Case:
    result: Future[float] = Future()
    return lambda x: x * result.result() if result.done() else x, lambda: result.set_result(5.0)


def view_of_memory() -> Case:
    gains = bytearray(b"\1\2")
    seen = memoryview(gains)
    return lambda x: x * seen[0], lambda: gains.__setitem__(0, 5)


def view_of_an_array() -> Case:
    gains = array.array("d", [1.0])
    seen = memoryview(gains)
    return lambda x: x * seen[0], lambda: gains.__setitem__(0, 5.0)


def mapped_memory() -> Case:
    gains = mmap.mmap(-1, 8)
    gains[0] = 1
    return lambda x: x * gains[0], lambda: gains.__setitem__(0, 5)


def view_of_a_dict() -> Case:
    gains = {"first": 1.0}
    seen = gains.values()
    return lambda x: x * sum(seen), lambda: gains.update(first=5.0)


def configuration() -> Case:
    settings = configparser.ConfigParser()
    settings.read_dict({"policy": {"gain": "1.0"}})
    return lambda x: x * settings.getfloat("policy", "gain"), lambda: settings.set("policy", "gain", "5.0")


def text_in_memory() -> Case:
    text = io.StringIO("1")
    return lambda x: x * float(text.getvalue()), lambda: (text.seek(0), text.write("5"))


def bytes_in_memory() -> Case:
    data = io.BytesIO(b"1")
    return lambda x: x * float(data.getvalue()), lambda: (data.seek(0), data.write(b"5"))


def string_of_the_user() -> Case:
    name = collections.UserString("a")
    return lambda x: x * 2 if name == "b" else x, lambda: setattr(name, "data", "b")


def array_of_objects() -> Case:
    gains = numpy.array([1.0, None], object)
    return lambda x: x * gains[0], lambda: gains.__setitem__(0, 5.0)


def inside_an_array_of_objects() -> Case:
    gains = numpy.array([[1.0], None], object)
    return lambda x: x * gains[0][0], lambda: gains[0].__setitem__(0, 5.0)


def error() -> Case:
    met = ValueError()
    met.gain = 1.0
    return lambda x: x * met.gain, lambda: setattr(met, "gain", 5.0)


def callbacks() -> Case:
    stack = contextlib.ExitStack()
    return lambda x: x * len(stack._exit_callbacks), lambda: stack.callback(print)


CASES = [
    *(event, process_event, process_value, process_array, raw_value, structure, lock, semaphore, barrier),
    *(logger, length_of_a_queue, first_of_a_queue, length_of_a_simple_queue, future, view_of_memory),
    *(view_of_an_array, mapped_memory, view_of_a_dict, configuration, text_in_memory, bytes_in_memory),
    *(string_of_the_user, array_of_objects, inside_an_array_of_objects, error, callbacks),
]


EAGER = (process_event, process_value, process_array)
"""Of locks between processes nothing is known."""


@pytest.mark.parametrize("case", CASES)
def test_changed_between_calls(case: Callable[[], Case]):
    def scenario(wrap):
        fn, change = case()
        g = wrap(fn)
        yield from drive(g, change=change)
        yield from drive(g)
        replays = isinstance(g, rote.Graphed) and case not in EAGER
        assert not replays or g.report().replayed >= 8, g.report()

    check(scenario)


@pytest.mark.parametrize("make", [queue.Queue, queue.LifoQueue, queue.SimpleQueue, threading.Semaphore])
def test_changed_by_calls(make: Callable[[], Any]):
    def scenario(wrap):
        held = make()

        def fn(x):
            if make is threading.Semaphore:
                held.release()
            else:
                held.put(1)
            return x * 2

        yield from drive(wrap(fn))
        yield held._value if make is threading.Semaphore else held.qsize()

    check(scenario)


def test_values_taken_from_a_queue_that_are_equal_at_first():
    def scenario(wrap):
        values: queue.SimpleQueue[float] = queue.SimpleQueue()
        for value in [1.0] * 6 + [5.0] * 10:
            values.put(value)
        yield from drive(wrap(lambda x: x * values.get_nowait()))

    check(scenario)


def test_a_thread_that_is_asked_whether_it_runs():
    def scenario(wrap):
        over = threading.Event()
        worker = threading.Thread(target=over.wait)
        worker.start()

        def end():
            over.set()
            worker.join()

        try:
            yield from drive(wrap(lambda x: x * 2 if worker.is_alive() else x), change=end)
        finally:
            end()

    check(scenario)


@pytest.mark.parametrize("way", ["lock", "logger"])
def test_what_is_not_asked_for_is_not_watched(way: str):
    """A lock that another thread holds now, and a logger that only writes, give up nothing."""
    busy, log = threading.Lock(), logging.getLogger("rote.tests.standard.quiet")

    def fn(x):
        if way == "lock":
            with contextlib.nullcontext(busy):
                return x * 2
        log.debug("not written")
        return x * 2

    log.setLevel(logging.INFO)
    g = rote.graph(fn)
    for step in range(9):
        if way == "lock" and step % 2:
            busy.acquire()
        assert torch.equal(g(torch.full((3,), float(step))), torch.full((3,), 2.0 * step))
        if busy.locked():
            busy.release()
    assert g.report().replayed >= 5, g.report()


@pytest.mark.parametrize("shape, order", [((100_000,), "C"), ((480, 640, 3), "C"), ((640, 480, 3), "F")])
@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2)])
def test_a_large_array_that_is_written_in_place(shape: tuple[int, ...], order: Any, part: slice):
    """A camera's frame: no sample of it stays as it was."""

    def scenario(wrap):
        frame = numpy.ones(shape, numpy.float32, order)[..., part]
        assert frame.nbytes > ARRAY_BYTES
        g = wrap(lambda x: x * float(frame.mean()))
        yield from drive(g, change=lambda: frame.fill(3.0))
        yield from drive(g)
        assert not isinstance(g, rote.Graphed) or g.report().replayed >= 8, g.report()

    check(scenario)


def test_memory_that_is_closed():
    seen = memoryview(bytearray(b"\1"))
    g = rote.graph(lambda x: x * seen[0])
    for _ in range(4):
        g(torch.ones(2))
    seen.release()
    with pytest.raises(ValueError, match="released memoryview"):
        g(torch.ones(2))
