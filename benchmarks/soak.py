"""Does anything leak: 10,000 calls, 500 re-recordings, 100 wrappers made and dropped.

Each phase measures itself several times: what is left after its first part (everything that is made once is
made by then) against what is left at its end. Numbers of objects and tensors, and the bytes that recordings
hold, have to be the same; resident memory may grow by what the C library's allocator keeps for itself.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rote
from rote.runtime.backends.select import PROCESS
from rote.runtime.memory.budget import BUDGETS

from .common import Outcome, Settings

NEEDS_GPU = False

POINTS = 5
"""Measurements of a phase."""

PERIOD = 12
"""Steps after which a phase is in a like state again; measurements are whole periods apart."""

SPARE_OBJECTS = 100
"""Python objects that may be left over: caches of the interpreter and of PyTorch fill up slowly."""

SPARE_BYTES = 32 << 20
"""Resident bytes that may be left over."""

Phase = Iterator[None]


def run(settings: Settings) -> Outcome:
    """The whole soak, or a tenth of it, with steps enough for all measurements."""
    outcome = Outcome()
    numbers = [max(POINTS * PERIOD, settings.rounds(number)) for number in (10_000, 500, 100)]
    for name, points in soak(settings.device, *numbers).items():
        outcome.facts[name] = {"first": points[0], "last": points[-1], "points": points}
        outcome.checks |= {f"{name}: {what}": holds for what, holds in verdicts(points).items()}
    return outcome


def soak(device: torch.device, calls: int, recordings: int, wrappers: int) -> dict[str, list[dict[str, int]]]:
    """Run all phases; the measurements of each.

    Args:
        device: Where.
        calls: Calls of recordings that stay.
        recordings: Recordings made in place of others.
        wrappers: Wrappers made and dropped.
    """
    return {
        "calls": watch(device, many_calls(device, calls), calls),
        "re-recordings": watch(device, many_recordings(device, recordings), recordings),
        "wrappers": watch(device, many_wrappers(device, wrappers), wrappers),
    }


def verdicts(points: list[dict[str, int]]) -> dict[str, bool]:
    """Whether nothing grew from a phase's first measurement to its last."""
    first, last = points[0], points[-1]
    return {
        "no tensor is left over": last["tensors"] <= first["tensors"],
        "no object is left over": last["objects"] <= first["objects"] + SPARE_OBJECTS,
        "recordings hold no more": last["pool_bytes"] <= first["pool_bytes"],
        "the device holds no more": last["device_bytes"] <= first["device_bytes"],
        "resident memory stays": last["rss_bytes"] <= first["rss_bytes"] + SPARE_BYTES,
    }


def watch(device: torch.device, phase: Phase, steps: int) -> list[dict[str, int]]:
    """Run a phase and measure it after its first fifth, and so on to its end."""
    marks = [steps * (number + 1) // (POINTS * PERIOD) * PERIOD for number in range(POINTS)]
    points: list[dict[str, int]] = []
    for number, _ in enumerate(phase, 1):
        if number in marks:
            points.append({"steps": number, **figures(device)})
    return points


def figures(device: torch.device) -> dict[str, int]:
    """What is there now."""
    gc.collect()
    for backend in PROCESS.made():
        with backend.lock:
            backend.enter_call()  # releases what garbage collection could not
    objects = gc.get_objects()
    found = {
        "objects": len(objects),
        "tensors": sum(issubclass(type(each), torch.Tensor) for each in objects),
        "pool_bytes": sum(budget.bytes_held() for _, budget in BUDGETS.all()),
        "device_bytes": torch.cuda.memory_allocated(device) if device.type == "cuda" else 0,
        "rss_bytes": _resident(),
    }
    del objects
    return found


def _resident() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


class Net(nn.Module):
    """Reads a buffer and a plain value, and counts nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layers(x)
        return {"action": y * self.factor, "score": y.mean(1)}


def train(net: Net) -> Callable[[torch.Tensor], torch.Tensor]:
    """A whole step of plain gradient descent."""

    def step(x: torch.Tensor) -> torch.Tensor:
        for parameter in net.parameters():
            parameter.grad = None
        loss = net(x)["action"].square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(parameter.grad, alpha=1e-3)
        return loss

    return step


def many_calls(device: torch.device, calls: int) -> Phase:
    """Inference in several shapes, held outputs, a host read, backward, whole steps, padding.

    A contest keeps what it has timed until its round is over, and one may be under way at any measurement; so
    there are none.
    """
    net = Net(16).to(device).requires_grad_(False)
    learner = Net(16).to(device)
    graph = functools.partial(rote.graph, keep=True)
    infer, layers = graph(net), graph(net.layers)
    branch = graph(lambda x: x * 2 if x.sum() > 0 else x - 1)
    forward, step = graph(learner), graph(train(learner))
    padded = rote.padded(lambda x: x * 2, axes={"x": {0: "powers"}}, keep=True)
    held: list[Any] = []
    for number in range(calls):
        x = torch.randn(1 + number // 6 % 2, 16, device=device)
        kind = number % 6
        if kind == 0:
            held = [*held[-3:], infer(x)]
        elif kind == 1:
            held = [*held[-3:], layers(x)]
        elif kind == 2:
            branch(x)
        elif kind == 3:
            forward(x)["action"].sum().backward()
            learner.zero_grad()
        elif kind == 4:
            step(x)
        else:
            padded(x)
        yield


def many_recordings(device: torch.device, recordings: int) -> Phase:
    """Recordings replaced after a reset, for other shapes, after eviction, and because state changed."""
    net = Net(16).to(device).requires_grad_(False)
    anew, shapes = rote.graph(net), rote.graph(net.layers, max_keys=2)
    evicted, changed = rote.graph(net.layers), rote.graph(net, max_recordings=2)
    for number in range(recordings):
        x = torch.randn(2, 16, device=device)
        if number % 4 == 0:
            anew.reset()
            _record(anew, x)
        elif number % 4 == 1:
            _record(shapes, torch.randn(1 + number // 4 % 3, 16, device=device))
        elif number % 4 == 2:
            if number % 12 == 2:
                evicted.reset()  # or it would be made again ever later
            before = rote.set_budget(1)
            rote.set_budget(before)
            _record(evicted, x)
        else:
            if number % 12 == 3:
                changed.reset()  # or the key would give up: too many were replaced
            net.factor = float(number % 12)
            _record(changed, x)
        yield


def _record(graphed: Any, x: torch.Tensor) -> None:
    for _ in range(rote.Options().warmup + 2):
        graphed(x)


def many_wrappers(device: torch.device, wrappers: int) -> Phase:
    """Wrappers with recordings, dropped with and without a reset, one after the other."""
    for number in range(wrappers):
        net = Net(16).to(device)
        x = torch.randn(2, 16, device=device)
        if number % 3 == 0:
            graphed: Any = rote.graph(net.requires_grad_(False), budget="1GiB")
        elif number % 3 == 1:
            graphed = rote.graph(train(net))
        else:
            graphed = rote.graph(lambda x, net=net: net(x)["score"])
        _record(graphed, x)
        if number % 2:
            graphed.reset()
        del graphed, net, x
        yield
