"""Containers that a call fills and empties, or makes anew: all is as after plain calls."""

from __future__ import annotations

import collections
import contextlib
import weakref

import pytest
import torch

import rote
from rote.testing import assert_same

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import given, settings

WARM = rote.Options().warmup + 1
CALLS = 9
KINDS = {"list": list, "deque": collections.deque}


def index(held, at):
    return at % (2 * len(held)) - len(held)


STEPS = {
    "append": lambda held, at: held.append(at),
    "append none": lambda held, at: held.append(None),
    "extend": lambda held, at: held.extend([at, None]),
    "store": lambda held, at: held.__setitem__(index(held, at), at),
    "store at the end": lambda held, at: held.__setitem__(-1, at + 1),
    "store at the start": lambda held, at: held.__setitem__(0, at + 2),
    "insert": lambda held, at: held.insert(at, at),
    "pop": lambda held, at: held.pop(),
    "delete": lambda held, at: held.__delitem__(index(held, at)),
    "remove": lambda held, at: held.remove(held[index(held, at)]),
    "reverse": lambda held, at: held.reverse(),
    "clear": lambda held, at: held.clear(),
    "read": lambda held, at: held[index(held, at)],
    "read the end": lambda held, at: held[-1],
    "length": lambda held, at: len(held),
    "sum": lambda held, at: sum(each or 0 for each in held),
    "in": lambda held, at: at in held,
    "pop while none": lambda held, at: pop_while_none(held),
}


def pop_while_none(held):
    while held and held[-1] is None:
        held.pop()


class Program:
    def __init__(self, kind, members, steps, empties):
        self.held = KINDS[kind](members)
        self.steps, self.empties = steps, empties

    def __call__(self, x):
        count = len(self.held)
        for name, at in self.steps:
            if self.held or name in ("append", "append none", "extend", "insert", "length", "sum", "in"):
                found = STEPS[name](self.held, at)
                if type(found) in (int, bool):
                    x = x * 2 + found
        while self.empties and len(self.held) > count:
            self.held.pop()
        return x


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.one_of(st.integers(0, 9), st.none()), max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5)), min_size=1, max_size=7),
    st.booleans(),
)
def test_what_a_call_does_to_a_container(kind, members, steps, empties):
    ours, theirs = (Program(kind, members, steps, empties) for _ in range(2))
    g = rote.graph(ours, keep=True)
    for number in range(CALLS):
        x = torch.full((2,), float(number))
        if number == CALLS - 2:  # another call than those that were recorded
            for each in (ours, theirs):
                each.held.append(5)
        assert_same(g(x), theirs(x), f"call {number} of {steps}")
        assert list(ours.held) == list(theirs.held), f"after call {number} of {steps}"
    g.reset()


RESTORED = {
    "a place is taken and given back": [("append none", 0), ("store", 0), ("read", 0), ("pop", 0)],
    "the end is stored": [("append none", 0), ("store at the end", 3), ("read the end", 0), ("pop", 0)],
    "several are added": [("extend", 1), ("store at the start", 1), ("sum", 0), ("pop", 0), ("pop", 0)],
    "those that are empty go": [("append none", 0), ("length", 0), ("pop while none", 0)],
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(RESTORED))
def test_a_container_that_is_restored_is_no_reason(device, name, kind):
    program, plain = (Program(kind, (), RESTORED[name], False) for _ in range(2))
    g = rote.graph(program)
    for number in range(CALLS):
        x = torch.full((2,), float(number), device=device)
        assert_same(g(x), plain(x), f"call {number}")
    assert g.report().replayed >= CALLS - WARM, g.explain()


# ---------------------------------------------------------------------- numbers that are put anew


class Rates:
    """Rates that each call reads, and puts anew as ``make`` makes them of numbers."""

    def __init__(self, make):
        self.make, self.count = make, 0
        self.rates = make([1.0, 2.0])
        self.first = self.rates

    def read(self):
        return list(self.rates.values()) if isinstance(self.rates, dict) else list(self.rates)

    def __call__(self, x):
        self.count += 1
        for rate in self.read():
            x = x * rate
        self.rates = self.make([self.count * 0.5, self.count * 0.25])
        return x


MADE = {
    "list": list,
    "tuple": tuple,
    "dict": lambda rates: {"one": rates[0], "other": rates[1]},
    "whole numbers": lambda rates: [int(4 * rate) for rate in rates],
}


def rate_of_its_own(g, each):
    each.rates = each.make([3.0, 7.0])


def kept_elsewhere(g, each):
    each.first = each.rates


def longer(g, each):
    each.rates = each.make([3.0, 7.0]) if isinstance(each.rates, dict) else each.make([3.0, 7.0]) * 2


def other_types(g, each):
    each.rates = each.make([True, 3.0]) if isinstance(each.rates, dict) else type(each.rates)([True, 3])


def written_in_place(g, each):
    if isinstance(each.rates, list):
        each.rates[1] = 9.0
    elif isinstance(each.rates, dict):
        each.rates["other"] = 9.0


@pytest.mark.parametrize("between", [rate_of_its_own, kept_elsewhere, longer, other_types, written_in_place])
@pytest.mark.parametrize("name", sorted(MADE))
def test_numbers_that_each_call_puts_anew(device, name, between):
    ours, theirs = Rates(MADE[name]), Rates(MADE[name])
    g = rote.graph(ours)
    for number in range(26):
        x = torch.full((2,), float(number), device=device)
        if number in (18, 22):
            between(g, ours), between(g, theirs)
        held = ours.rates
        assert_same(g(x), theirs(x), f"call {number}")
        assert ours.rates == theirs.rates and type(ours.rates) is type(theirs.rates), f"call {number}"
        assert list(map(type, ours.read())) == list(map(type, theirs.read())), f"call {number}"
        assert ours.rates is not held, f"call {number}"
        assert ours.first == theirs.first, f"call {number}"
    assert g.report().replayed >= 10, g.explain()


class Awaited:
    """An object that coroutines may wait for, and go through."""

    async def __anext__(self):
        await self
        raise StopAsyncIteration

    def __aiter__(self):
        return self

    def __await__(self):
        pytest.fail("nobody waits")
        yield


def test_what_only_coroutines_call_is_not_called_by_c(device):
    def fn(x):
        return x * len(weakref.WeakSet([Awaited()])) + len({Awaited(), Awaited()})

    g = rote.graph(fn)
    for number in range(CALLS):
        x = torch.full((2,), float(number), device=device)
        assert_same(g(x), fn(x), f"call {number}")
    assert g.report().replayed >= CALLS - WARM, g.explain()


def test_a_coroutine_is_not_followed(device):
    async def wait(x):
        async for _ in Awaited():
            pass
        return x * 2

    def fn(x):
        with contextlib.suppress(BaseException):
            wait(x).send(None)
        return x * 2

    g = rote.graph(fn)
    for number in range(CALLS):
        g(torch.full((2,), float(number), device=device))
    assert g.report().replayed == 0
    assert "wait, which cannot be followed: GET_AITER" in g.explain()
