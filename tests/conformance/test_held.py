"""What is compared by what it holds counts wherever it lies: in defaults, behind methods, in objects of C."""

from __future__ import annotations

import array
import functools
import random

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same


def bump(held):
    held[0] = held[0] + 1


OBJECTS = [
    (lambda: numpy.ones(3), lambda held: float(held[0]), bump, lambda held: held.item),
    (lambda: bytearray(b"abc"), lambda held: held[0], bump, lambda held: held.__getitem__),
    (lambda: array.array("d", [1.0, 2.0]), lambda held: held[0], bump, lambda held: held.__getitem__),
    (lambda: {7}, lambda held: 2 + (8 in held), lambda held: held.add(8), lambda held: held.__contains__),
    (lambda: iter([1.0, 2.0, 3.0]), lambda held: held.__length_hint__(), next,
     lambda held: held.__length_hint__),
    (lambda: random.Random(1), lambda held: hash(held.getstate()) % 7, lambda held: held.random(), None),
]  # fmt: skip


def default(held, look):
    return lambda x, held=held: x * look(held)


def keyword(held, look):
    def call(x, *, held=held):
        return x * look(held)

    return call


def partial(held, look):
    return functools.partial(lambda held, x: x * look(held), held)


def nested(held, look):
    def call(x, lists=([held],)):
        return x * look(lists[0][0])

    return call


def cache(held, look):
    @functools.cache
    def cached():
        return held

    cached()
    return lambda x: x * look(cached())


def objects(held, look):
    boxed = numpy.empty(1, object)
    boxed[0] = held
    return lambda x: x * look(boxed[0])


@pytest.mark.parametrize("place", [default, keyword, partial, nested, cache, objects])
@pytest.mark.parametrize(("make", "look", "change", "method"), OBJECTS)
def test_a_place_that_is_no_slot(device, place, make, look, change, method):
    held = make()
    follow(device, place(held, look), lambda: change(held))


@pytest.mark.parametrize(("make", "look", "change", "method"), [each for each in OBJECTS if each[3]])
def test_behind_a_method(device, make, look, change, method):
    held = make()
    asked = method(held)
    argument = {"__contains__": (8,), "__length_hint__": ()}.get(asked.__name__, (0,))
    follow(device, lambda x: x * (2 + asked(*argument)), lambda: change(held))


def follow(device, call, change):
    g, x = rote.graph(call), torch.ones(2, device=device)
    for _ in range(2):
        for _ in range(5):
            assert_same(g(x), call(x))
        change()
    assert_same(g(x), call(x))
    assert g.report().replayed >= 5, g.explain()


ITERATORS = [
    lambda: iter([1.0, 2.0] * 40), lambda: iter((1.0, 2.0) * 40), lambda: (float(n) for n in range(99)),
    lambda: iter(dict.fromkeys(range(99))), lambda: iter(dict.fromkeys(range(99)).items()),
    lambda: iter(range(99)),
    lambda: reversed([1.0, 2.0] * 40), lambda: iter("5" * 99), lambda: iter(set(range(99))),
]  # fmt: skip


@pytest.mark.parametrize("make", ITERATORS)
def test_an_iterator_that_its_own_method_moves(device, make):
    step, plain = make().__next__, make().__next__
    g, x = rote.graph(lambda x: x * len(str(step()))), torch.ones(2, device=device)
    for _ in range(6):
        assert_same(g(x), x * len(str(plain())))
    assert g.report().replayed == 0 and "RT201" in {why.code for why in g.report().reasons}


@pytest.mark.parametrize("place", [default, keyword])
def test_a_number_within_a_large_array(device, place):
    """All of it is compared, not a sample."""
    held = numpy.ones(50_000)
    fn = place(held, lambda held: float(held.sum()))
    g, x = rote.graph(fn), torch.ones(4, device=device)
    for n in range(12):
        if n == 8:
            held[33_333] = 1000.0
        assert_same(g(x), fn(x), f"call {n}")
    assert g.report().replayed >= 4, g.explain()


def test_an_array_that_is_too_large_to_be_compared(device):
    held = numpy.ones((1 << 21) + 1)
    fn = default(held, lambda held: float(held[7]))
    g, x = rote.graph(fn), torch.ones(4, device=device)
    for n in range(8):
        held[7] = n
        assert_same(g(x), fn(x), f"call {n}")
    assert g.report().replayed == 0
    assert any(why.code == "RT218" and "an array of 16 MB" in why.message for why in g.report().reasons)
