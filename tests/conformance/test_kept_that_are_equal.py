"""Which object a call keeps: one that is equal to the one that lay there is another, and can be changed."""

from __future__ import annotations

import array
import collections
import operator
import random
import types

import numpy
import pytest
import torch

import rote

CALLS = 10
MAKERS = {
    "set": lambda: {"a", "b"},
    "array": lambda: numpy.ones(3),
    "large array": lambda: numpy.ones(40_000),
    "bytes": lambda: bytearray(b"ab"),
    "numbers": lambda: array.array("d", [1.0]),
    "generator": lambda: random.Random(0),
    "memory": lambda: memoryview(bytearray(b"ab")),
    "record": lambda: numpy.zeros(1, dtype=[("a", "i4")])[0],
}


def shifted(state):
    state.last = state.before
    state.before = state.now


def swapped(state):
    state.now, state.last = state.last, state.now


def put_back(state):
    state.last = state.now
    state.now = state.last


KEEPERS = {
    "attribute": lambda state: setattr(state, "last", state.now),
    "member": lambda state: state.table.update(last=state.now),
    "item": lambda state: operator.setitem(state.table, "last", state.now),
    "shifted": shifted,
    "swapped": swapped,
    "put back": put_back,
    "member of a list": lambda state: operator.setitem(state.members, slice(0, 1), [state.now]),
}
PARTS = {
    "object": types.SimpleNamespace,
    "list": lambda: [1],
    "set": lambda: {1},
    "array": lambda: numpy.ones(2),
    "objects in a tuple": lambda: (types.SimpleNamespace(), 1),
}
Pair = collections.namedtuple("Pair", "a b")
RESULTS = {
    "tuple": lambda state: state.pair,
    "in a tuple": lambda state: (state.pair, 2),
    "in a list": lambda state: [state.pair],
    "in an object": lambda state: types.SimpleNamespace(pair=state.pair),
    "more of it": lambda state: state.pair + state.pair,
    "its members": lambda state: [*state.pair],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", MAKERS)
def test_kept_from_another_slot(kind):
    """The program replaces it by an equal one between calls."""
    make = MAKERS[kind]
    state = types.SimpleNamespace(now=make(), last=None, table={})

    def step(x):
        state.last = state.now
        state.table["last"] = state.now
        return x * 2

    g = rote.graph(step)
    for _ in range(CALLS):
        state.now = make()
        g(torch.ones(3))
        assert state.last is state.now
        assert state.table["last"] is state.now
    g.reset()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
@pytest.mark.parametrize("kind", MAKERS)
def test_kept_until_an_equal_one_is_there(kind, keep):
    """Calls keep the same one again and again; then the program replaces it by an equal one."""
    make = MAKERS[kind]

    def fresh():
        first = met[0]
        table, members = {"last": first}, [first]
        return types.SimpleNamespace(now=first, last=first, before=first, table=table, members=members)

    def step(x):
        keep(state)
        return x * 2

    def which(held):
        slots = (held.now, held.last, held.before, held.table["last"], *held.members)
        return [next(place for place, each in enumerate(met) if each is one) for one in slots]

    met = [make()]
    state, wanted = fresh(), fresh()
    g = rote.graph(step, keep=True)
    for number in range(12):
        if number in (5, 9):
            met.append(make())
            state.now = wanted.now = met[-1]
        g(torch.ones(3))
        keep(wanted)
        assert which(state) == which(wanted), f"call {number}"
    assert g.report().replayed, g.explain()
    g.reset()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tuples", [tuple, Pair._make], ids=["tuple", "named"])
@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_tuple_is_returned_with_what_it_holds(part, result, tuples):
    """What lies in a tuple outside is not the call's own, though the call has looked at none of it."""
    state = types.SimpleNamespace()
    g = rote.graph(lambda x: (x * 2, result(state)), keep=True)
    for number in range(10):
        if number in (0, 6):
            state.pair = tuples((part(), part()))
        found = objects_in(g(torch.ones(3))[1])
        assert found == objects_in(result(state)), f"call {number}"
    g.reset()


def objects_in(value):
    """The identities of what lies in tuples, lists and objects."""
    if isinstance(value, types.SimpleNamespace) and vars(value):
        return objects_in([*vars(value).values()])
    return (
        [objects_in(each) for each in value]
        if isinstance(value, (tuple, list)) and value != [1]
        else id(value)
    )


def test_made_by_the_call():
    state = types.SimpleNamespace(now=None)

    def step(x):
        state.now = {"a", "b"}
        return x * 2

    g = rote.graph(step)
    met = []
    for _ in range(CALLS):
        g(torch.ones(3))
        assert all(state.now is not each for each in met)
        met.append(state.now)
    g.reset()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("members", [(), ("a",), (1, 2.5, "a", None, b"c"), (8, 0, 16), (True, 0.0)], ids=str)
def test_sets_as_results(kind, members):
    """A replay makes another set, with the members in the order in which the call has them."""

    def step(x):
        made = kind(members)
        return {"once": made, "again": [made], "x": x * 2}

    g = rote.graph(step)
    met = []
    for _ in range(CALLS):
        result, wanted = g(torch.ones(3)), kind(members)
        assert [*map(repr, result["once"])] == [*map(repr, wanted)]
        assert type(result["once"]) is kind
        assert result["once"] is result["again"][0]
        if kind is set:
            assert all(result["once"] is not each for each in met)
            met.append(result["once"])
            result["once"].add("x")
    assert g.report().replayed == CALLS - 2, g.explain()
    g.reset()


def made_in_turns(numbers):
    """Sets that have come to their members in several ways, so that their tables differ."""
    half = len(numbers) // 2
    added = set(numbers[:half])
    added |= set(numbers[half:])
    yield from (set(numbers), set(set(numbers)), added, set(numbers[:half]).union(numbers[half:]))


@pytest.mark.parametrize("count", [2, 3, 5, 8, 12, 30])
def test_orders_of_sets(count):
    """Where hashes collide a set is made again in the same order, or the call stays eager."""
    draw, replayed, calls = random.Random(count), 0, 0
    for _ in range(12):
        numbers = draw.sample(range(10**6), count)
        for wanted in made_in_turns(numbers):
            state = types.SimpleNamespace(given=wanted, kept=None)

            def step(x, state=state):
                state.kept = state.given.copy()
                return x * 2, state.kept

            g = rote.graph(step, keep=True)
            for _ in range(4):
                result = g(torch.ones(3))[1]
                assert [*result] == [*wanted.copy()] and state.kept is result is not wanted
            replayed, calls = replayed + (g.report().replayed > 0), calls + 1
            g.reset()
    assert replayed >= calls * 0.9


def test_sets_in_slots():
    """What the call puts anew is its own in each replay; what the caller has added since is gone."""
    state = types.SimpleNamespace(known={"a", "b"}, seen=None, again=None)

    def step(x):
        state.seen = set(state.known)
        state.seen |= {"c"}
        state.again = state.seen
        return x * 2

    g = rote.graph(step)
    met = []
    for _ in range(CALLS):
        g(torch.ones(3))
        assert state.seen == {"a", "b", "c"}
        assert state.again is state.seen
        assert all(state.seen is not each for each in met)
        met.append(state.seen)
    state.seen.add("x")
    g(torch.ones(3))
    assert state.seen == {"a", "b", "c"}
    assert met[-1] == {"a", "b", "c", "x"}
    assert g.report().replayed >= CALLS - 3, g.explain()
    state.known.add("d")
    g(torch.ones(3))
    assert state.seen == {"a", "b", "c", "d"}
    g.reset()


def test_sets_of_objects_stay_eager():
    """Of what is no plain value another set is not made."""
    found = []

    def step(x):
        return x * 2, {(1, 2), types.SimpleNamespace}

    g = rote.graph(step)
    for _ in range(CALLS):
        found.append(g(torch.ones(3))[1])
    assert all(each == {(1, 2), types.SimpleNamespace} for each in found)
    assert len({id(each) for each in found}) == CALLS
    assert g.report().replayed == 0
    g.reset()
