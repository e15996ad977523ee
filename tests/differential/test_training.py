"""Autograd: gradients that are held, hooks that come late, and errors of the backward pass."""

from __future__ import annotations

import warnings

import torch
from tests.differential.harness import attempt, check, full
from torch import nn
from torch.utils.checkpoint import checkpoint


def make_step(m, o, forward=None):
    def step(x):
        o.zero_grad()
        loss = (forward or m)(x).pow(2).mean()
        loss.backward()
        o.step()
        return loss.detach()

    return step


def test_checkpoint_with_dropout():
    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        g = wrap(make_step(m, o, lambda x: checkpoint(m, x, use_reentrant=False)))
        for _ in range(8):
            yield g(torch.randn(3, 4))
            yield m[0].weight

    check(scenario)


def test_version_of_a_buffer_saved_for_backward():
    def scenario(wrap):
        buffer, weight = torch.ones(4), torch.ones(4, requires_grad=True)

        def fn(x):
            buffer.add_(x)

        g = wrap(fn)
        for i in range(6):
            total = (weight * buffer).sum()
            g(full(i))
            yield attempt(total.backward)

    check(scenario)


def test_gradients_held_past_the_step():
    def scenario(wrap):
        m = nn.Linear(4, 2)
        g, held = wrap(make_step(m, torch.optim.AdamW(m.parameters(), lr=0.01))), []
        for _ in range(8):
            g(torch.randn(3, 4))
            held.append(m.weight.grad)
        yield held

    check(scenario)


def test_tensor_hook_registered_later():
    def scenario(wrap):
        m = nn.Linear(4, 2)
        g = wrap(make_step(m, torch.optim.SGD(m.parameters(), lr=0.1)))
        for i in range(8):
            if i == 5:
                m.weight.register_hook(lambda grad: grad * 3)
            g(torch.randn(3, 4))
            yield m.weight

    check(scenario)


def test_branches_that_reach_different_parameters():
    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        o = torch.optim.SGD(m.parameters(), lr=0.1)

        def step(x):
            o.zero_grad()
            if x[0, 0] > 0:
                m(x).sum().backward()
            else:
                m[0](x).sum().backward()
            o.step()

        g = wrap(step)
        for _ in range(40):
            g(torch.randn(3, 4))
            yield [p.grad for p in m.parameters()]

    check(scenario)


def test_anomaly_detection():
    def scenario(wrap):
        weight = nn.Parameter(torch.ones(4))
        o = torch.optim.SGD([weight], lr=0.1)

        def fn(x):
            o.zero_grad()
            torch.sqrt(weight * x).sum().backward()
            o.step()

        g = wrap(fn)
        for _ in range(6):
            yield g(full(1))
        with torch.autograd.set_detect_anomaly(True):
            yield attempt(g, full(-1))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        warnings.filterwarnings("ignore", "Error detected in")
        check(scenario)
