"""Averages of weights by ema-pytorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from ema_pytorch import EMA

Items = Iterator[Any]


def average(wrap: Any, device: Any) -> Items:
    """SGD and an average that is updated each second step, with a warm-up; both in one function."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
    ema = EMA(model, beta=0.99, update_after_step=5, update_every=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        ema.update()
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randn(8, 4).to(device)), ema.ema_model, ema.step


def evaluated(wrap: Any, device: Any) -> Items:
    """The averaged model is graphed, and updated between its calls."""
    model = torch.nn.Linear(16, 4).to(device)
    ema = EMA(model, beta=0.9, update_after_step=3, update_every=1)
    predict = wrap(ema.ema_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        x = torch.randn(8, 16).to(device)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
        with torch.no_grad():
            yield predict(x)
