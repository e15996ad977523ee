"""The PI0 policy at batch 1 with one, two and three cameras: full size in bf16 on a GPU, small on a CPU.

Inputs change with every call, timed ones too. Eager runs first, so that "recorded after" holds what rote adds
to a warm process: its observed calls and the recording. With ``--peers`` torch.compile and raw capture are
measured for two cameras, each in a process of its own (see :mod:`benchmarks.pi0_peers`), the raw one last.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import torch
from examples.pi0_policy import Tabletop, build_policy, noise_sequence
from torch import Tensor
from transformers import PI0ForConditionalGeneration

import rote

from .common import Outcome, Settings, bare_replay, describe, first_fast_call, time_calls

NEEDS_GPU = False
VIEWS = (1, 2, 3)
PEERS = ("compile", "raw")
LIMIT_S = 900  # for a peer: compiling takes a minute or three


def policy_for(settings: Settings) -> PI0ForConditionalGeneration:
    """The policy that this device can carry."""
    size, dtype = ("full", torch.bfloat16) if settings.on_gpu else ("small", torch.float32)
    return build_policy(size, settings.device, dtype)


def observations(policy: PI0ForConditionalGeneration, views: int, number: int) -> list[dict[str, Tensor]]:
    """Arguments of several calls, which differ in state, pixels and noise."""
    world = Tabletop(policy, views, seed=views)
    found: list[dict[str, Tensor]] = []
    for noise in noise_sequence(policy, number, seed=views):
        found.append({**world.observe(), "noise": noise})
        world.advance(noise)
    return found


def calling(act: Callable[..., Tensor], inputs: list[dict[str, Tensor]]) -> Callable[[], Tensor]:
    """A call without arguments that takes the next observation each time."""
    endless: Iterator[dict[str, Tensor]] = cycle(inputs)
    return lambda: act(**next(endless))


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """All camera counts, then the peers."""
    out = Outcome()
    policy = policy_for(settings)
    for views in VIEWS:
        measure(out, policy, views, settings)
    del policy
    if settings.peers:
        for way in PEERS:
            out.facts[f"2 views: {way}"] = peer(way, settings)
    return out


def measure(out: Outcome, policy: PI0ForConditionalGeneration, views: int, settings: Settings) -> None:
    """Time to the first fast call, equality on new inputs, time per call in turns with a bare replay."""
    subject = f"{views} view{'s' if views > 1 else ''}"
    inputs = observations(policy, views, 4)
    eager = calling(policy.sample_actions, inputs)
    for _ in range(2):
        eager()
    act = rote.graph(policy.sample_actions, keep=True)
    graphed = calling(act, inputs)
    out.facts[f"{subject}: first fast call"] = first_fast_call(act, graphed, settings.device)
    fresh = observations(policy, views, 8)[4:]
    same = [torch.equal(policy.sample_actions(**kwargs), act(**kwargs)) for kwargs in fresh]
    out.checks[f"{subject}: bitwise equal on new inputs"] = all(same)
    ways = {"eager": eager, "rote": graphed}
    bare = bare_replay(act)
    if bare is not None:  # the same segments, without guards, inputs and results
        ways["bare replay"] = bare
    out.add(subject, time_calls(ways, settings, rounds=50))
    out.ratio(subject, "eager", "rote")
    if bare is not None:
        out.ratio(subject, "rote", "bare replay")
    out.facts[f"{subject}: rote"] = describe(act)
    act.reset()


def peer(way: str, settings: Settings) -> dict[str, Any]:
    """Measure one peer in its own process: a failed capture or a compiler's settings must not reach ours."""
    command = [sys.executable, "-m", "benchmarks.pi0_peers", way, "--device", str(settings.device)]
    command += ["--quick"] if settings.quick else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {LIMIT_S} s"}
    lines = done.stdout.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        return json.loads(lines[-1])
    return {"error": f"exit status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"}
