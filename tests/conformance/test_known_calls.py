"""A call that finds all that an equal call read as it was does the same, so nothing is noted of it."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch

import rote
from rote.runtime.reads.watch import WATCH
from rote.testing import assert_same


@pytest.fixture
def noted(monkeypatch):
    """Lists the calls of which something is noted."""
    begun, begin = [], WATCH.begin

    def counted(function, *args, **named):
        begun.append(function)
        return begin(function, *args, **named)

    monkeypatch.setattr(WATCH, "begin", counted)
    return begun


def assert_plain(g, function, x):
    torch.testing.assert_close(g(x), function(x), rtol=0, atol=0)


def test_the_recorded_call_is_not_noted(device, noted):
    state, x = SimpleNamespace(scale=2.0), torch.ones(3, device=device)

    def scaled(x):
        return x * state.scale

    g = rote.graph(scaled)
    for _ in range(4):
        assert_plain(g, scaled, x)
    assert len(noted) == 1 and g.report().replayed == 2
    state.scale = 3.0  # a new state is noted
    for _ in range(3):
        assert_plain(g, scaled, x)
    assert len(noted) == 2 and g.report().replayed == 3


def test_a_value_leads_elsewhere(device, noted):
    state = SimpleNamespace(scale=2.0, shift=3.0)

    def moved(x):
        return x * state.scale if x.sum().item() > 0 else x + state.shift

    g, x = rote.graph(moved), torch.ones(3, device=device)
    for sign in (1, -1, -1, -1, 1, 1, -1, -1, 1):
        assert_plain(g, moved, x * sign)
    replayed = g.report().replayed
    assert replayed and len(noted) > 1
    state.shift = 5.0  # which the call read of which nothing was noted
    for sign in (-1, 1, -1, -1, 1):
        assert_plain(g, moved, x * sign)
    state.scale = 7.0
    for sign in (-1, 1, -1, -1, 1):
        assert_plain(g, moved, x * sign)
    assert g.report().replayed > replayed


def test_a_value_leads_elsewhere_with_gradients(device):
    weight = torch.nn.Parameter(torch.full((3,), 2.0, device=device))
    state = SimpleNamespace(shift=3.0)

    def loss(x):
        y = x * weight
        return (y if y.sum().item() > 0 else y * state.shift).sum()

    g, x = rote.graph(loss), torch.ones(3, device=device)
    for number, sign in enumerate((1, -1, -1, 1, -1, -1, -1, 1, 1, -1)):
        state.shift = 3.0 if number < 6 else 4.0
        grads = []
        for function in (g, loss):
            weight.grad = None
            function(x * sign).backward()
            grads.append(weight.grad)
        torch.testing.assert_close(*grads, rtol=0, atol=0)


def put(state, given, x, y):
    state.last, given["twice"], given["x"] = x, y, x


KEPT = {
    "in state and in an argument": put,
    "in a list": lambda state, given, x, y: state.kept.append((x, y)),
    "in state that is returned": lambda state, given, x, y: setattr(state, "shown", state.shown * 2),
    "in an object of C": lambda state, given, x, y: setattr(state, "held", partial(max, x, y)),
    "in a gradient slot": lambda state, given, x, y: (state.weight * x).sum().backward(),
}


@pytest.mark.parametrize("kept", KEPT)
def test_a_value_leads_to_where_something_is_kept(device, kept):
    ones = torch.ones(3, device=device)

    def fresh():
        weight = torch.nn.Parameter(ones.clone())
        return SimpleNamespace(last=None, held=partial(max), kept=[], shown=ones, weight=weight)

    def doubled(state, given, x):
        y = x * 2
        if y.sum() > 0:
            KEPT[kept](state, given, x, y)
        return y, state.shown, state.weight.grad

    def seen(state, given, x, found):
        held = [
            state.last,
            *state.held.args,
            *given.values(),
            *(each for pair in state.kept for each in pair),
        ]
        shown = [x, state.shown, state.weight.grad, *held, *found]
        return [
            (each if each is None else each.tolist(), [each is other for other in shown]) for each in shown
        ]

    state, other = fresh(), fresh()
    g = rote.graph(lambda given, x: doubled(state, given, x))
    for number in range(12):
        x = ones * (number if number % 5 else -1)
        wanted, given = ({}, x.clone()), ({}, x.clone())
        # With gradients the call goes on on copies: graphs of earlier results count what is written.
        with torch.set_grad_enabled(kept != "in an object of C"):
            assert seen(state, *given, g(*given)) == seen(other, *wanted, doubled(other, *wanted))
        state.weight.grad = other.weight.grad = None


def test_a_call_writes_output_once_where_a_value_leads_elsewhere(device, capsys):
    def doubled(x):
        print("doubled")
        return x * 2 if x.sum() > 0 else x * 3

    g = rote.graph(doubled)
    for number in range(8):
        replayed = g.report().replayed
        g(torch.full((3,), number % 3 - 1.0, device=device))
        assert capsys.readouterr().out.count("doubled") == 1 - (g.report().replayed - replayed)


def test_what_is_bound_is_noted_each_time(device, noted):
    state, x = SimpleNamespace(last=None), torch.ones(3, device=device)

    def kept(x):
        state.last = x * 2
        return state.last + 1

    g = rote.graph(kept)
    for number in range(5):
        torch.testing.assert_close(g(x * number), x * number * 2 + 1, rtol=0, atol=0)
        torch.testing.assert_close(state.last, x * number * 2, rtol=0, atol=0)
    assert len(noted) == 2 and g.report().replayed == 3


def test_a_view_of_state_that_a_call_puts_elsewhere_is_the_one_it_returns(device):
    """The call goes a way of its own each few times, and is recorded on none of these."""

    def made():
        return SimpleNamespace(
            h=torch.ones(4, device=device), g=torch.zeros(4, device=device), big=torch.zeros(8, device=device)
        )

    def step(s, x):
        if int(x[0]) % 2:
            s.g = s.big[:4][:]
        if x[0] > 2:
            s.h, s.g = s.g, s.h
        s.last = s.big[4:] - x
        return s.h, s.g

    plain, graphed = made(), made()
    g = rote.graph(lambda x: step(graphed, x))
    with torch.no_grad():
        for n in range(40):
            x = torch.full((4,), float(n % 7), device=device)
            one, other = step(plain, x), g(x)
            assert_same(other, one)
            assert other[0] is graphed.h and other[1] is graphed.g


class Slotted:
    __slots__ = ("value",)


def an_object():
    return SimpleNamespace(value=None)


def a_slot():
    return Slotted()


def a_class():
    return type("Owner", (), {"value": None})


STORED = {
    "what lies there": (lambda x: True, 1),
    "an equal text that is another one": (lambda x: "".join(["a", str(x.dim())]), 2),
    "another number for a while": (lambda x: 5, 2),
    "an argument": (lambda x: x, 2),
    "a tensor of its own": (lambda x: x + 1, 2),
}


@pytest.mark.parametrize("owner", [an_object, a_slot, a_class])
@pytest.mark.parametrize("stored", STORED)
def test_a_value_that_is_stored_again(device, noted, owner, stored):
    """Only what lies there already, and is plain, may be stored by a recorded call without notes."""
    value_of, least = STORED[stored]
    for_a_while = stored == "another number for a while"

    def stores(held, x):
        held.value = value_of(x)
        if for_a_while:
            held.value = True
        return x * 2

    states, x = (owner(), owner()), torch.ones(3, device=device)
    for state in states:
        state.value = True if for_a_while else value_of(x)
    g = rote.graph(partial(stores, states[0]))
    for call in range(10):
        assert_same(g(x), stores(states[1], x))
        assert_same(states[0].value, states[1].value)
        assert (states[0].value is x) is (states[1].value is x)
        if call == 3:
            assert len(noted) == 1 if least == 1 else len(noted) >= least
        if call in (3, 6):  # what lies there is something else now
            states[0].value = states[1].value = False
