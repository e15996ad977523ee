"""Versions of a recording that are chosen among by replays, and what is probed: times, trials, differences.

Ways: *exact*, *probed* (``numerics="probed"``), *first* (``numerics="near"``, ``keep=True``: the first
alternative that passes), *chosen* (the same, with all versions timed). The facts have each version with both
times, what each way replaces and refuses, and the lines of which most is left out.

Subjects: those of :mod:`.tiers`, PI0 among them.

``python -m benchmarks.run --case chosen --device cuda`` writes the JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

import rote

from . import tiers
from .common import Outcome, Settings, time_calls

try:
    from .pi0 import calling, observations, policy_for
except ModuleNotFoundError:  # transformers is optional; the case says what it left out
    policy_for = None

NEEDS_GPU = False
LINES = 12


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Every subject: equality, times, trials."""
    out = Outcome()
    torch.manual_seed(0)
    for name, (fn, inputs) in tiers.subjects(settings.device).items():
        measure(out, name, fn, inputs, settings)
    if policy_for is None:
        out.facts["pi0"] = "needs the package transformers"
        return out
    policy = policy_for(settings)
    inputs = observations(policy, tiers.VIEWS, 4)
    measure(out, "pi0", policy.sample_actions, inputs, settings)
    return out


def measure(
    out: Outcome,
    name: str,
    fn: Callable[..., Tensor],
    inputs: list[dict[str, Tensor]],
    settings: Settings,
    wanted: tuple[str, ...] = ("exact", "probed", "first", "chosen"),
) -> None:
    """One subject.

    Args:
        out: What is found.
        name: Its name.
        fn: What is called.
        inputs: The arguments of several calls.
        settings: How it is measured.
        wanted: The ways.
    """
    graphed = {
        "exact": rote.graph(fn, keep=True),
        "probed": rote.graph(fn, numerics="probed"),
        "first": rote.graph(fn, keep=True, numerics="near"),
        "chosen": rote.graph(fn, numerics="near"),
    }
    graphed = {way: act for way, act in graphed.items() if way in wanted}
    ways = {way: calling(act, inputs) for way, act in graphed.items()}
    facts: dict[str, Any] = {
        way: {"seconds": tiers.optimize(act, ways[way]), **_told(act)} for way, act in graphed.items()
    }
    for way, act in graphed.items():
        found = [(fn(**each), act(**each)) for each in inputs]
        facts[way]["difference"] = max([tiers.difference(*each) for each in found])
        if way in ("exact", "probed"):
            out.checks[f"{name}: {way} bitwise equal"] = all([torch.equal(*each) for each in found])
    out.add(name, time_calls(ways, settings, rounds=50))
    for before, way in (("exact", "probed"), ("exact", "first"), ("exact", "chosen"), ("first", "chosen")):
        if before in ways and way in ways:
            out.ratio(name, before, way)
    out.facts[name] = facts
    for act in graphed.values():
        act.reset()


def _told(graphed: rote.Graphed) -> dict[str, Any]:
    """What the report says of its tiers; nothing if the recording has lost against plain calls."""
    found = [each.tier for each in graphed.report().recordings if each.tier is not None]
    told = asdict(found[0]) if found else {}
    wanted = ("before", "after", "fused", "near", "kept", "offered", "trials", "left")
    return {**{name: told.get(name) for name in wanted}, "lines": told.get("lines", ())[:LINES]}
