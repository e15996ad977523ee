"""What callers do with gradients between calls that run a backward: clear, keep, look at, replace, scale.

Each program is a random walk of such acts, made once plainly and once with graphs. The gradients, those that
the caller still holds and the parameters are compared after each step, to the bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import rote

STEPS = 24
Act = Callable[["Caller"], Any]


class Caller:
    """A model, an optimizer, and what its user does between calls."""

    def __init__(self, wrap: Callable[..., Any], device: torch.device, seed: int) -> None:
        self.dice = random.Random(seed)
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(
            device
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.5)
        self.device = device
        self.kept: list[Any] = []
        self.calls = [wrap(each) for each in (self.backward, self.other, self.last)]

    # what is graphed

    def backward(self, x: torch.Tensor) -> torch.Tensor:
        """Leaves gradients, or adds to them."""
        loss = self.model(x).square().mean()
        loss.backward()
        return loss.detach()

    def other(self, x: torch.Tensor) -> torch.Tensor:
        """The same with another loss, from another graph."""
        loss = self.model(x).abs().sum()
        loss.backward()
        return loss.detach()

    def last(self, x: torch.Tensor) -> torch.Tensor:
        """A step that starts with gradients of earlier calls and leaves none."""
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    # what is not

    def parameter(self) -> torch.Tensor:
        """One of the parameters."""
        return self.dice.choice(list(self.model.parameters()))

    def step(self) -> None:
        """The optimizer outside of the graph."""
        self.optimizer.step()

    def clear(self) -> None:
        """As usual."""
        self.optimizer.zero_grad()

    def zero(self) -> None:
        """In place."""
        self.optimizer.zero_grad(set_to_none=False)

    def clear_one(self) -> None:
        """By hand."""
        self.parameter().grad = None

    def keep(self) -> None:
        """Hold gradients, as a logger does; the oldest are let go."""
        self.kept = [*self.kept, [each.grad for each in self.model.parameters()]][-2:]

    def keep_view(self) -> None:
        """Hold a row."""
        grad = self.parameter().grad
        if grad is not None:
            self.kept = [*self.kept, [grad[0]]][-2:]

    def let_go(self) -> None:
        """Hold nothing."""
        self.kept = []

    def scale(self) -> None:
        """Write in place."""
        grad = self.parameter().grad
        if grad is not None:
            grad.mul_(0.5)

    def replace(self) -> None:
        """Put another tensor in place."""
        parameter = self.parameter()
        parameter.grad = torch.ones_like(parameter)

    def exchange(self) -> None:
        """Give a kept gradient back."""
        if self.kept:
            for parameter, grad in zip(self.model.parameters(), self.kept.pop(), strict=False):
                if grad is not None and grad.shape == parameter.shape:
                    parameter.grad = grad

    def freeze(self) -> None:
        """One parameter takes no part, or does again."""
        parameter = self.dice.choice(list(self.model[0].parameters()))
        parameter.requires_grad_(not parameter.requires_grad)

    def mark(self) -> None:
        """An attribute of a gradient goes with it."""
        grad = self.parameter().grad
        if grad is not None:
            grad.seen = True

    def state(self) -> list[Any]:
        """All that can be told apart."""
        grads = [each.grad for each in self.model.parameters()]
        held = [each for kept in self.kept for each in kept]
        return [
            [None if each is None else each.clone() for each in [*grads, *held]],
            [hasattr(each, "seen") for each in grads if each is not None],
            [each.detach().clone() for each in self.model.parameters()],
            [[each is other for other in grads] for each in held if each is not None],
        ]


USUAL: list[Act] = [Caller.step, Caller.clear, Caller.clear, Caller.zero]
RARE: list[Act] = [
    Caller.clear_one, Caller.keep, Caller.keep_view, Caller.let_go, Caller.scale, Caller.replace,
    Caller.exchange, Caller.freeze, Caller.mark,
]  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal, to the bit."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    return one == other


@pytest.mark.parametrize("seed", range(8))
def test_gradients_are_those_of_plain_calls(device, seed):
    dice = random.Random(seed)
    rare = dice.sample(RARE, dice.choice([0, 1, 2, 4]))
    plain, graphed = Caller(lambda each: each, device, seed), Caller(rote.graph, device, seed)
    many = dice.choice([1, 2, 3])
    for number in range(STEPS):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(number)).to(device)
        call = dice.randrange(many)
        assert plain.calls[call](x).equal(graphed.calls[call](x)), number
        for act in [each for each in USUAL if dice.random() < 0.5] + [
            each for each in rare if dice.random() < 0.2
        ]:
            act(plain)
            act(graphed)
        assert same(plain.state(), graphed.state()), number
    for each in graphed.calls:
        each.reset()


def drive(device: torch.device, wrap: Callable[..., Any], clears: int, steps: int) -> tuple[Any, list[Any]]:
    """Backward in the call, the optimizer outside, gradients cleared after every so many calls."""
    caller = Caller(wrap, device, 0)
    found = []
    for number in range(steps):
        found.append(caller.calls[0](torch.full((2, 3), 0.1 * number, device=device)))
        if number % clears == clears - 1:
            caller.step()
            caller.clear()
        found.append(caller.state())
    return caller.calls[0], found


@pytest.mark.parametrize("clears", [1, 4])
def test_gradients_that_are_left_and_added_to_replay(device, clears):
    """The commonest loop there is: zero_grad, forward and backward, step; or several backwards to a step."""
    g, found = drive(device, partial(rote.graph, keep=True), clears, 60)
    _, expected = drive(device, lambda each: each, clears, 60)
    assert same(found, expected)
    assert g.report().replayed >= 36, g.explain()
    assert not g.report().reasons, g.explain()


def test_a_last_backward_that_steps_and_clears_replays(device):
    def run(wrap: Callable[..., Any]) -> tuple[Caller, list[Any]]:
        caller, found = Caller(wrap, device, 0), []
        for number in range(60):
            x = torch.full((2, 3), 0.1 * number, device=device)
            found.append([caller.calls[2 if number % 4 == 3 else 0](x), caller.state()])
        return caller, found

    graphed, found = run(rote.graph)
    assert same(found, run(lambda each: each)[1])
    assert graphed.calls[0].report().replayed >= 25, graphed.calls[0].explain()
    assert graphed.calls[2].report().replayed >= 7, graphed.calls[2].explain()
