"""What the guard costs the host: a 4-layer MLP, and the same with 100 and 1,000 more parameters.

The extra parameters are single numbers that the callable joins and sums: it reads each of them, and the
kernels hardly grow. The figure is rote's host time above a bare replay of the same kernels, all guards on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import rote

from .common import Call, Outcome, Settings, bare_replay, describe, time_loops
from .overhead import WIDTH, by_hand
from .overhead import build as build_layers

NEEDS_GPU = False
NUMBERS = (0, 100, 1000)


class Model(nn.Module):
    """The four layers, plus the sum of some single numbers."""

    def __init__(self, device: torch.device, extra: int) -> None:
        super().__init__()
        self.layers = build_layers(device)
        values = [nn.Parameter(torch.ones(1, device=device), requires_grad=False) for _ in range(extra)]
        self.extra = nn.ParameterList(values)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y + torch.cat(list(self.extra)).sum() if len(self.extra) else y


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Host cost per call for each number of parameters."""
    out = Outcome()
    x = torch.randn(1, WIDTH, device=settings.device)
    cost: dict[int, float] = {}
    for extra in NUMBERS:
        subject = f"4 x (Linear, ReLU) and {extra} numbers"
        model = Model(settings.device, extra)
        graphed = rote.graph(Model(settings.device, extra), keep=True)
        ways: dict[str, Call] = {"rote": lambda graphed=graphed: graphed(x)}
        for _ in range(8):
            graphed(x)
        bare = bare_replay(graphed)
        assert bare is not None
        ways["bare replay"] = bare
        if settings.on_gpu:
            ways["bare replay"], ways["replay, copy, clone"] = by_hand(model, (x,))
        out.checks[f"{subject}: bitwise equal to eager"] = torch.equal(model(x), graphed(x))
        measured = time_loops(ways, settings, rounds=50, calls=100)
        out.add(subject, measured)
        out.facts[f"{subject}: parameters"] = len(list(model.parameters()))
        out.facts[f"{subject}: rote"] = describe(graphed)
        cost[extra] = measured["rote"]["host_us"] - measured["bare replay"]["host_us"]
        graphed.reset()
    out.facts["host_us above a bare replay"] = {str(extra): us for extra, us in cost.items()}
    out.facts["host_us per 100 parameters"] = (cost[1000] - cost[0]) / 10
    return out
