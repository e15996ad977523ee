"""Gradients that are computed inside the callable and leave it: such calls run eagerly and say so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same, compare

WARM = rote.Options().warmup + 1


def test_autograd_inside_that_leaves_no_gradient(device):
    layer = nn.Linear(3, 3).to(device)

    def fn(x):
        loss = layer(x).square().sum()
        return torch.autograd.grad(loss, list(layer.parameters()))

    g = compare(fn, [(torch.randn(2, 3, device=device),) for _ in range(8)])
    assert g.report().replayed == 8 - WARM and layer.weight.grad is None


def test_gradients_that_leave_are_their_owners(device):
    """The caller clears them, and so does the call; those of all steps are kept."""
    layer = nn.Linear(4, 4).to(device)

    def forward_backward(x):
        layer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        return loss.detach()

    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    g, kept = rote.graph(forward_backward), []
    for _ in range(12):
        layer.zero_grad()
        x = torch.randn(2, 4, device=device)
        g(x)
        kept.append((layer.weight.grad, x.sum(0).expand(4, 4)))
        assert all(torch.equal(grad, expected) for grad, expected in kept)
        optimizer.step()
    assert g.report().replayed >= 8, g.explain()


def test_a_gradient_that_is_a_result_as_well(device, reason):
    layer = nn.Linear(4, 4).to(device)

    def fn(x):
        layer.zero_grad()
        layer(x).sum().backward()
        return layer.weight.grad

    g = rote.graph(fn)
    for number in range(6):
        x = torch.full((2, 4), float(number), device=device)
        assert g(x) is layer.weight.grad and torch.equal(layer.weight.grad, x.sum(0).expand(4, 4))
    assert g.report().replayed == 0
    assert reason(g, "RT402").message == (
        "test_a_gradient_that_is_a_result_as_well.<locals>.fn.layer.weight.grad, which the call makes, "
        "is the result as well"
    )


def test_backward_inside_that_reaches_an_argument(device, reason, where):
    def fn(x):
        return torch.autograd.grad((x * 2).sum(), x)[0]

    leaves = rote.graph(fn)
    for _ in range(10):
        assert leaves(torch.ones(3, device=device, requires_grad=True)).tolist() == [2.0] * 3
    assert leaves.report().replayed == 8
    g = rote.graph(fn)
    for _ in range(10):
        assert g(torch.ones(3, device=device, requires_grad=True) * 1).tolist() == [2.0] * 3
    found = reason(g, "RT403")
    assert found.message == "args[0] requires grad, and a backward inside the call may come to it"
    assert found.where == where(fn, "autograd.grad") and g.report().replayed == 0


def test_parameters_that_receive_gradients_through_an_input(device):
    """Gradients reach the caller's tensors in eager; they have to here."""
    g = rote.graph(lambda x: (x * 3).sum().backward())
    for _ in range(8):
        x = torch.ones(3, device=device, requires_grad=True)
        g(x)
        assert x.grad.tolist() == [3.0] * 3


@pytest.mark.parametrize(
    "change",
    [lambda x: x.requires_grad_(), lambda x: setattr(x, "requires_grad", True)],
    ids=["method", "set"],
)
def test_an_argument_made_to_require_grad(device, change):
    def fn(x):
        change(x)
        return (x * 2).detach()

    g = compare(fn, [(torch.ones(3, device=device),) for _ in range(6)])
    assert g.report().replayed == 4
    kept = compare(lambda x: x.requires_grad_(False) * 2, [(torch.ones(3, device=device),) for _ in range(6)])
    assert kept.report().replayed == 4
    own = compare(lambda x: x.detach().requires_grad_().detach() * 2, [(torch.ones(3, device=device),)] * 6)
    assert own.report().replayed == 4


def returned(layer, x, state):
    return layer.bias.grad


def kept(layer, x, state):
    state["gradient"] = layer.weight.grad
    return x


def part_of_it(layer, x, state):
    return layer.weight.grad[0]


def in_two_slots(layer, x, state):
    layer.other.grad = layer.bias.grad
    return x


@pytest.mark.parametrize("show", [returned, kept, part_of_it, in_two_slots], ids=lambda show: show.__name__)
def test_a_gradient_that_is_shown_elsewhere_is_one_tensor(show, device):
    def run(graph):
        layer, state, seen = nn.Linear(2, 2, device=device), {}, []
        nn.init.ones_(layer.weight)
        layer.other = nn.Parameter(torch.ones(2, device=device))
        layer.other.grad = torch.ones(2, device=device)

        def step(x):
            layer.zero_grad()
            layer(x).sum().backward()
            return show(layer, x, state)

        call = rote.graph(step) if graph else step
        for _ in range(6):
            result = call(torch.ones(1, 2, device=device))
            for each in (result, *state.values(), layer.other.grad):
                if each is not None:
                    each.mul_(7)
            seen.append([None if each.grad is None else each.grad.clone() for each in layer.parameters()])
            seen[-1].append(result is layer.bias.grad)
        return seen

    assert_same(run(True), run(False))
