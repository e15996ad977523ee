"""Gradients: both directions, in any order, kept, cut, and with modes that change."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rote.testing import assert_same

NOT_A_LEAF = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
"""Dynamo looks at it."""


def network(device, *more):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), *more, nn.Tanh(), nn.Linear(8, 4)).to(device)


def train(step, model, calls):
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    for (x,) in calls:
        optimizer.zero_grad()
        loss = step(x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found, [each.detach().clone() for each in model.parameters()]


def test_training(way, inputs, device):
    model, plain, calls = network(device), network(device), inputs(3, 4)
    assert_same(train(way(model), model, calls), train(plain, plain, calls), tolerance=way.near)
    assert way.replays() == len(calls) - way.warm and way.walks()


@NOT_A_LEAF
def test_two_models_in_turns(way, inputs, device):
    models = [network(device), network(device, nn.ReLU())]
    plains = copy.deepcopy(models)

    def program(maker, critic, steps):
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (maker, critic)]
        losses = []
        for (x,) in calls:
            for optimizer in optimizers:
                optimizer.zero_grad()
            made = steps[0](x)
            loss = steps[1](made).mean() - steps[1](made.detach()).square().mean()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.detach())
        return losses, [each.detach().clone() for model in (maker, critic) for each in model.parameters()]

    calls = inputs(3, 4)
    ours = program(*models, [way(model) for model in models])
    theirs = program(*plains, plains)
    for mine, other in zip(ours[0] + ours[1], theirs[0] + theirs[1], strict=True):
        torch.testing.assert_close(mine, other)  # gradients of two calls may be added in another order
    assert way.replays() and way.walks()


def test_graphs_that_are_kept(way, inputs, device):
    model = network(device)
    graphed = way(model)
    for (x,) in inputs(3, 4):
        loss, expected = graphed(x).sum(), model(x).sum()
        once = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
        again = torch.autograd.grad(loss, [*model.parameters()])
        assert_same(once, again)
        assert_same(once, torch.autograd.grad(expected, [*model.parameters()]), tolerance=way.near)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_gradients_are_added_up(way, device):
    graphed = way(lambda x: x + 2)
    for _ in range(8):
        x, gradient = torch.randn(5, device=device, requires_grad=True), torch.ones(5, device=device)
        y = graphed(x)
        y.backward(gradient, retain_graph=True)
        first = x.grad
        y.backward(gradient)
        assert x.grad is first, "added in place, as in eager"
        assert_same(x.grad, gradient * 2)


def test_forwards_without_a_backward(way, inputs, device):
    model = network(device)
    graphed = way(model)
    results = [(x, graphed(x)) for (x,) in inputs(3, 4)]
    for x, result in results:
        assert_same(result.detach(), model(x).detach(), tolerance=way.near)
    del results, result
    for (x,) in inputs(3, 4):
        ours = torch.autograd.grad(graphed(x).sum(), [*model.parameters()])
        assert_same(ours, torch.autograd.grad(model(x).sum(), [*model.parameters()]), tolerance=way.near)
    assert way.replays() and way.walks()


def test_backwards_that_come_late(way, inputs, device):
    model = network(device)
    graphed = way(model)
    for turn in range(6):
        calls = inputs(3, 4, count=2)
        losses = [(x, graphed(x).sum()) for (x,) in calls]
        for x, loss in losses if turn % 2 else reversed(losses):
            ours = torch.autograd.grad(loss, [*model.parameters()])
            assert_same(ours, torch.autograd.grad(model(x).sum(), [*model.parameters()]), tolerance=way.near)
    assert way.replays() and way.walks()


def test_one_of_several_results_is_walked_back(way, inputs, device):
    graphed = way(lambda x, y: (x * x * x, y * y))
    for number in range(10):
        x, y = (torch.randn(4, device=device, requires_grad=True) for _ in range(2))
        first, second = graphed(x, y)
        (first if number % 2 else second).sum().backward()
        asked, other = (x, y) if number % 2 else (y, x)
        if way.compiles:  # a compiled backward is one for all results
            assert other.grad is None or not other.grad.any()
        else:
            assert other.grad is None
        expected = (3 * x * x if number % 2 else 2 * y).detach()
        assert_same(asked.grad, expected, tolerance=1e-5)


def test_gradients_that_overlap(way, device):
    graphed = way(lambda x: x * x * x)
    for _ in range(8):
        x = torch.randn(6, 6, device=device, requires_grad=True)
        gradient = torch.randn(1, 6, device=device).expand(6, 6)
        graphed(x).backward(gradient)
        expected = x.detach().clone().requires_grad_()
        (expected * expected * expected).backward(gradient)
        assert_same(x.grad, expected.grad)


@NOT_A_LEAF
def test_one_callable_on_the_result_of_another(way, device):
    first, second = way(lambda x: x * x * x), way(lambda x: x * 12)
    for _ in range(8):
        x = torch.randn(4, device=device, requires_grad=True)
        second(first(x)).sum().backward()
        assert_same(x.grad, (36 * x * x).detach(), tolerance=1e-5)
        assert_same(first(x.detach()).requires_grad, False)
    assert way.walks()


def test_modes_in_turns(way, inputs, device):
    model = network(device)
    graphed = way(model)
    for number, (x,) in enumerate(inputs(3, 4, count=18)):
        mode = (torch.enable_grad, torch.no_grad, torch.inference_mode)[number % 3]
        with mode():
            ours, theirs = graphed(x), model(x)
            assert (ours.requires_grad, ours.is_inference()) == (theirs.requires_grad, theirs.is_inference())
        assert_same(ours.detach(), theirs.detach(), tolerance=way.near)
    assert way.replays() >= 4


def test_parameters_that_are_frozen(way, inputs, device):
    model = network(device)
    graphed = way(model)
    for number, (x,) in enumerate(inputs(3, 4, count=16)):
        model[0].weight.requires_grad_(number % 8 < 4)
        model.zero_grad()
        graphed(x).sum().backward()
        assert (model[0].weight.grad is not None) is (number % 8 < 4)
    assert way.replays()


def test_sizes_that_change(way, device):
    def fn(x):
        x = torch.cat([x, x])
        return torch.addmm(x, x, x).relu(), x.size(0)

    graphed = way(fn)
    for number in range(12):
        size = 2 + number % 2
        x = torch.randn(size, 2 * size, device=device, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        (ours, rows), (theirs, expected) = graphed(x), fn(y)
        ours.sum().backward()
        theirs.sum().backward()
        assert rows == expected
        assert_same([ours.detach(), x.grad], [theirs.detach(), y.grad], tolerance=way.near)
    assert way.replays() and way.walks()


def test_checkpoints(way, inputs, device):
    model = network(device)

    def fn(x):
        return checkpoint(model, x, use_reentrant=False) * 2

    graphed = way(fn)
    for (x,) in inputs(3, 4):
        ours = torch.autograd.grad(graphed(x).sum(), [*model.parameters()])
        assert_same(ours, torch.autograd.grad(fn(x).sum(), [*model.parameters()]), tolerance=way.near)


def test_gradients_of_gradients(way, device):
    graphed = way(lambda x: x * x * x)
    for _ in range(6):
        x = torch.randn(4, device=device, requires_grad=True)
        first = graphed(x).sum()
        if way.compiles:
            (made,) = torch.autograd.grad(first, x, create_graph=True)
            with pytest.raises(RuntimeError, match="double backward"):
                made.sum().backward()
            continue
        (made,) = torch.autograd.grad(first, x, create_graph=True)
        (second,) = torch.autograd.grad(made.sum(), x)
        assert_same(second, (6 * x).detach(), tolerance=1e-5)


def test_what_a_backward_needs_is_written_between(way, device):
    graphed = way(lambda x, y: x * y)
    for number in range(8):
        x, y = torch.randn(4, device=device, requires_grad=True), torch.randn(4, device=device)
        result = graphed(x, y)
        if number % 2:
            y.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        else:
            result.sum().backward()
            assert_same(x.grad, y)


def test_casts_are_not_kept_between_calls(way, device):
    graphed = way(lambda x: x + x)
    for _ in range(6):
        result = graphed(torch.randn(4, 4, device=device, requires_grad=True))
    other = torch.randn(4, 4, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        once = result @ other
        result.detach().zero_()
        assert not once.equal(result @ other)


def test_hooks_on_results_and_parameters(way, inputs, device):
    model, seen = network(device), []
    graphed = way(model)
    model[0].weight.register_hook(lambda gradient: seen.append("weight"))
    for (x,) in inputs(3, 4):
        result = graphed(x)
        result.register_hook(lambda gradient: seen.append("result"))
        result.sum().backward()
    assert sorted(seen) == ["result"] * 8 + ["weight"] * 8
