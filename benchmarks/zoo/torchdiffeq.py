"""Neural differential equations by torchdiffeq."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

Items = Iterator[Any]


class Field(nn.Module):
    """A vector field that counts how often it is asked, as the examples do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        self.asked = 0

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        return self.net(y**3)


def adaptive(wrap: Any, device: Any) -> Items:
    """dopri5, whose number of steps depends on values."""
    field = Field().to(device)
    solve = wrap(torch.no_grad()(odeint))
    times = torch.linspace(0, 1, 5, device=device)
    while True:
        yield solve(field, torch.randn(4, 2).to(device), times), field.asked


def adaptive_with_a_graphed_field(wrap: Any, device: Any) -> Items:
    """The same with the field alone graphed."""
    field = Field().to(device)
    graphed = wrap(lambda t, y: field.net(y**3))
    times = torch.linspace(0, 1, 5, device=device)
    with torch.no_grad():
        while True:
            yield odeint(graphed, torch.randn(4, 2).to(device), times)


def adjoint_training(wrap: Any, device: Any) -> Items:
    """Fixed steps of rk4, gradients by the adjoint, RMSprop."""
    field = Field().to(device)
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    times = torch.linspace(0, 1, 4, device=device)

    @wrap
    def step(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (odeint_adjoint(field, y, times, method="rk4") - wanted).abs().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    while True:
        yield step(torch.randn(4, 2).to(device), torch.randn(4, 4, 2).to(device)), field
