"""Gradients of gradients: autograd goes through their graph in the same order in each call that is traced."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import rote
from rote.testing import assert_same

CALLS = 24


class Adapting:
    """The inner and outer loop of MAML."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        weights = dict(self.model.named_parameters())
        for _ in range(2):
            loss = F.mse_loss(torch.func.functional_call(self.model, weights, (x,)), y)
            found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), found, strict=True)}
        loss = F.mse_loss(torch.func.functional_call(self.model, weights, (x,)), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Forces:
    """An energy whose gradient by positions is a result, as networks of molecules have it."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        positions = x[:, :3].clone().requires_grad_()
        distances = (positions[:, None] - positions[None]).square().sum(-1) + 1
        energy = (self.model(positions) * distances.rsqrt().sum(1, keepdim=True)).sum()
        (forces,) = torch.autograd.grad(energy, positions, create_graph=True)
        loss = F.mse_loss(forces, y) + energy.square() * 1e-3
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Tasks:
    """MAML by torch.func, over several tasks at once: many gradients meet in the bias of the first layer."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return F.mse_loss(torch.func.functional_call(self.model, weights, (x,)), y)

        def adapted(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            found = torch.func.grad(loss_of)(weights, x[:8], y[:8])
            fast = {name: weight - 0.1 * found[name] for name, weight in weights.items()}
            return loss_of(fast, x[8:], y[8:])

        def outer(weights: dict[str, Tensor]) -> Tensor:
            return torch.vmap(adapted, in_dims=(None, 0, 0))(weights, x, y).mean()

        weights = {name: weight.detach() for name, weight in self.model.named_parameters()}
        found = torch.func.grad(outer)(weights)
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.sub_(0.01 * found[name])
        return torch.stack([each.square().sum() for each in found.values()])


SIZES = {Adapting: ((5, 6), (5, 3)), Forces: ((5, 6), (5, 3)), Tasks: ((4, 16, 1), (4, 16, 1))}


def settles(device: torch.device, kind: type[Adapting | Forces | Tasks]) -> None:
    """Run a program plain and graphed; every call is right, and all but the first are replayed."""
    plain, graphed, first = kind(device), kind(device), kind(device)
    first.step(*[torch.zeros(size, device=device) for size in SIZES[kind]])  # begins autograd's threads
    g = rote.graph(graphed.step, keep=True)
    generator = torch.Generator().manual_seed(1)
    for number in range(CALLS):
        x, y = [torch.randn(size, generator=generator).to(device) for size in SIZES[kind]]
        assert_same(g(x, y), plain.step(x, y), f"loss {number}")
        for mine, theirs in zip(graphed.model.parameters(), plain.model.parameters(), strict=True):
            assert_same(mine, theirs, f"parameter {number}")
    assert g.report().replayed >= CALLS - 6, g.explain()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [Adapting, Forces])
def test_they_settle(device, kind):
    settles(device, kind)


@pytest.mark.usefixtures("warm_python")
def test_they_settle_for_several_tasks(device):
    """In a process of its own: autograd's order here changes when the counts of its threads pass each other.

    Plain calls of one process may then differ from each other. In a new one they do not.
    """
    program = f"""
        import torch
        from tests.conformance.test_second_order import Tasks, settles

        settles(torch.device("{device}"), Tasks)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=300)


def test_what_the_callable_asks_for_is_as_it_was(device):
    assert torch.autograd.is_multithreading_enabled()
    g = rote.graph(lambda x: x * 2)
    for _ in range(4):
        g(torch.ones(2, device=device))
        assert torch.autograd.is_multithreading_enabled()
