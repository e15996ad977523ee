"""Numbers that change, beside what a call leaves outside, and what looks at which object a number is."""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import types
import weakref
from collections import deque

import pytest
import torch
from tests.conformance.numbers_programs import bits
from torch import nn

import rote

pytestmark = pytest.mark.parametrize("device", ["cpu"], indirect=True)


class Box:
    def __init__(self, value):
        self.value = value


class Slots:
    __slots__ = ("__weakref__", "value")

    def __init__(self, value):
        self.value = value


class Mutable(list):
    pass


def closed_over(value):
    return lambda: value


def with_attribute(value):
    made = torch.ones(2)
    made.value = value
    return made


def yielding(value):
    def given():
        yield 0
        yield value

    made = given()
    next(made)
    return made


def kept_weakly(value):
    made = Box(value)
    return [made, weakref.ref(made)]


def of_class(value):
    return type("Made", (), {"value": value})


WRAPS = {
    "object": Box,
    "slots": Slots,
    "list": lambda value: [Box(value)],
    "list of one's own": lambda value: Mutable([value]),
    "deque": lambda value: deque([value]),
    "dict": lambda value: {"box": Box([value])},
    "closure": closed_over,
    "partial": lambda value: functools.partial(max, value),
    "method": lambda value: Box(value).__init__,
    "tensor": with_attribute,
    "generator": yielding,
    "iterator": lambda value: iter([value]),
    "weak": kept_weakly,
    "class": of_class,
    "module": lambda value: setattr(made := nn.Linear(1, 1), "value", value) or made,
    "namespace": lambda value: types.SimpleNamespace(value=value),
    "view": lambda value: {"k": value}.values(),
    "frozen": lambda value: frozenset([(value,)]),
}


def held(found):
    """What an object holds, as it is to be."""
    if callable(getattr(found, "__next__", None)):
        return list(found)
    if isinstance(found, functools.partial):
        return found.args
    if isinstance(found, types.FunctionType):
        return found()
    if isinstance(found, types.MethodType):
        found = found.__self__
    if isinstance(found, (list, deque, frozenset, type({}.values()))):
        return [held(each) for each in found]
    if isinstance(found, dict):
        return {key: held(each) for key, each in found.items()}
    if isinstance(found, tuple):
        return tuple(map(held, found))
    if isinstance(found, weakref.ref):
        return held(found())
    return getattr(found, "value", found)


def play(program, calls=24):
    """A program with a state, plainly and graphed, with what it leaves; the report of the graphed one."""

    def make():
        state = types.SimpleNamespace(step=0, scale=1.0, left=None, seen={})

        def run(x):
            state.step += 1
            state.scale *= 0.9
            return program(x, state)

        return run, state

    (graphed, state), (plain, other) = make(), make()
    run = rote.graph(graphed, keep=True)
    for number in range(calls):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number))
        assert bits(run(x.clone())) == bits(plain(x.clone())), number
        ours, theirs = ([each.step, each.scale, held(each.left), len(each.seen)] for each in (state, other))
        assert bits(ours) == bits(theirs), number
    return run.report()


@pytest.mark.parametrize("wrap", WRAPS)
def test_an_object_is_left_that_holds_a_number(device, wrap):
    def program(x, state):
        state.left = WRAPS[wrap](state.scale)
        return x * state.scale + state.step

    play(program)


@pytest.mark.parametrize("wrap", WRAPS)
def test_an_object_is_left_that_holds_none_that_changes(device, wrap):
    def program(x, state):
        state.left = WRAPS[wrap](0.5)
        return x * state.scale + state.step

    play(program)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("growing", [3, 50])
def test_a_scaled_step(device, kind, growing):
    """An object holds what a step has found: the scaler keeps what it knows of each optimizer."""

    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        optimizer = kind(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=growing)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        def state():
            return [[each.detach() for each in model.parameters()], optimizer.state_dict()["state"],
                    scaler.state_dict()]  # fmt: skip

        return step, state

    (graphed, state), (plain, other) = make(), make()
    run = rote.graph(graphed, keep=True)
    for number in range(36):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(number))
        if number % 17 == 11:
            x = x * torch.inf  # the step is left out, and the scale becomes less
        assert bits(run(x)) == bits(plain(x)), number
        assert bits(state()) == bits(other()), number
    assert growing == 3 or kind is torch.optim.SGD or run.report().replayed >= 12, run.explain()


# ---------------------------------------------------------------------- which object it is

IDENTITIES = {
    "of a function": (lambda x, state, n: inspect.unwrap(held) and x * state.scale + state.step, True),
    "of what is copied": (lambda x, state, n: x * copy.deepcopy([2.0, [0.5]])[1][0] * state.scale, True),
    "of itself": (lambda x, state, n: x * (id(state.step) == id(state.step)) * state.scale, False),
    "of a small one": (lambda x, state, n: x * (id(state.step) == id(n)) * state.scale, False),
    "of a copied one": (lambda x, state, n: x * copy.deepcopy([state.step, state.scale])[1], False),
    "by is": (lambda x, state, n: x * (state.step is n) * state.scale + (state.step is n), False),
    "by is not": (lambda x, state, n: x * (state.step is not n) + (n is not state.step), False),
    "by functions": (
        lambda x, state, n: x * operator.is_(state.step, n) + operator.is_not(n, state.step),
        False,
    ),
    "in different ways": (lambda x, state, n: x * ((id(state.step) == id(n)) is (state.step is n)), False),
    "in a memo": (lambda x, state, n: remember(state, state.scale) or x * state.scale, False),
}


def remember(state, value):
    state.seen.setdefault(id(value) and 1, None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(1, 12))
@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(device, name, number):
    program, follows = IDENTITIES[name]
    assert play(lambda x, state: program(x, state, number), 16).replayed >= 6 * follows


# ---------------------------------------------------------------------- lines


def test_lines_of_a_library_are_told_apart(device):
    """``step`` of an optimizer reads its count, and what stops it reads whether something was found."""

    def make():
        torch.manual_seed(0)
        weight, found = nn.Parameter(torch.ones(3)), torch.zeros(())
        optimizer = torch.optim.Adam([weight], lr=0.1)

        def stop(optimizer, args, kwargs):
            if sum(each.item() for each in [found]):
                raise ValueError(found)

        optimizer.register_step_pre_hook(stop)

        def step(x):
            optimizer.zero_grad()
            (weight * x).square().sum().backward()
            optimizer.step()
            return weight.detach().clone()

        return step, found

    (graphed, found), (plain, other) = make(), make()
    run = rote.graph(graphed, keep=True)
    for number in range(30):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number))
        for each in (found, other):
            each.fill_(float(number == 20))
        seen = []
        for each in (run, plain):
            try:
                seen.append(bits(each(x)))
            except ValueError as error:
                seen.append(str(error))
        assert seen[0] == seen[1], number
    assert run.report().replayed >= 14, run.explain()
