"""Loops of Lightning Fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from lightning.fabric import Fabric

Items = Iterator[Any]


def fabric_training(wrap: Any, device: Any) -> Items:
    """A training step with a model and an optimizer that Fabric has set up."""
    fabric = Fabric(accelerator=torch.device(device).type, devices=1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device)), model
