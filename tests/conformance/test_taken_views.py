"""Results that are views of arguments or of state: autograd treats those of a replay as plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote

CALLS = 5


class Flat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient.view(2, 2)


PARTS = {
    "unbind": lambda x: x.unbind(0),
    "chunk": lambda x: x.chunk(2),
    "split": lambda x: x.split(1),
    "split by sizes": lambda x: x.split([1, 1], 1),
    "part of a part": lambda x: [part[0] for part in x.unbind(0)],
}


@pytest.mark.parametrize("parts", PARTS)
def test_parts_of_an_argument_are_not_written(device, parts):
    graphed = rote.graph(PARTS[parts])
    for _ in range(CALLS):
        x = torch.ones(2, 2, device=device, requires_grad=True) * 1
        part = graphed(x)[0]
        with pytest.raises(RuntimeError, match="returns multiple views"):
            part.mul_(2)
        assert x.sum() == 4
    assert graphed.report().replayed >= 3


@pytest.mark.parametrize("fn", [Flat.apply, lambda x: Flat.apply(x)[1:], lambda x: Flat.apply(x).chunk(2)[1]])
def test_a_view_with_a_gradient_of_its_own(device, fn):
    graphed = rote.graph(fn)
    for _ in range(CALLS):
        gradients = []
        for step in (fn, graphed):
            x = torch.ones(2, 2, device=device, requires_grad=True)
            step(x * 1).sum().backward()
            gradients.append(x.grad)
        assert gradients[0].equal(gradients[1])


def test_a_view_of_a_parameter_with_a_gradient_of_its_own(device):
    weight = nn.Parameter(torch.ones(2, 2, device=device))
    graphed = rote.graph(lambda: Flat.apply(weight))
    for _ in range(CALLS):
        (gradient,) = torch.autograd.grad(graphed().sum(), weight)
        assert gradient.sum() == -4


@pytest.mark.parametrize("fn", [
    lambda x: x.data, lambda x: x.data[0], lambda x: x[0].data, lambda x: x.view(-1).data,
])  # fmt: skip
def test_data_counts_versions_of_its_own(device, fn):
    graphed = rote.graph(fn)
    for _ in range(CALLS):
        x, weight = torch.ones(2, 2, device=device), torch.ones((), device=device, requires_grad=True)
        loss = (x * weight).sum()
        graphed(x).add_(1)
        assert x._version == 0 and x.sum() > 4
        loss.backward()
    assert graphed.report().replayed >= 3


def test_data_of_a_parameter_counts_versions_of_its_own(device):
    weight = nn.Parameter(torch.ones(2, device=device))
    graphed = rote.graph(lambda x: (x * 2, weight.data))
    results: list[torch.Tensor] = []
    for _ in range(CALLS):
        before = [each._version for each in results]
        graphed(torch.ones(2, device=device))[1].add_(1)
        assert [each._version for each in results] == before
        results.append(graphed(torch.ones(2, device=device))[1])
    assert weight._version == 0
