"""AdamW that needs no schedule, by schedulefree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import schedulefree
import torch

Items = Iterator[Any]


def schedule_free_training(wrap: Any, device: Any) -> Items:
    """Training with AdamWScheduleFree, which counts its steps; the whole step is one function."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(device)
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=1e-2, warmup_steps=20)
    optimizer.train()

    @wrap
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    while True:
        yield step(torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device)), model
