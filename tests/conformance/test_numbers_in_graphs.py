"""Numbers that change from call to call in calls whose results require grad: the backward comes outside."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

STEPS = 24
REPLAYED = 16


def times(y, n):
    return (y * n).pow(2)


def divided(y, n):
    return (y / n).pow(2)


def divides(y, n):
    return n / (y.pow(2) + 1)


def both(y, n):
    return (n * y + n).exp() / n


def in_place(y, n):
    return (y + 1).mul_(n).div_(n + 1)


def added(y, n):
    return (n - y + n).pow(2)


def masked(y, n):
    return torch.where(y > 0, y, n).pow(2) + y.masked_fill(y < 0, n)


def under_no_grad(y, n):
    with torch.no_grad():
        scaled = y * n
    return y * scaled


def decided(y, n):
    return y * n if n > 0.5 else y / n


def made(y, n):
    return y * torch.tensor(n, device=y.device)


def filled(y, n):
    return y * torch.full((4,), n, device=y.device)


def looked_up(y, n):
    table = torch.arange(64.0, device=y.device) / 8
    return y * table[int(n * 16)] + table[int(n * 8)]


def put(y, n):
    kept = torch.ones(64, 4, device=y.device)
    kept[int(n * 16)] = y[0].detach()
    return y.sum() * kept.cumsum(0)


FOLLOWED = [
    made,
    filled,
    put,
    times,
    divided,
    divides,
    both,
    in_place,
    added,
    masked,
    under_no_grad,
    decided,
]


def power(y, n):
    return (y.abs() + 1).pow(n)


def clamped(y, n):
    return y.clamp(-n, n)


def scaled_sum(y, n):
    return torch.add(y, y * y, alpha=n)


def sloped(y, n):
    return nn.functional.leaky_relu(y, n)


BY_VALUE = [looked_up, power, clamped, scaled_sum, sloped]


class Model(nn.Module):
    """A loss in which a number takes part that each call changes."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.run = run
        self.number = 0.3

    def forward(self, x):
        self.number += 0.0625
        return self.run(self.layer(x), self.number).mean()


def pair(run, device, **options):
    plain = Model(run).to(device)
    graphed = copy.deepcopy(plain)
    return plain, graphed, rote.graph(graphed, keep=True, **options)


def train(model, call, x, *, backward=True):
    loss = call(x)
    if backward:
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for each in model.parameters():
                each -= 0.01 * each.grad
    return [loss.detach(), model.number, *[(each.grad, each) for each in model.parameters()]]


@pytest.mark.parametrize("run", [*FOLLOWED, *BY_VALUE])
def test_steps_with_the_backward_outside(device, run):
    plain, graphed, g = pair(run, device)
    for n in range(STEPS):
        x = torch.randn(3, 4, device=device, generator=torch.Generator(device).manual_seed(n))
        assert_same(train(graphed, g, x), train(plain, plain, x))
    assert (g.report().replayed >= REPLAYED) is (run in FOLLOWED), g.explain()
    assert (g.report().backwards_replayed >= REPLAYED - 4) is (run in FOLLOWED), g.explain()


@pytest.mark.parametrize("run", FOLLOWED)
def test_calls_without_a_backward(device, run):
    """A policy that is called without ``no_grad``."""
    plain, _, g = pair(run, device)
    for _ in range(STEPS):
        x = torch.randn(3, 4, device=device)
        assert_same(g(x), plain(x))
    assert g.report().replayed >= REPLAYED, g.explain()


def test_two_results_wait_for_their_backward(device):
    plain, graphed, g = pair(both, device)
    for n in range(STEPS):
        found = []
        for model, call in ((plain, plain), (graphed, g)):
            model.zero_grad()
            xs = [torch.full((3, 4), float(n + k), device=device) / 20 for k in range(3)]
            first, second, third = [call(x) for x in xs]
            second.backward()
            del third
            first.backward()
            found.append([first.detach(), *[each.grad.clone() for each in model.parameters()]])
        assert_same(found[1], found[0])
    assert g.report().replayed >= REPLAYED


def test_walks_for_other_gradients(device):
    """Each asks for gradients of its own, which has a recording of its own."""
    plain, graphed, g = pair(both, device)
    for n in range(3 * STEPS):
        found, x = [], torch.full((3, 4), n / 50, device=device)
        for model, call in ((plain, plain), (graphed, g)):
            wanted = [model.layer.weight, model.layer.bias][n % 3 % 2 : 1 + n % 3]
            found.append(torch.autograd.grad(call(x), wanted, torch.tensor(1.0 + n % 5, device=device)))
        assert_same(found[1], found[0])
    assert g.report().backwards_replayed >= 2 * STEPS, g.explain()


def test_one_result_is_walked_twice(device):
    plain, graphed, g = pair(times, device)
    for n in range(STEPS):
        found, x = [], torch.full((3, 4), float(n), device=device)
        for model, call in ((plain, plain), (graphed, g)):
            loss, weights = call(x), list(model.parameters())
            first = torch.autograd.grad(loss, weights, retain_graph=True)
            model.number += 0.5  # the walk has the number of the call
            found.append([*first, *torch.autograd.grad(loss, weights)])
        assert_same(found[1], found[0])
    assert g.report().replayed >= REPLAYED


def test_a_number_among_the_arguments_and_a_gradient_of_the_gradient(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    g = rote.graph(lambda x, n: ((x * weight).sin() * n).sum(), keep=True)
    for n in range(STEPS):
        x, factor = torch.full((3,), float(n), device=device), 1 / (n + 2)
        (found,) = torch.autograd.grad(g(x, factor), weight)
        (expected,) = torch.autograd.grad(((x * weight).sin() * factor).sum(), weight)
        assert_same(found, expected)
    assert g.report().replayed >= REPLAYED
    x = torch.ones(3, device=device)
    (found,) = torch.autograd.grad(g(x, 0.7), weight, create_graph=True)
    (second,) = torch.autograd.grad(found.sum(), weight)
    (expected,) = torch.autograd.grad(((x * weight).sin() * 0.7).sum(), weight, create_graph=True)
    (twice,) = torch.autograd.grad(expected.sum(), weight)
    assert_same([found.detach(), second], [expected.detach(), twice])


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_types_of_numbers(device, kind, dtype):
    state = SimpleNamespace(n=kind(1))
    weight = torch.ones(4, device=device, dtype=dtype, requires_grad=True)

    def step(x):
        state.n += kind(3) if kind is int else 0.3
        return (x * weight * state.n).sum() * state.n / (state.n + 1)

    g = rote.graph(step, keep=True)
    for n in range(STEPS):
        x, was = torch.full((4,), n / 7, device=device, dtype=dtype), state.n
        mine = g(x)
        (found,) = torch.autograd.grad(mine, weight)
        state.n = was
        theirs = step(x)
        assert_same([mine.detach(), found], [theirs.detach(), *torch.autograd.grad(theirs, weight)])
    assert g.report().replayed >= REPLAYED
