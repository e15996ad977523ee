"""Tensors that are given where a function takes a number, which C reads, and replays compute with."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 24


def optimizer(state, x, t):
    """The update of LAMB: a factor of a step size that changes, and a ratio of norms."""
    state.count += 1
    ratio = 1 if t == 0 else x.norm() / (t.abs() + 1)
    size = 0.1 * math.sqrt(1 - 0.9**state.count)
    return state.weight.add_(x, alpha=-size * ratio)


WAYS = {
    "add_": lambda state, x, t: state.weight.add_(x, alpha=t),
    "sub": lambda state, x, t: torch.sub(state.weight, x, alpha=t),
    "addcmul": lambda state, x, t: torch.addcmul(state.weight, x, x, value=t),
    "addcdiv_": lambda state, x, t: state.weight.addcdiv_(x, x * x + 1, value=-t),
    "addmm": lambda state, x, t: torch.addmm(x, x[:, None] * x, x[:, None] * x, beta=t, alpha=t * 2),
    "each": lambda state, x, t: torch._foreach_add([state.weight, x], [x, x], alpha=t)[0],
    "a parameter": lambda state, x, t: x.add(x, alpha=state.factor) * state.step(t),
    "optimizer": optimizer,
}


class State:
    def __init__(self, device):
        self.weight = torch.ones(3, device=device)
        self.factor = nn.Parameter(torch.ones((), device=device), requires_grad=False)
        self.count = 0

    def step(self, t):
        self.factor.add_(t)
        return self.factor


VALUES = [0.5, -2.0, 0.0, -0.0, 1.0, math.nan, math.inf, 1e-45, 3.25]


@pytest.mark.parametrize("name", sorted(WAYS))
def test_factors_that_change(device, name):
    ours, theirs = State(device), State(device)
    g = rote.graph(lambda x, t: WAYS[name](ours, x, t).clone())
    for number in range(CALLS):
        x = torch.full((3,), number / 7, device=device)
        t = torch.tensor(VALUES[number % len(VALUES)] if number >= 15 else number / 3, device=device)
        assert_same(g(x, t), WAYS[name](theirs, x, t).clone(), f"call {number}")
        assert_same(ours.weight, theirs.weight, f"state after call {number}")
    assert g.report().replayed >= 10, g.explain()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_factors_of_every_type(device, dtype):
    g = rote.graph(lambda x, t: torch.add(x, x, alpha=t))
    for number in range(12):
        x = torch.full((3,), number / 7, device=device)
        x = x.to(dtype) if dtype in (torch.bool, torch.complex64) else x
        t = torch.tensor(number % 3).to(device, dtype)
        assert_same(g(x, t), torch.add(x, x, alpha=t), f"call {number}")


def test_an_operator_that_takes_a_tensor_by_that_name(device):
    @torch.library.custom_op("rote_factors::scaled", mutates_args=())
    def scaled(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        return x * alpha

    for way in (lambda x, t: scaled(x, alpha=t), lambda x, t: torch.ops.rote_factors.scaled(x, alpha=t)):
        g = rote.graph(way)
        for number in range(8):
            x = torch.full((3,), number / 7, device=device)
            t = torch.tensor(number / 3, device=device)
            assert_same(g(x, t), x * t, f"call {number}")


@pytest.mark.parametrize("alpha", [torch.ones(2), torch.ones((), requires_grad=True)])
def test_what_is_no_number_raises_as_ever(device, alpha):
    g = rote.graph(lambda x: torch.add(x, x, alpha=alpha.to(device)))
    for _ in range(6):
        with pytest.raises((TypeError, RuntimeError, ValueError)) as plain:
            torch.add(torch.ones(2, device=device), 1, alpha=alpha.to(device))
        with pytest.raises(type(plain.value)):
            g(torch.ones(2, device=device))
    assert g.report().replayed == 0
