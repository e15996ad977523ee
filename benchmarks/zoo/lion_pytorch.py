"""Lion, by lion-pytorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from lion_pytorch import Lion

Items = Iterator[Any]


def lion_training(wrap: Any, device: Any) -> Items:
    """Training with Lion; the whole step is one function."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
    optimizer = Lion(model.parameters(), lr=1e-3, weight_decay=1e-2)

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device)), model
