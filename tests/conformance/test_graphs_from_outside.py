"""A backward inside of the call of a graph made outside: it reaches parameters that no Python code names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 12


def _made_for_each_call(weight, held, x):
    held["loss"] = (weight * weight).sum() * x.sum()


def _made_once(weight, held, x):
    held.setdefault("loss", (weight * 2).sum())


def _made_of_a_view(weight, held, x):
    held.setdefault("loss", (weight[1:] * 2).sum())


def _clear(weight, call):
    weight.grad = None


def _clear_now_and_then(weight, call):
    if call % 3 == 0:
        weight.grad = torch.zeros_like(weight)


def _leave(weight, call):
    pass


@pytest.mark.parametrize("prepare", [_clear, _clear_now_and_then, _leave], ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "make", [_made_for_each_call, _made_once, _made_of_a_view], ids=lambda each: each.__name__
)
@pytest.mark.parametrize("by", ["method", "function"])
def test_the_gradient_it_leaves(device, make, prepare, by):
    def play(wrap):
        weight, held = nn.Parameter(torch.ones(3, device=device)), {}

        def step(x):
            if by == "method":
                held["loss"].backward(retain_graph=True)
            else:
                torch.autograd.backward([held["loss"]], retain_graph=True)
            return x * 2

        call = wrap(step)
        for number in range(CALLS):
            x = torch.full((3,), float(number + 1), device=device)
            prepare(weight, number)
            make(weight, held, x)
            yield call(x), weight.grad.clone()

    for (found, gradient), (wanted, plain) in zip(
        play(rote.graph), play(lambda function: function), strict=True
    ):
        assert_same(found, wanted)
        assert_same(gradient, plain)
