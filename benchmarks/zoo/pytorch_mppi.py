"""Model predictive control by pytorch-mppi."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pytorch_mppi import MPPI

Items = Iterator[Any]


def controller(device: Any) -> Any:
    dynamics = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).to(device)

    def step(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return state + 0.1 * dynamics(torch.cat([state, action], -1))

    def cost(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return state.square().sum(-1) + 0.1 * action.square().sum(-1)

    return MPPI(
        step, cost, 2, torch.eye(1, device=device), num_samples=32, horizon=6, device=torch.device(device)
    )


def control(wrap: Any, device: Any) -> Items:
    """Each command samples trajectories and shifts the plan, which is kept on the controller."""
    planner = controller(device)
    command, state = wrap(torch.no_grad()(planner.command)), torch.ones(2, device=device)
    while True:
        action = command(state)
        state = (state + 0.1 * action + 0.01 * torch.randn(2).to(device)).clamp(-2, 2).detach()
        yield action, planner.U
