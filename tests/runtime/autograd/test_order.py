"""On which threads traced calls go back, by what such calls have done."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from rote.runtime.autograd import BackwardOrder, BackwardPasses

CALLS = {
    "nothing nested": ([(False, False)] * 4, [False] * 4),
    "they agree": ([(True, False), (True, True), (True, False), (True, False)], [True] * 4),
    "they differ at first": ([*[(True, True)] * 5, (True, False)], [True] * 6),
    "they differ": ([*[(True, True)] * 7], [True] * 5 + [False] * 2),
    "now and then": ([(False, False), (True, True), (False, True), (True, True)], [False, True, False, True]),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CALLS)
def test_by_what_calls_have_done(name):
    told, expected = CALLS[name]
    order = BackwardOrder()
    assert order.as_plainly
    found = []
    for nested, differed in told:
        order.learn(nested=nested, differed=differed)
        found.append(order.as_plainly)
    assert found == expected


def test_what_is_nested():
    x = torch.ones(2, requires_grad=True)
    for passes, graphed, nested in ((1, True, False), (2, False, False), (2, True, True)):
        met = BackwardPasses()
        for _ in range(passes):
            met.meet()  # outside of a backward
            y = (x * 2).square()
            y.register_hook(lambda grad, met=met: met.meet())
            torch.autograd.grad(y.sum(), x, create_graph=graphed)
        assert met.nested is nested


def test_a_checkpoint_is_not_nested():
    met = BackwardPasses()
    x = torch.ones(2, requires_grad=True)

    def calculated(x):
        met.meet()
        x.register_hook(lambda grad: met.meet())
        return x * 2

    y = checkpoint(calculated, x, use_reentrant=True)
    y.register_hook(lambda grad: met.meet())
    y.sum().backward()
    assert not met.nested
