"""The textbook example of whole-step capture: Linear(1024, 1024) with SGD, batch 64, fp32.

Three ways: eager, a capture written by hand as the PyTorch notes teach it, and rote. The figure that matters
is rote / hand: what the checks and the copies of rote cost above the least that anybody could do.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import rote

from .common import Outcome, Settings, all_equal, describe, time_loops
from .training import Batch, Job, batches, feeding, losses

NEEDS_GPU = True
SIZE = 1024
BATCH = 64
STEPS = 50
CALLS = 200


def job(device: torch.device) -> Job:
    """The model and its optimizer, always with the same parameters."""
    torch.manual_seed(0)
    model = nn.Linear(SIZE, SIZE).to(device)
    return Job(model, torch.optim.SGD(model.parameters(), lr=0.1))


class HandCapture:
    """The classic recipe: warm up on a side stream, capture once, copy inputs in, replay."""

    def __init__(self, work: Job, example: Batch) -> None:
        self.x, self.y = (tensor.clone() for tensor in example)
        before = [parameter.detach().clone() for parameter in work.model.parameters()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work.step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        work.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.loss = work.step(self.x, self.y)
        with torch.no_grad():  # the warm-up trained too: back to the start, as the other ways
            for parameter, value in zip(work.model.parameters(), before, strict=True):
                parameter.copy_(value)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One step on new inputs."""
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss

    def again(self) -> None:
        """One step on the inputs that are already in place."""
        self.graph.replay()


def run(settings: Settings) -> Outcome:
    """Equality of all three, then time per step in turns."""
    out = Outcome()
    data = batches((BATCH, SIZE), 8, settings.device)
    jobs = {way: job(settings.device) for way in ("eager", "hand", "rote")}
    hand, graphed = HandCapture(jobs["hand"], data[0]), rote.graph(jobs["rote"].step, keep=True)
    steps: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "eager": jobs["eager"].step,
        "hand": hand.step,
        "rote": graphed,
    }
    curves = {way: losses(step, data, STEPS) for way, step in steps.items()}
    states = {way: work.state() for way, work in jobs.items()}
    for way in ("hand", "rote"):
        same = all_equal(curves["eager"], curves[way]) and all_equal(states["eager"], states[way])
        out.checks[f"{way}: losses and parameters after {STEPS} steps"] = same

    fed = {way: feeding(step, data) for way, step in steps.items()}
    out.add("new inputs", time_loops(fed, settings, rounds=30, calls=CALLS))
    x, y = data[0]
    still = {"eager": lambda: steps["eager"](x, y), "hand": hand.again, "rote": lambda: graphed(x, y)}
    out.add("same inputs", time_loops(still, settings, rounds=30, calls=CALLS))
    for subject in ("new inputs", "same inputs"):
        out.ratio(subject, "eager", "rote")
        out.ratio(subject, "rote", "hand")
    out.facts["rote"] = describe(graphed)
    graphed.reset()
    return out
