"""Optimizers of pytorch-optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pytorch_optimizer import AdaBelief, Lookahead, load_optimizer

Items = Iterator[Any]


def network(device: Any) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)


def lookahead(wrap: Any, device: Any) -> Items:
    """Lookahead around AdaBelief: the slow weights follow each fifth step."""
    model = network(device)
    optimizer = Lookahead(AdaBelief(model.parameters(), lr=1e-3), k=5, alpha=0.5)

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randn(8, 4).to(device)), model


def tiger_outside(wrap: Any, device: Any) -> Items:
    """Forward graphed; Tiger steps outside."""
    model = network(device)
    optimizer = load_optimizer("tiger")(model.parameters(), lr=1e-3)
    forward = wrap(model)
    while True:
        loss = forward(torch.randn(8, 16).to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), model
