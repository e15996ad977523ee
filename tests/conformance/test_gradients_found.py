"""Gradients that a call finds, adds to and replaces: a generator's backward goes through its critic."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

STEPS = 24


class Pair:
    """A generator and its critic, with what their user does between calls."""

    def __init__(self, device, between=lambda pair, number: None, make=torch.optim.SGD):
        torch.manual_seed(0)
        self.generator = nn.Linear(3, 4).to(device)
        self.critic = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
        self.optimizers = [make(each.parameters(), 0.05) for each in (self.generator, self.critic)]
        self.between, self.held = between, []

    def step(self, noise, real):
        of_generator, of_critic = self.optimizers
        of_generator.zero_grad()
        made = self.generator(noise)
        (-self.critic(made).mean()).backward()
        of_generator.step()
        of_critic.zero_grad()
        loss = self.critic(made.detach()).mean() - self.critic(real).mean()
        loss.backward()
        of_critic.step()
        return loss.detach()

    def sums(self, noise, real):
        """What is found is also read: its norm leads to a weight."""
        before = [each.grad for each in self.critic.parameters() if each.grad is not None]
        weight = sum(each.square().sum() for each in before) if before else noise.new_ones(())
        return self.step(noise * weight, real)

    def run(self, method, wrap, sizes, steps):
        step, seen = wrap(getattr(self, method)), []
        for number in range(steps):
            like, size = self.generator.weight, sizes[number % len(sizes)]
            seen.append(step(torch.randn(size, 3).to(like), torch.randn(size, 4).to(like)))
            seen += [None if each.grad is None else each.grad.clone() for each in self.critic.parameters()]
            self.between(self, number)
            seen += [each.clone() for each in self.held]
        return [*seen, *self.generator.parameters(), *self.critic.parameters()]


def played(method, device, sizes=(8,), steps=STEPS, budget=None, **how):
    """Plainly, and graphed; how many calls were replayed."""
    graphs = []

    def wrap(function):
        graphs.append(rote.graph(function, keep=True, budget=budget))
        return graphs[0]

    plain = Pair(device, **how).run(method, lambda function: function, sizes, steps)
    assert_same(Pair(device, **how).run(method, wrap, sizes, steps), plain)
    return graphs[0].report().replayed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("method", ["step", "sums"])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_what_the_call_before_has_left_is_found(device, method, make):
    assert played(method, device, make=make) > STEPS // 2


def holds(pair, number):
    if number % 7 == 3:
        pair.held.append(pair.critic[0].weight.grad)


def views(pair, number):
    if number % 7 == 3:
        pair.held.append(pair.critic[0].weight.grad[0])


def holds_for_a_while(pair, number):
    pair.held[:] = [pair.critic[2].weight.grad] if number % 5 < 2 else []


def lets_go(pair, number):
    if number % 5 == 2:
        pair.critic.zero_grad()


def writes(pair, number):
    if number % 3 == 1:
        pair.critic[0].weight.grad.mul_(0.5)


def replaces(pair, number):
    if number % 4 == 1:
        pair.critic[0].weight.grad = torch.ones_like(pair.critic[0].weight)


def shares(pair, number):
    if number % 4 == 1:
        both = torch.ones(2, *pair.critic[0].weight.shape).to(pair.critic[0].weight)
        pair.critic[0].weight.grad = both[0]
        pair.held[:] = [both]


def gives_away(pair, number):
    if number % 6 == 2:
        pair.held.append(pair.critic[0].bias.grad)
        pair.critic[0].bias.grad = pair.critic[0].bias.grad.clone()


def marks(pair, number):
    if number % 4 == 1:
        pair.critic[0].weight.grad.note = number


DOES = [holds, views, holds_for_a_while, lets_go, writes, replaces, shares, gives_away, marks]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("between", "method"), [*zip(DOES, cycle(["step", "sums"]))])
def test_the_caller_does_something_with_what_was_left(device, method, between):
    played(method, device, between=between)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sizes", [(8, 6), (8, 8, 6)])
def test_calls_of_several_sizes_take_turns(device, sizes):
    assert played("step", device, sizes=sizes, steps=40) > 10
    played("step", device, sizes=sizes, budget=20_000)  # an eviction takes what gradients are moved to


@pytest.mark.parametrize("read", [
    lambda x: x.detach() * (2 if x.grad is None else 3),
    lambda x: x.detach() * (2 if x.grad is None else x.grad),
    lambda x: x.detach() * getattr(x, "grad") if x.grad is not None else x.detach(),  # noqa: B009
])  # fmt: skip
@pytest.mark.parametrize("tracked", [False, True])
def test_a_gradient_of_an_argument(device, read, tracked):
    graphed = rote.graph(lambda held: read(held[0]))
    for number in range(16):
        x = torch.full((3,), float(number), device=device).requires_grad_(tracked)
        if number // 4 % 2:
            x.grad = torch.full((3,), number + 1.0, device=device)
        assert_same(graphed([x]), read(x))


def attributed(x):
    """As attributions clear the gradient of their input, where it has one."""
    if x.grad is not None:
        x.grad.zero_()
    x.requires_grad_()
    (slope,) = torch.autograd.grad((x * x).sum(), x)
    x.requires_grad_(False)
    return slope


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tracked", [False, True])
def test_arguments_without_gradients_are_asked_for_them_and_replayed(device, tracked):
    def read(x):
        return x.detach() * (2 if x.grad is None else 3)

    graphed = rote.graph(read, keep=True)
    for number in range(24):
        x = torch.full((3,), float(number), device=device).requires_grad_(tracked)
        if number in {9, 10, 15}:
            x.grad = torch.ones(3, device=device)
        assert_same(graphed(x), read(x))
    assert graphed.report().replayed == 24 - 2 - 3


def test_attributions_replay(device):
    graphed = rote.graph(attributed, keep=True)
    for number in range(16):
        x, other = (torch.full((3,), float(number), device=device) for _ in range(2))
        if number == 8:
            x.grad, other.grad = (torch.full((3,), 5.0, device=device) for _ in range(2))
        assert_same(graphed(x), attributed(other))
        assert_same(x.grad, other.grad)
    assert graphed.report().replayed == 16 - 2 - 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_way_that_asks_for_the_gradient_comes_late(device, first, grad):
    """Recordings and generated functions are there when a call asks for the first time."""

    def read(x):
        if x.sum().item() > 100:
            return x * (2 if x.grad is None else 3)
        return x + 1

    graphed = rote.graph(read, keep=True)
    with torch.set_grad_enabled(grad):
        for number in range(40):
            x = torch.full(
                (3,), float(number % 5 + (100 if number >= 10 and number % 2 else 0)), device=device
            )
            if number >= (0 if first else 20) and number % 3 == 0:
                x.grad = torch.ones(3, device=device)
            assert_same(graphed(x), read(x))


@pytest.mark.parametrize("clears", [False, True])
def test_a_way_that_sets_the_gradient_comes_late(device, clears):
    def put(x):
        if x.sum().item() > 100:
            x.grad = None if clears else x * 2
        return x + 1

    graphed = rote.graph(put, keep=True)
    for number in range(16):
        x, other = (torch.full((3,), 1.0 + 100 * (number > 8), device=device) for _ in range(2))
        if clears:
            x.grad, other.grad = torch.ones_like(x), torch.ones_like(x)
        assert_same(graphed(x), put(other))
        assert (x.grad is None) == (other.grad is None)
        if x.grad is not None:
            assert_same(x.grad, other.grad)
