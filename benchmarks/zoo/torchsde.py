"""Stochastic differential equations by torchsde."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torchsde
from torch import nn

Items = Iterator[Any]


class Equation(nn.Module):
    """Drift and diagonal noise by small networks."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.drift, self.noise = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.drift(y))

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.noise(y)) * 0.1


def paths(wrap: Any, device: Any) -> Items:
    """Sampled paths by Euler-Maruyama; each call draws a Brownian motion of its own, seeded by numpy."""
    equation, times = Equation().to(device), torch.linspace(0, 1, 5, device=device)

    @wrap
    @torch.no_grad()
    def sample(y: torch.Tensor) -> torch.Tensor:
        return torchsde.sdeint(equation, y, times, dt=0.25, method="euler")

    while True:
        yield sample(torch.randn(4, 3).to(device))
