"""What a call drops dies where the plain call lets it die, if somebody can tell."""

from __future__ import annotations

import weakref
from collections import deque
from types import SimpleNamespace

import pytest
import torch

import rote
from rote.testing import assert_same


class Held:
    """What is dropped; it may know whom to tell when it dies."""

    deaths: list[int] | None = None

    def __hash__(self):
        return 1


class Telling(Held):
    def __del__(self):
        if self.deaths is not None:
            self.deaths.append(1)


def with_callback(home, value):
    home.seen = weakref.ref(value, lambda _: home.deaths.append(1))


def with_reference(home, value):
    home.seen = weakref.ref(value)


def with_set(home, value):
    home.weak = weakref.WeakSet([value])


def with_dict(home, value):
    home.weak = weakref.WeakValueDictionary({1: value})


def with_finalizer(home, value):
    weakref.finalize(value, home.deaths.append, 1)


def with_own(home, value):
    value.deaths = home.deaths


WATCHING = [with_callback, with_reference, with_set, with_dict, with_finalizer, with_own]
PLACES = {
    "an attribute": (
        lambda home, value: setattr(home, "held", value),
        lambda home: setattr(home, "held", None),
    ),
    "a list": (lambda home, value: home.list.append(value), lambda home: home.list.clear()),
    "a dict": (lambda home, value: home.dict.update({1: value}), lambda home: home.dict.pop(1, None)),
    "a list in it": (lambda home, value: home.list.append([value]), lambda home: home.list.clear()),
    "an object in it": (
        lambda home, value: home.dict.update({1: SimpleNamespace(part=(value,))}),
        lambda home: home.dict.pop(1, None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("watch", WATCHING)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_is_dropped_dies_at_once(watch, place, device):
    put, drop = place

    def make():
        home = SimpleNamespace(list=[], dict={}, held=None, deaths=[], weak=(), seen=None)

        def change(n):
            home.weak, home.seen = (), None
            if n % 4 == 3:
                value = Telling() if watch is with_own else Held()
                watch(home, value)
                put(home, value)

        def act(x):
            drop(home)
            gone = home.seen is None or home.seen() is None
            return x * (len(home.deaths) + 1), len(home.weak), gone, home.held

        return change, act

    (change, act), (change_graphed, other) = make(), make()
    g = rote.graph(other)
    for n in range(16):
        change(n)
        change_graphed(n)
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), act(x))


def test_what_calls_empty_that_had_nothing_in_it(device):
    def make():
        home = SimpleNamespace(list=[], gain=1.0, seen=None)

        def change(n):
            if n % 4 == 3:
                home.list.append(value := Held())
                home.seen = weakref.ref(value, lambda _: setattr(home, "gain", n))

        def act(x):
            home.list.clear()
            return x * home.gain

        return change, act

    (change, act), (change_graphed, other) = make(), make()
    g = rote.graph(other, keep=True)
    for n in range(16):
        change(n)
        change_graphed(n)
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), act(x))
    assert g.report().replayed >= 2, g.report()


GROWN = {
    "a list": (list, lambda held: held.pop(0)),
    "all of a list": (list, lambda held: held.clear()),
    "a member of a list": (list, lambda held: held.__setitem__(0, None)),
    "a deque": (deque, lambda held: held.popleft()),
    "a full deque": (lambda: deque(maxlen=2), lambda held: None),
    "a full deque that is extended": (lambda: deque(maxlen=2), lambda held: held.extend([0])),
}


@pytest.mark.parametrize("watch", WATCHING)
@pytest.mark.parametrize("name", GROWN)
def test_what_is_put_out_of_what_grows_dies_at_once(watch, name, device):
    kind, drop = GROWN[name]

    def make():
        home = SimpleNamespace(held=kind(), deaths=[], weak=(), seen=None)

        def act(x):
            value = Telling() if watch is with_own else Held()
            watch(home, value)
            home.held.append(value)
            del value
            if len(home.held) > 1:
                drop(home.held)
            return x * (len(home.deaths) + 1), len(home.weak)

        return act

    act, other = make(), make()
    g = rote.graph(other)
    for n in range(8):
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), act(x))
