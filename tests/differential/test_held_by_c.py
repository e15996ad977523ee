"""What objects of C hand out: attributes of others, of a thread, and what iterators and arrays hold."""

from __future__ import annotations

import itertools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.differential.harness import check, drive

import rote

Case = tuple[Callable[..., Any], Callable[[], Any]]


def of_a_thread() -> Case:
    held = threading.local()
    held.s = 1.0
    return lambda x: x * held.s, lambda: setattr(held, "s", 5.0)


def of_a_thread_by_getattr() -> Case:
    held = threading.local()
    held.s = 1.0
    return lambda x: x * getattr(held, "s"), lambda: setattr(held, "s", 5.0)  # noqa: B009


def of_a_thread_by_vars() -> Case:
    held = threading.local()
    held.s = 1.0
    return lambda x: x * vars(held)["s"], lambda: setattr(held, "s", 5.0)


def of_a_thread_or_not() -> Case:
    held = threading.local()
    return lambda x: x * 2 if hasattr(held, "s") else x, lambda: setattr(held, "s", 5.0)


def of_a_thread_and_its_class() -> Case:
    class Held(threading.local):
        s = 1.0

    held = Held()
    return lambda x: x * held.s, lambda: setattr(held, "s", 5.0)


def of_a_thread_by_a_method() -> Case:
    class Held(threading.local):
        def scale(self):
            return self.s

    held = Held()
    held.s = 1.0
    return lambda x: x * held.scale(), lambda: setattr(held, "s", 5.0)


def of_a_thread_instead_of_a_method() -> Case:
    class Held(threading.local):
        def scale(self):
            return 1.0

    held = Held()
    return lambda x: x * held.scale(), lambda: setattr(held, "scale", lambda: 5.0)


def behind_a_method() -> Case:
    class Owner:
        def f(self):
            pass

        f.s = 1.0

    owner = Owner()
    return lambda x: x * owner.f.s, lambda: setattr(Owner.f, "s", 5.0)


def behind_a_generic_alias() -> Case:
    class Owner(list[Any]):
        s = 1.0

    alias = types.GenericAlias(Owner, (int,))
    return lambda x: x * alias.s, lambda: setattr(Owner, "s", 5.0)


def repeated() -> Case:
    held = [1.0]
    found = itertools.repeat(held)
    return lambda x: x * next(found)[0], lambda: held.__setitem__(0, 5.0)


def repeated_in_pairs() -> Case:
    held = [1.0]
    found = zip(itertools.repeat(held), itertools.repeat(2), strict=False)
    return lambda x: x * next(found)[0][0], lambda: held.__setitem__(0, 5.0)


def over_and_over() -> Case:
    held = [1.0]
    found = itertools.cycle([held])
    return lambda x: x * next(found)[0], lambda: held.__setitem__(0, 5.0)


def in_an_array_by_iteration() -> Case:
    held = [1.0]
    found = numpy.array([held, None], object)
    return lambda x: x * next(iter(found))[0], lambda: held.__setitem__(0, 5.0)


def in_an_array_by_a_method() -> Case:
    held = [1.0]
    found = numpy.array([held, None], object)
    return lambda x: x * found.tolist()[0][0], lambda: held.__setitem__(0, 5.0)


def in_a_field_of_an_array() -> Case:
    held = [1.0]
    found = numpy.zeros(2, dtype=[("a", object)])
    found["a"][0] = held
    return lambda x: x * found[0]["a"][0], lambda: held.__setitem__(0, 5.0)


MAY_BE_EAGER = [repeated, repeated_in_pairs, over_and_over, in_a_field_of_an_array]
STANDING = [
    of_a_thread, of_a_thread_by_getattr, of_a_thread_by_vars, of_a_thread_or_not, of_a_thread_and_its_class,
    of_a_thread_by_a_method, of_a_thread_instead_of_a_method, behind_a_method, behind_a_generic_alias,
    in_an_array_by_iteration, in_an_array_by_a_method,
]  # fmt: skip


@pytest.mark.parametrize("case", [*STANDING, *MAY_BE_EAGER])
def test_changed_between_calls(case: Callable[[], Case]):
    def scenario(wrap):
        fn, change = case()
        g = wrap(fn)
        yield from drive(g, change=change)
        yield from drive(g)
        replays = case in STANDING and isinstance(g, rote.Graphed)
        assert not replays or g.report().replayed >= 8, g.report()

    check(scenario)


def test_written_for_a_thread():
    def scenario(wrap):
        held = threading.local()
        held.s = 1.0

        def fn(x):
            held.s += 1
            return x * held.s

        yield from drive(wrap(fn))
        yield held.s

    check(scenario)


def test_read_in_another_thread():
    def scenario(wrap):
        held = threading.local()
        held.s = 1.0
        g = wrap(lambda x: x * held.s)
        found = []

        def work():
            held.s = 5.0
            found.extend(drive(g))

        yield from drive(g)
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        yield found
        yield from drive(g)

    check(scenario)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, threading.Semaphore])
def test_a_lock_that_is_taken_if_it_is_free(make: Callable[[], Any]):
    def scenario(wrap):
        lock = make()

        def fn(x):
            free = lock.acquire(False)
            if free:
                lock.release()
            return x * 2 if free else x

        def take():
            taker = threading.Thread(target=lock.acquire)
            taker.start()
            taker.join()

        g = wrap(fn)
        yield from drive(g, change=take)
        assert make is threading.RLock or not isinstance(g, rote.Graphed) or g.report().replayed >= 4

    check(scenario)
