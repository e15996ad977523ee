"""Versions of a recording that are chosen among by replays, and what is probed: times, trials, differences.

Ways: *exact*, *probed* (``numerics="probed"``), *first* (``numerics="near"``, ``keep=True``: the first
alternative that passes), *chosen* (the same, with all versions timed). The facts have each version with both
times, what each way replaces and refuses, and the lines of which most is left out.

Subjects: those of :mod:`.tiers`, and W4A8 layers with and without the alternative that an integration offers.

``python -m benchmarks.run --case chosen --device cuda`` writes the JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

import rote
from rote.integrations.duquant import offer_alternatives
from rote.quant import DuQuantConfig, calibrate, quantize_

from . import tiers
from .common import Outcome, Settings, time_calls

try:
    from .pi0 import calling, observations, policy_for
except ModuleNotFoundError:  # transformers is optional; the case says what it left out
    policy_for = None

NEEDS_GPU = False
LINES = 12
WIDTH, WIDE, ROWS = 2048, 8192, (16, 64, 256, 800)


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Every subject: equality, times, trials."""
    out = Outcome()
    torch.manual_seed(0)
    for name, (fn, inputs) in tiers.subjects(settings.device).items():
        measure(out, name, fn, inputs, settings)
    measure_layers(out, settings)
    if policy_for is None:
        out.facts["pi0"] = "needs the package transformers"
        return out
    policy = policy_for(settings)
    measure(out, "pi0", policy.sample_actions, observations(policy, tiers.VIEWS, 4), settings)
    return out


def measure(
    out: Outcome,
    name: str,
    fn: Callable[..., Tensor],
    inputs: list[dict[str, Tensor]],
    settings: Settings,
    same: tuple[str, ...] = ("exact", "probed"),
) -> None:
    """One subject.

    Args:
        out: What is found.
        name: Its name.
        fn: What is called.
        inputs: The arguments of several calls.
        settings: How it is measured.
        same: The ways that have eager's bits.
    """
    graphed = {
        "exact": rote.graph(fn, keep=True),
        "probed": rote.graph(fn, keep=True, numerics="probed"),
        "first": rote.graph(fn, keep=True, numerics="near"),
        "chosen": rote.graph(fn, numerics="near"),
    }
    ways = {way: calling(act, inputs) for way, act in graphed.items()}
    facts: dict[str, Any] = {
        way: {"seconds": tiers.optimize(act, ways[way]), **_told(act)} for way, act in graphed.items()
    }
    for way, act in graphed.items():
        found = [(fn(**each), act(**each)) for each in inputs]
        facts[way]["difference"] = max([tiers.difference(*each) for each in found])
        if way in same:
            out.checks[f"{name}: {way} bitwise equal"] = all([torch.equal(*each) for each in found])
    out.add(name, time_calls({"eager": calling(fn, inputs), **ways}, settings, rounds=50))
    for way in ("probed", "first", "chosen"):
        out.ratio(name, "exact", way)
    out.ratio(name, "first", "chosen")
    out.facts[name] = facts
    for act in graphed.values():
        act.reset()


def _told(graphed: rote.Graphed) -> dict[str, Any]:
    """What the report says of its tiers; nothing if the recording has lost against plain calls."""
    found = [each.tier for each in graphed.report().recordings if each.tier is not None]
    told = asdict(found[0]) if found else {}
    wanted = ("before", "after", "fused", "near", "kept", "offered", "trials", "left")
    return {**{name: told.get(name) for name in wanted}, "lines": told.get("lines", ())[:LINES]}


def measure_layers(out: Outcome, settings: Settings) -> None:
    """A W4A8 network, in which only the integration's alternative makes a difference."""
    width, wide = (WIDTH, WIDE) if settings.on_gpu else (64, 128)
    model = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))
    dtype = torch.bfloat16 if settings.on_gpu else torch.float32
    model = model.to(settings.device, dtype).eval()
    config = DuQuantConfig(block_size=32, calib_batches=1)
    with calibrate(model, config) as stats:
        model(torch.randn(64, width, device=settings.device, dtype=dtype))
    quantize_(model, config, stats)
    offer_alternatives()
    for rows in ROWS if settings.on_gpu else ROWS[:2]:
        x = [{"x": torch.randn(rows, width, device=settings.device, dtype=dtype)} for _ in range(4)]
        measure(out, f"W4A8, {rows} rows", lambda x: model(x), x, settings)
