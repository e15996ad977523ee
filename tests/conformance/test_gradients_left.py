"""Gradients that a call leaves for an optimizer outside, and those that it adds to."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

STEPS = 60


class Loop:
    """A model, its optimizer, and what its user does between calls."""

    def __init__(self, device, between=lambda loop, number: None, each=2, make=torch.optim.SGD):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
        self.optimizer = make(self.model.parameters(), 0.05)
        self.between, self.each, self.held = between, each, []

    def accumulate(self, x, last):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss.detach()

    def clears(self, x, last):
        loss = self.accumulate(x, last)
        if last:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss

    def reads(self, x, last):
        loss = self.model(x).square().mean()
        (loss if loss.item() > 0.1 else 2 * loss).backward()
        return loss.detach()

    def run(self, method, wrap):
        step, seen = wrap(getattr(self, method)), []
        for number in range(STEPS):
            last = number % self.each == self.each - 1
            seen.append(step(torch.randn(4, 3).to(self.model[0].weight), last))
            seen += [None if p.grad is None else p.grad.clone() for p in self.model.parameters()]
            self.between(self, number)
            seen += [each.clone() for each in self.held]
            if last and method != "clears":
                self.optimizer.step()
                self.optimizer.zero_grad()
        return [*seen, *self.model.parameters()]


def played(method, device, **how):
    """Plainly, and graphed; the graphed callable."""
    graphs = []

    def wrap(function):
        graphs.append(rote.graph(function))
        return graphs[0]

    plain = Loop(device, **how).run(method, lambda function: function)
    assert_same(Loop(device, **how).run(method, wrap), plain)
    return graphs[0]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("each", [1, 2, 4])
@pytest.mark.parametrize("method", ["accumulate", "clears", "reads"])
def test_an_optimizer_steps_outside(device, method, each, make):
    if make is torch.optim.AdamW and method == "clears" and device.type == "cuda":
        pytest.skip("its step is about numbers")
    replayed = played(method, device, each=each, make=make).report().replayed
    assert replayed >= STEPS // 4 or (method == "reads" and each > 2)  # more states and ways than calls


def held(loop, number):
    loop.held.append(loop.model[0].weight.grad)


def viewed(loop, number):
    loop.held.append(loop.model[0].weight.grad.view(-1)[2:])


def detached(loop, number):
    loop.held.append(loop.model[2].bias.grad.detach())


def taken_as_an_array(loop, number):
    array = loop.model[0].weight.grad.cpu().numpy()
    loop.held.append(torch.from_numpy(array))


def scaled(loop, number):
    loop.model[0].weight.grad.mul_(0.5)


def put_another(loop, number):
    loop.model[0].bias.grad = torch.ones_like(loop.model[0].bias)


def rebound(loop, number):
    loop.model[0].bias.grad.data = loop.model[0].bias.grad.data * 2


def put_again(loop, number):
    kept, loop.model[0].weight.grad = loop.model[0].weight.grad, None
    loop.model[0].weight.grad = kept


def cleared_in_part(loop, number):
    loop.model[2].weight.grad = None


def added_to_plainly(loop, number):
    loop.model(torch.ones(2, 3).to(loop.model[0].weight)).sum().backward()


def copied(loop, number):
    loop.held = list(copy.deepcopy(loop.model).parameters())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["accumulate", "reads"])
@pytest.mark.parametrize(
    "between",
    [held, viewed, detached, taken_as_an_array, scaled, put_another, rebound,
     put_again, cleared_in_part, added_to_plainly, copied],
)  # fmt: skip
def test_what_is_done_with_gradients_between_calls(device, between, method):
    played(method, device, between=between)


def test_attributes_of_a_gradient_go_with_it(device):
    layer = nn.Linear(2, 2).to(device)

    @rote.graph
    def step(x):
        layer(x).sum().backward()

    for _ in range(6):
        step(torch.ones(1, 2, device=device))
        assert not hasattr(layer.weight.grad, "norm_was")
        layer.weight.grad.norm_was = 1.0
        layer.zero_grad()
    assert step.report().replayed


def test_gradients_that_others_hold_are_copied(device, reason):
    g = played("accumulate", device, between=held)
    assert ".grad was " in reason(g, "RT414").message


def test_two_callables_add_to_one_gradient(device):
    layer = nn.Linear(2, 2).to(device)
    first = rote.graph(lambda x: layer(x).sum().backward())
    second = rote.graph(lambda x: layer(x).square().sum().backward())
    for _ in range(12):
        x = torch.randn(3, 2, device=device)
        first(x)
        second(x)
        found = [each.grad for each in layer.parameters()]
        layer.zero_grad()
        (layer(x).sum()).backward()
        layer(x).square().sum().backward()
        assert_same(found, [each.grad for each in layer.parameters()])
        del found
        layer.zero_grad()
    assert first.report().replayed and second.report().replayed


def halved(weight):
    weight.data = weight.data.half()


def widened(weight):
    weight.data = weight.data.double()


def shortened(weight):
    weight.data = weight.data[:1].clone()


def any_type(weight):
    weight.grad_dtype = None


def wide_gradient(weight):
    weight.grad, weight.grad_dtype = None, torch.float64


@pytest.mark.parametrize("change", [halved, widened, shortened, any_type, wide_gradient])
@pytest.mark.parametrize("inside", [True, False])
def test_a_gradient_unlike_its_parameter(device, change, inside):
    def play(wrap):
        weight = nn.Parameter(torch.full((3,), 2.0, device=device))

        def step(x):
            loss = (weight * x.to(weight.dtype)).sum()
            if not inside:
                return loss
            loss.backward()
            return loss.detach()

        graphed, seen = wrap(step), []
        for number in range(14):
            if number == 5:
                change(weight)
            if number == 10:
                weight.grad = None
            seen.append(graphed(torch.full((3,), float(number), device=device)))
            try:
                seen += [None] if inside else [seen[-1].backward()]
            except RuntimeError as error:
                seen.append(type(error).__name__)
            seen += [None if weight.grad is None else weight.grad.clone(), weight.grad_dtype]
        return seen

    assert_same(play(rote.graph), play(lambda step: step))


class Beside(torch.autograd.Function):
    """Has gradients of two parameters in one memory, as cuDNN has those of a recurrent layer."""

    @staticmethod
    def forward(ctx, x, scale, shift):
        ctx.save_for_backward(x, scale)
        return x * scale + shift

    @staticmethod
    def backward(ctx, *grads):
        x, scale = ctx.saved_tensors
        both = torch.cat([(grads[0] * x).sum(0), grads[0].sum(0)])
        return grads[0] * scale, both[:8], both[8:]


def recurrent(device):
    layer = nn.GRU(8, 8, batch_first=True).to(device)
    return layer, lambda x: layer(x.view(1, 4, 8))[0]


def beside(device):
    layer = nn.ParameterDict({"scale": torch.ones(8), "shift": torch.zeros(8)}).to(device)
    return layer, lambda x: Beside.apply(x, layer.scale, layer.shift)


@pytest.mark.parametrize("make", [recurrent, beside])
@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize("changes", [True, False])
def test_gradients_beside_each_other(device, make, clears, changes):
    """Replays give each of them memory of its own, and what is kept of them stays as it was."""
    kept = ([], [])
    sides = []
    for number in range(2):
        torch.manual_seed(0)
        layer, call = make(device)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)

        def step(x, layer=layer, call=call, optimizer=optimizer):
            if clears:
                optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        sides.append((layer, rote.graph(step, keep=True) if number else step))
    (plain, step), (graphed, g) = sides
    for number in range(14):
        x = torch.randn(4, 8, device=device)
        assert_same(g(x), step(x), f"call {number}")
        for own, (layer, _) in zip(kept, sides, strict=True):
            gradients = [each.grad for each in layer.parameters()]
            own.append(gradients[0] if clears else gradients[0].clone())
            if changes:
                gradients[0].mul_(2)
        for one, other in zip(graphed.parameters(), plain.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad) and torch.equal(one, other)
    assert all([torch.equal(one, other) for one, other in zip(*kept, strict=True)])
    assert g.report().replayed >= 9, g.explain()
