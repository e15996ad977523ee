"""A small multi-layer perceptron trained on the CPU: work that is nearly all launch cost.

Batch 8, width 64, three layers, plain SGD, the whole step in the callable, one thread.
"""

from __future__ import annotations

import torch
from torch import nn

import rote

from .common import Outcome, Settings, all_equal, describe, time_loops
from .training import Job, batches, feeding, losses

NEEDS_GPU = False
WIDTH = 64
BATCH = 8
STEPS = 100


def job() -> Job:
    """The model and its optimizer, always with the same parameters."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    model = nn.Sequential(*layers)
    return Job(model, torch.optim.SGD(model.parameters(), lr=0.01))


def run(settings: Settings) -> Outcome:
    """Equality over 100 steps, then time per step, eager and rote in turns."""
    out = Outcome()
    data = batches((BATCH, WIDTH), 8, torch.device("cpu"))
    plain, recorded = job(), job()
    step = rote.graph(recorded.step, backend="host", keep=True)
    expected, got = losses(plain.step, data, STEPS), losses(step, data, STEPS)
    out.checks[f"losses of {STEPS} steps bitwise equal"] = all_equal(expected, got)
    out.checks[f"parameters after {STEPS} steps bitwise equal"] = all_equal(plain.state(), recorded.state())
    ways = {"eager": feeding(plain.step, data), "rote": feeding(step, data)}
    subject = f"batch {BATCH}, width {WIDTH}"
    out.add(subject, time_loops(ways, settings, rounds=30, calls=200))
    out.ratio(subject, "eager", "rote")
    out.facts["rote"] = describe(step)
    step.reset()
    return out
