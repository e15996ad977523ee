"""Gradients that leave the callable: such calls run eagerly and say so."""

from __future__ import annotations

import torch
from torch import nn

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1


def test_autograd_inside_that_leaves_no_gradient(device):
    layer = nn.Linear(3, 3).to(device)

    def fn(x):
        loss = layer(x).square().sum()
        return torch.autograd.grad(loss, list(layer.parameters()))

    g = compare(fn, [(torch.randn(2, 3, device=device),) for _ in range(8)])
    assert g.report().replayed == 8 - WARM and layer.weight.grad is None


def test_gradients_that_leave_run_eagerly(device, reason, where):
    layer = nn.Linear(4, 4).to(device)

    def forward_backward(x):
        layer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        return loss.detach()

    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    g = rote.graph(forward_backward)
    for _ in range(12):
        layer.zero_grad()
        x = torch.randn(2, 4, device=device)
        g(x)
        assert torch.equal(layer.weight.grad, x.sum(0).expand(4, 4))
        optimizer.step()
    assert g.report().replayed == 0
    found = reason(g, "RT402")
    assert found.message.endswith(".grad was None before the call and holds a gradient after it")
    assert found.remedy == "Put the whole step inside: zero_grad, forward, backward and optimizer.step."


def test_outputs_with_a_graph_run_eagerly(device, reason):
    layer = nn.Linear(4, 4).to(device)
    g = rote.graph(layer)
    for _ in range(12):
        x = torch.randn(2, 4, device=device)
        layer.zero_grad()
        g(x).sum().backward()
        assert torch.equal(layer.weight.grad, x.sum(0).expand(4, 4))
    assert g.report().replayed == 0
    found = reason(g, "RT401")
    assert found.message == "result has grad_fn AddmmBackward0"
    assert found.remedy == (
        "Call under torch.no_grad(), return detached tensors, or put backward() inside the callable."
    )


def test_inputs_that_require_grad_run_eagerly(device, reason):
    g = rote.graph(lambda x: (x * 2).detach())
    for _ in range(10):
        x = torch.ones(3, device=device, requires_grad=True)
        assert g(x).tolist() == [2.0] * 3
    assert g.report().replayed == 0
    assert reason(g, "RT403").message == "args[0] requires grad"


def test_parameters_that_receive_gradients_through_an_input(device):
    """Gradients reach the caller's tensors in eager; they have to here."""
    g = rote.graph(lambda x: (x * 3).sum().backward())
    for _ in range(8):
        x = torch.ones(3, device=device, requires_grad=True)
        g(x)
        assert x.grad.tolist() == [3.0] * 3
