"""Tensors left over from a finished ``torch.func`` transform have no memory: calls with them run plainly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote

CALLS = 5


def gradient_wrapper(device):
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(torch.linspace(0, 1, 3, device=device))
    return kept[0]


def batch_wrapper(device):
    kept = []
    torch.vmap(lambda x: (kept.append(x), x.sum())[1])(torch.ones(2, 3, device=device))
    return kept[0]


def functional_wrapper(device):
    kept = []
    torch.func.functionalize(lambda x: (kept.append(x), x.sum())[1])(torch.linspace(0, 1, 3, device=device))
    return kept[0]


MAKERS = (gradient_wrapper, batch_wrapper, functional_wrapper)


class Holder(nn.Module):
    """Has the tensor in its state; uses it or not."""

    def __init__(self, kept, used) -> None:
        super().__init__()
        self.kept, self.used = kept, used

    def forward(self, x):
        return (x * self.kept).exp() if self.used else x.exp()


def closure(kept):
    return lambda x: (x + kept).sin()


def outcome(call, *args):
    """The values, or what was raised."""
    try:
        value = call(*args)
    except RuntimeError as error:
        return str(error)
    return repr(value)


def compare(plain, graphed, *args):
    for _ in range(CALLS):
        wanted = outcome(plain, *args)
        assert outcome(graphed, *args) == wanted
    return wanted


@pytest.mark.parametrize("make", MAKERS)
def test_as_an_argument(device, make, reason):
    kept = make(device)
    g = rote.graph(torch.exp)
    compare(torch.exp, g, kept)
    assert g.report().replayed == 0
    assert reason(g, "RT601").message == "args[0] is a tensor left over from a torch.func transform"


@pytest.mark.parametrize("make", MAKERS)
def test_beside_other_arguments(device, make):
    g = rote.graph(torch.add)
    compare(torch.add, g, torch.ones(3, device=device), make(device))
    assert g.report().replayed == 0
    compare(torch.add, g, torch.ones(3, device=device), torch.ones(3, device=device))
    assert g.report().replayed == CALLS - 2


@pytest.mark.parametrize("make", MAKERS)
def test_after_plain_arguments_of_the_same_look(device, make):
    """The generated check of a recorded key tells them apart."""
    g, plain = rote.graph(torch.exp), torch.linspace(0, 1, 3, device=device)
    for requires_grad in (False, True):
        plain.requires_grad_(requires_grad)
        for _ in range(CALLS):
            assert torch.equal(g(plain), plain.exp())
        compare(torch.exp, g, make(device))
    assert g.report().replayed == 2 * (CALLS - 2)


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("make", MAKERS)
def test_in_the_state_of_a_module(device, make, used):
    module = Holder(make(device), used)
    g = rote.graph(module)
    compare(module, g, torch.ones(3, device=device))
    assert g.report().replayed == (0 if used else CALLS - 2)


@pytest.mark.parametrize("make", MAKERS)
def test_in_a_closure(device, make):
    fn = closure(make(device))
    g = rote.graph(fn)
    compare(fn, g, torch.ones(3, device=device))
    assert g.report().replayed == 0


@pytest.mark.parametrize("make", MAKERS)
def test_as_a_result(device, make):
    kept = make(device)

    def fn(x):
        return x.exp(), kept

    g = rote.graph(fn)
    x = torch.ones(3, device=device)
    for _ in range(CALLS):
        value, same = g(x)
        assert same is kept
        assert torch.equal(value, x.exp())


@pytest.mark.parametrize("make", MAKERS)
def test_it_comes_and_goes(device, make):
    """State that changes to such a tensor and back."""
    module = Holder(torch.full((3,), 2.0, device=device), used=True)
    g = rote.graph(module)
    x = torch.ones(3, device=device)
    before = module.kept
    compare(module, g, x)
    module.kept = make(device)
    compare(module, g, x)
    module.kept = before
    compare(module, g, x)
    assert g.report().replayed >= CALLS - 2


@pytest.mark.parametrize("make", MAKERS)
def test_in_a_container_and_by_name(device, make):
    def fn(x, *, more):
        return x + more["kept"][0]

    g, kept, x = rote.graph(fn), make(device), torch.ones(3, device=device)
    for _ in range(CALLS):
        assert outcome(lambda: g(x, more={"kept": [kept]})) == outcome(lambda: fn(x, more={"kept": [kept]}))
    assert g.report().replayed == 0


@pytest.mark.parametrize("make", MAKERS)
def test_with_verification_and_in_turn(device, make):
    """Every call is made both ways, and the key of a plain tensor is replayed meanwhile."""
    g, kept = rote.graph(torch.exp, verify=1), make(device)
    for _ in range(CALLS):
        assert outcome(g, kept) == outcome(torch.exp, kept)
        assert torch.equal(g(torch.ones(3, device=device)), torch.ones(3, device=device).exp())
    assert g.report().replayed == CALLS - 2


@pytest.mark.parametrize("make", MAKERS)
def test_made_inside_the_call(device, make):
    def fn(x):
        make(x.device)
        return x.exp(), make(x.device)

    g = rote.graph(fn)
    for _ in range(CALLS):
        value, kept = g(torch.ones(3, device=device))
        assert repr(kept) == repr(make(device))
        assert torch.equal(value, torch.ones(3, device=device).exp())
