"""Controlled differential equations by torchcde."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torchcde

Items = Iterator[Any]


def neural_cde(wrap: Any, device: Any) -> Items:
    """Series are interpolated, and a field is integrated along them with fixed steps."""

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 12)

        def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return self.linear(z).tanh().view(*z.shape[:-1], 4, 3)

    field, first = Field().to(device), torch.nn.Linear(3, 4).to(device)

    @wrap
    @torch.no_grad()
    def predict(series: torch.Tensor) -> torch.Tensor:
        coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(series)
        path = torchcde.CubicSpline(coefficients)
        z = torchcde.cdeint(
            path,
            field,
            first(path.evaluate(path.interval[0])),
            path.interval,
            adjoint=False,
            method="rk4",
            options={"step_size": 1.0},
        )
        return z[:, -1]

    while True:
        yield predict(torch.randn(2, 5, 3).to(device))
