"""Normalizing flows of zuko."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import zuko

Items = Iterator[Any]


def likelihood_training(wrap: Any, device: Any) -> Items:
    """A neural spline flow, conditioned, by its likelihood and SGD."""
    flow = zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16, 16)).to(device)
    optimizer = torch.optim.SGD(flow.parameters(), lr=1e-2)

    @wrap
    def step(x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        loss = -flow(context).log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(16, 3).to(device), torch.randn(16, 2).to(device)), flow


def sampling(wrap: Any, device: Any) -> Items:
    """Samples of a masked autoregressive flow, with their likelihood."""
    flow = zuko.flows.MAF(3, 2, transforms=2, hidden_features=(16, 16)).to(device)

    @wrap
    @torch.no_grad()
    def sample(context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return flow(context).rsample_and_log_prob((8,))

    while True:
        yield sample(torch.randn(2).to(device))
