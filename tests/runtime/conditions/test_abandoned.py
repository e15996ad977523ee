"""Which objects guards alone hold: told by who refers to them, and to those."""

from __future__ import annotations

import types
from collections import OrderedDict, deque

import pytest
import torch

from rote.runtime.conditions.abandonment import MOST_PLAIN, abandoned, is_plain
from rote.runtime.state import ITEM, Entry


class Thing:
    pass


def guarded(value):
    return Entry(ITEM, {}, "key", value, 0)


def asked(make):
    """Whether an object is abandoned that only lies in the list that is asked about, and in an entry."""
    values = [make()]
    entry = guarded(values[0])
    found = abandoned(values)
    assert entry.value is values[0]
    return found


def test_an_object_that_only_entries_hold():
    assert asked(Thing) == asked(lambda: [1, {}]) == asked(lambda: {"k": []}) == [True]


def test_a_local_variable_holds():
    thing = Thing()
    assert asked(lambda: thing) == [False]


def test_a_container_that_is_held_holds():
    inner = [[]]
    outer = {"k": (inner,)}
    assert asked(lambda: inner[0]) == [False]
    assert outer["k"] == (inner,)


def test_a_container_that_nobody_holds_does_not():
    def make():
        inner = []
        inner.append({"outer": [inner]})
        return inner

    assert asked(make) == [True]


def test_a_cycle_holds_nothing():
    def make():
        thing, other = Thing(), Thing()
        thing.other, other.thing = other, thing
        return thing

    assert asked(make) == [True]


def test_a_cycle_with_one_part_that_is_held():
    thing, other = Thing(), Thing()
    thing.other, other.thing = other, thing
    values = [thing]
    del thing
    assert abandoned(values) == [False]


def test_each_is_told_apart():
    kept = Thing()
    values = [Thing(), kept, Thing()]
    assert abandoned(values) == [True, False, True]


def test_what_a_closure_holds():
    def make():
        thing = Thing()
        return lambda: thing

    function = make()
    values = [function.__closure__[0].cell_contents]
    assert abandoned(values) == [False]
    del function
    assert abandoned(values) == [True]


def filled(**attributes):
    thing = Thing()
    vars(thing).update(attributes)
    return thing


class Slotted:
    __slots__ = ("one",)


@pytest.mark.parametrize(
    "value",
    [1, "a", None, [], ["a", 2.0], {"k": [(1, "b")]}, OrderedDict(k=True), deque([1]), {1, 2},
     frozenset("ab"), filled(mode="a", sizes=[1, 2]), types.SimpleNamespace(rate=0.1)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_made_of_plain_values(value):
    assert is_plain(value)


@pytest.mark.parametrize(
    "value",
    [torch.ones(1), [torch.ones(1)], {"k": object()}, torch.nn.Linear(1, 1), filled(x=torch.ones(1)),
     Slotted(), lambda: 0, b"a",
     [[n] for n in range(MOST_PLAIN)], [1] * (MOST_PLAIN + 1), {n: n for n in range(MOST_PLAIN)}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_may_keep_memory(value):
    assert not is_plain(value)


def test_what_contains_itself():
    value = []
    value.append(value)
    assert is_plain(value)
