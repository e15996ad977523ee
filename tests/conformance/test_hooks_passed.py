"""Hooks that somebody puts on tensors which ``torch.autograd.grad`` comes by: replays do not ignore them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rote

CALLS, CHANGE, BACK = 12, 6, 10


def leaf(x, own):
    return torch.autograd.grad((x * own.weight).sum(), [own.weight])[0]


def twice(x, own):
    (first,) = torch.autograd.grad((x * own.weight**3).sum(), [own.weight], create_graph=True)
    return torch.autograd.grad(first.sum(), [own.weight])[0]


def beside(x, own):
    x = x.detach().requires_grad_()
    return torch.autograd.grad((x * own.weight).sum(), [x, own.weight])[1]


def through(x, own):
    return torch.autograd.grad((x * own.inner).sum(), [own.weight], retain_graph=True)[0]


def up_to(x, own):
    return torch.autograd.grad((x * own.inner).sum(), [own.inner], retain_graph=True)[0]


def run(call, hooked, device, wrap):
    torch.manual_seed(0)
    own = SimpleNamespace(weight=nn.Parameter(torch.randn(3, device=device)), inner=None, seen=[])
    own.inner = own.weight * 2
    g, found, handle = wrap(lambda x: call(x, own)), list[torch.Tensor](), None
    for number in range(CALLS):
        if number == CHANGE:
            handle = getattr(own, hooked).register_hook(lambda grad: own.seen.append(1) or grad * 3)
        if number == BACK and handle is not None:
            handle.remove()
        found.append(g(torch.full((3,), number + 1.0, device=device)).clone())
    return found, len(own.seen), g


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hooked", ["weight", "inner"])
@pytest.mark.parametrize("call", [leaf, twice, beside, through, up_to])
def test_a_hook_that_comes_later_is_called(device, call, hooked):
    plain, seen, _ = run(call, hooked, device, lambda fn: fn)
    found, count, g = run(call, hooked, device, rote.graph)
    assert all(torch.equal(*pair) for pair in zip(found, plain, strict=True)), g.explain()
    assert count == seen
    if call not in (through, up_to):
        assert g.report().replayed, g.explain()
