"""A function runs other code while a call is traced, and its own before and afterwards."""

from __future__ import annotations

import cProfile
import gc
import threading
import weakref

import pytest

from rote.runtime.reads.watch import WATCH


def helper(x):
    return x + 1


def other(x):
    return x * 2


def caller(x):
    return other(helper(x))


CODES = {function: function.__code__ for function in (helper, other, caller)}


@pytest.fixture(autouse=True)
def own_code_afterwards():
    yield
    for function, code in CODES.items():
        assert function.__code__ is code


def test_own_code_after_a_call():
    trace = WATCH.begin(caller)
    assert caller(3) == 8
    assert WATCH._swaps.is_instrumented(caller.__code__) and WATCH._swaps.is_instrumented(helper.__code__)
    WATCH.end(trace)
    assert not WATCH._swaps.is_instrumented(caller.__code__)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, SystemExit])
def test_own_code_after_an_exception(error):
    def raising(x):
        raise error(helper(x))

    code = raising.__code__
    trace = WATCH.begin(raising)
    try:
        with pytest.raises(error):
            raising(1)
    finally:
        WATCH.end(trace)
    assert raising.__code__ is code


def test_own_code_when_a_call_is_traced_within_another():
    def outer(x):
        trace = WATCH.begin(caller)
        try:
            return caller(x)
        finally:
            WATCH.end(trace)

    trace = WATCH.begin(outer)
    assert outer(3) == 8
    assert WATCH._swaps.is_instrumented(outer.__code__)
    WATCH.end(trace)


def test_a_function_that_got_other_code_meanwhile_keeps_it():
    def function(x):
        return x

    wanted = (lambda x: x + 5).__code__
    trace = WATCH.begin(function)
    function(1)
    function.__code__ = wanted
    WATCH.end(trace)
    assert function.__code__ is wanted and function(1) == 6


def test_other_threads_run_meanwhile():
    stop, results, errors = threading.Event(), set(), []

    def work():
        try:
            while not stop.is_set():
                results.add(caller(3))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            trace = WATCH.begin(caller)
            assert caller(1) == 4
            noted = WATCH.end(trace)
            assert not noted.unseen
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert results == {8} and not errors


def test_what_other_threads_read_is_not_noted():
    log = {"other": 1}

    def reader():
        return log["other"]

    def mine(x):
        thread = threading.Thread(target=reader)
        thread.start()
        thread.join()
        return x

    trace = WATCH.begin(mine)
    mine(1)
    noted = WATCH.end(trace)
    assert not any(read.key == "other" for read in noted.reads)
    assert noted.unseen  # that it hands work to a thread is said


def test_two_threads_trace_at_once():
    ready = threading.Barrier(2)
    found = {}

    def trace_one(name):
        def one():
            return names[name], helper(1)

        names = {name: name}
        for _ in range(50):
            ready.wait()
            trace = WATCH.begin(one)
            one()
            noted = WATCH.end(trace)
            found.setdefault(name, []).append({read.key for read in noted.reads} & {"a", "b"})

    threads = [threading.Thread(target=trace_one, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": [{"a"}] * 50, "b": [{"b"}] * 50}


def test_what_a_call_made_works_afterwards():
    def make(n):
        def add(x):
            return helper(x) + n

        def count():
            for each in range(n):
                yield add(each)

        made = count()
        return add, made, [add(0), next(made)]

    trace = WATCH.begin(make)
    add, made, first = make(3)
    WATCH.end(trace)
    assert first == [4, 4]
    assert add(1) == 5 and list(made) == [5, 6]
    assert not WATCH._swaps.is_instrumented(add.__code__)


def test_functions_are_not_kept_alive():
    def function(x):
        def inner():
            return x

        inner()
        return weakref.ref(inner)

    trace = WATCH.begin(function)
    made = function(1)
    gc.collect()
    assert made() is None
    WATCH.end(trace)


def test_a_profiler_in_c_goes_on():
    namespace: dict = {}
    exec("def fresh(x):\n    return x + 3", namespace)  # code that nobody has made ready before
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        trace = WATCH.begin(namespace["fresh"])
        assert namespace["fresh"](4) == 7
        WATCH.end(trace)
    finally:
        profiler.disable()
    assert any(
        entry.code.co_name == "fresh" for entry in profiler.getstats() if not isinstance(entry.code, str)
    )
