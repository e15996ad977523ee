"""A small transformer trained with AdamW, whole steps in the callable: two layers, width 128, 8 x 32 tokens.

On a CPU with the fused optimizer; on a GPU with the fused one and with the multi-tensor one, both capturable.
Eager is run twice, since a check against a peer that does not repeat itself would say nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import rote

from .common import Outcome, Settings, all_equal, describe, time_loops
from .training import Job, batches, feeding, losses

NEEDS_GPU = False
WIDTH = 128
SHAPE = (8, 32, WIDTH)
STEPS = 20


def job(device: torch.device, choices: dict[str, Any]) -> Job:
    """The model and its optimizer, always with the same parameters."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).to(device)
    return Job(model, torch.optim.AdamW(model.parameters(), lr=1e-3, **choices))


def run(settings: Settings) -> Outcome:
    """Equality over some steps, then time per step, for each flavour of the optimizer."""
    out = Outcome()
    flavours: dict[str, dict[str, Any]] = {"fused": {"fused": True}}
    if settings.on_gpu:
        flavours = {
            "fused": {"fused": True, "capturable": True},
            "foreach, capturable": {"foreach": True, "capturable": True},
        }
    data = batches(SHAPE, 4, settings.device)
    for name, choices in flavours.items():
        plain, again, recorded = (job(settings.device, choices) for _ in range(3))
        step = rote.graph(recorded.step, keep=True)
        expected, repeated = losses(plain.step, data, STEPS), losses(again.step, data, STEPS)
        got = losses(step, data, STEPS)
        repeats = all_equal(expected, repeated) and all_equal(plain.state(), again.state())
        same = all_equal(expected, got) and all_equal(plain.state(), recorded.state())
        out.facts[f"{name}: eager repeats itself"] = repeats
        out.checks[f"{name}: {STEPS} steps bitwise equal"] = same
        ways = {"eager": feeding(plain.step, data), "rote": feeding(step, data)}
        out.add(name, time_loops(ways, settings, rounds=20, calls=20))
        out.ratio(name, "eager", "rote")
        out.facts[f"{name}: rote"] = describe(step)
        step.reset()
    return out
