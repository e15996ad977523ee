"""Grad and inference modes that a call turns on and off inside, in all nestings, with results of both."""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

MODES = {
    "inference": torch.inference_mode,
    "no inference": lambda: torch.inference_mode(False),
    "no grad": torch.no_grad,
    "grad": torch.enable_grad,
    "grad set": lambda: torch.set_grad_enabled(True),
    "grad unset": lambda: torch.set_grad_enabled(False),
}
OUTER = {"plain": torch.enable_grad, "no grad": torch.no_grad, "inference": torch.inference_mode}
NESTINGS = [*itertools.product(MODES, repeat=1), *itertools.product(MODES, repeat=2)]


def flags(tensor):
    return tensor.is_inference(), tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None


def gradients(results, leaves):
    """What a backward from each result leaves in the leaves."""
    found = []
    for result in results:
        for leaf in leaves:
            leaf.grad = None
        if result.requires_grad:
            result.sum().backward(retain_graph=True)
        found.append([leaf.grad for leaf in leaves])
    return found


def played(call, outer, make, leaves):
    for _ in range(4):
        args = make()
        try:
            with OUTER[outer]():
                results = call(*args)
        except RuntimeError as error:
            yield str(error)
        else:
            yield results, [flags(each) for each in results], args[0].clone(), gradients(results, leaves)


def compared(call, outer, make, leaves):
    g = rote.graph(call)
    for one, two in zip(played(g, outer, make, leaves), played(call, outer, make, leaves), strict=True):
        assert_same(one, two)
    return g.report()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("outer", OUTER)
def test_nested_modes(outer, device):
    weight = nn.Parameter(torch.randn(3, device=device))
    for nesting in NESTINGS:

        def call(x, nesting=nesting):
            found = [x * 2]
            with ExitStack() as modes:
                for name in nesting:
                    modes.enter_context(MODES[name]())
                    found += [found[0].clone(), x * 3 + weight.detach(), x * weight]
            return [*found, x * 5]

        compared(call, outer, lambda: (torch.ones(3, device=device),), [weight])


def in_place(x, weight):
    with torch.inference_mode(False):
        x.add_(1)
    return (x * 2,)


def saved_for_backward(x, weight):
    with torch.inference_mode(False), torch.enable_grad():
        y = x.clone().requires_grad_()
        return (torch.autograd.grad((y * y).sum(), y)[0],)


def tracked(x, weight):
    with torch.inference_mode(False), torch.enable_grad():
        return x * weight, weight * weight, x.clone()


def views(x, weight):
    with torch.inference_mode(False), torch.enable_grad():
        return weight.view(3, 1), weight[1:], x.view(3, 1), weight


def views_in_grad_mode(x, weight):
    with torch.enable_grad():
        return weight.view(3, 1), weight[1:] * 2


def trained(x, weight):
    with torch.inference_mode(False), torch.enable_grad():
        copy = nn.Parameter(weight.detach().clone())
        optimizer = torch.optim.SGD([copy], lr=0.1)
        (copy * x.clone()).sum().backward()
        optimizer.step()
    return (copy.detach(),)


CALLS = [in_place, saved_for_backward, tracked, views, views_in_grad_mode, trained]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["outside", "inference", "leaf"])
def test_inference_mode_off_inside(call, outer, kind, device):
    weight = torch.randn(3, device=device, requires_grad=True)
    weight = weight if kind == "leaf" else nn.Parameter(weight.detach())

    def make():
        torch.manual_seed(0)
        with torch.inference_mode(kind == "inference"):
            return torch.randn(3, device=device), weight

    compared(call, outer, make, [weight])


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("call", [in_place, saved_for_backward, views, views_in_grad_mode])
def test_it_replays(call, outer, device):
    if call is views_in_grad_mode and outer == "inference":
        pytest.skip("plain raises there")
    weight = nn.Parameter(torch.randn(3, device=device))
    report = compared(call, outer, lambda: (torch.ones(3, device=device), weight), [])
    assert report.replayed or call is views_in_grad_mode, report
