"""Arrays that a call makes, lets be seen in another way, and writes then: what is seen is what was written.

Numbers change, stay for the calls that are traced, and change again: nobody tells by comparing those calls.
"""

from __future__ import annotations

import numpy
import pytest
import torch
from tests.conformance.test_arrays_given import assert_alike

import rote

CALLS = 26

WAYS = {
    "a view in a list": lambda a: [a[:2]],
    "a view in a dict": lambda a: {"part": a[:2]},
    "an iterator": lambda a: iter(a[:2]),
    "pairs": lambda a: zip(a[:2], [1, 2], strict=True),
    "a flat iterator": lambda a: a.flat,
    "memory": memoryview,
    "a view of memory": lambda a: memoryview(a)[:2],
    "an iterator of numpy's": lambda a: numpy.nditer(a[:1]),
    "other rows": lambda a: [numpy.expand_dims(a, 0), numpy.zeros((1, 4))],
    "the real part": lambda a: [a.real],
    "parts": lambda a: numpy.split(a, 2),
    "the same in an object of C": lambda a: numpy.array([a, None], dtype=object),
    "a tensor": lambda a: [torch.from_numpy(a)],
    "a record": lambda a: a.view([("x", float)]),
}


def seen(way, found):
    """What is seen of the first number, in a way that is told of no array."""
    if way in ("an iterator", "an iterator of numpy's"):
        return float(next(found))
    if way == "pairs":
        return float(next(found)[0])
    if way in ("a flat iterator", "memory", "a view of memory"):
        return float(found[0])
    if way == "a view in a dict":
        return float(numpy.sum([*found.values()]))
    if way == "other rows":
        return float(numpy.concatenate(found)[0, 0])
    if way == "the same in an object of C":
        return float(numpy.hstack([found[0], found[0]])[0])
    if way == "a record":
        return float(numpy.concatenate([found, found])["x"][0])
    if way == "a tensor":
        return float(max(found).sum())
    return float(numpy.concatenate([*found, numpy.ones(2)])[0])


def of_zeros(way, x, given, number):
    made = numpy.zeros(4)
    found = WAYS[way](made)
    made[0] = number
    return x * seen(way, found)


def of_given(way, x, given, number):
    made = given.copy()
    found = WAYS[way](made)
    made += number
    return x * seen(way, found)


def in_a_list(way, x, given, number):
    made = numpy.zeros(4)
    made[1] = number
    found = WAYS[way](made)
    made[0] = number + 1
    return x * seen(way, found)


@pytest.mark.parametrize("still", [3, 4, 6])
@pytest.mark.parametrize("step", [of_zeros, of_given, in_a_list])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_seen_is_what_was_written(device, way, step, still):
    def played(call):
        found = []
        for n in range(CALLS):
            value = float(min(n, still) if n < 18 else n)
            x = torch.arange(1.0, 5, device=device)
            found.append(call(way, x, numpy.full(4, value % 5), value))
        return found

    assert_alike(played(rote.graph(step)), played(step))


@pytest.mark.parametrize("still", [3, 4, 6])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_seen_of_state_is_what_was_written(device, way, kept, still):
    """The array lies in state; what looks at it is made in the call, or was before it."""

    def played(wrap):
        own = numpy.zeros(4)
        held = {"found": None}

        def step(x, number):
            found = held["found"] if kept else WAYS[way](own)
            own[0] = own[0] * 0.5 + number
            return x * seen(way, found)

        call, results = wrap(step), []
        for n in range(CALLS):
            value = float(min(n, still) if n < 18 else n)
            held["found"] = WAYS[way](own)
            results.append((call(torch.arange(1.0, 5, device=device), value), own.copy()))
        return results

    assert_alike(played(rote.graph), played(lambda step: step))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_seen_before_a_number_is_known(device, way):
    """The number lies in state, and is read once something looks at the array."""

    def played(wrap):
        held = {"number": 0.0}

        def step(x):
            made = numpy.zeros(4)
            found = WAYS[way](made)
            made[0] = held["number"]
            return x * seen(way, found)

        call, results = wrap(step), []
        for n in range(CALLS):
            held["number"] = float(min(n, 3) if n < 18 else n)
            results.append(call(torch.arange(1.0, 5, device=device)))
        return results

    assert_alike(played(rote.graph), played(lambda step: step))
