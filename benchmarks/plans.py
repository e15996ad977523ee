"""What a plan on disk saves a new process: calls and seconds until the first replay, and until the last tier.

Each program runs in three processes of its own: without a plan, with a directory that is empty, and with what
the second one has left there. ``first_ms`` is the time of all calls before the first replay, ``all_ms`` that
of the first 50 calls, and ``final_ms`` the time until nothing becomes faster any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from examples.pi0_policy import build_policy
from torch import Tensor, nn

import rote

from .common import Outcome, Settings
from .pi0 import observations

NEEDS_GPU = False
CALLS, MOST_CALLS = 50, 4000
WAYS = ("without", "empty", "known")


def mlp(device: torch.device) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """Four layers, without gradients."""
    layers = [part for _ in range(4) for part in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers).to(device), lambda number: (torch.randn(8, 256, device=device),)


def training(device: torch.device) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A step of a transformer: AdamW as it is by default, and a schedule."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step, lambda number: (torch.randn(4, 8, 32, device=device),)


def giving_up(device: torch.device) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A list grows at its front, and is read: no call is ever replayed."""
    seen: list[float] = []
    model = nn.Linear(64, 64).to(device)

    def call(x: Tensor) -> Tensor:
        seen.insert(0, float(len(seen)))
        out: Tensor = model(x) * sum(seen)
        return out

    return call, lambda number: (torch.randn(8, 64, device=device),)


def loop(device: torch.device) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """A loop that builds a mask again and again: the exact tier has a quarter of its operations."""

    def call(x: Tensor, w: Tensor) -> Tensor:
        for number in range(8):
            mask = torch.ones(64, 64, device=device).tril().bool()
            scores = (x @ x.t()).masked_fill(~mask, -1.0).softmax(-1)
            steps = torch.arange(64, device=device).float()
            x = (x + scores.clamp(-3, 3) * 0.1).abs() * steps * number - w
            x = x / (1 + x.abs())
        return x

    given = torch.randn(64, 64, device=device), torch.randn(64, device=device)
    return call, lambda number: given


def pi0(device: torch.device) -> tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]:
    """The policy with two cameras: full size on a GPU, small on a CPU."""
    full = device.type == "cuda"
    policy = build_policy("full" if full else "small", device, torch.bfloat16 if full else torch.float32)
    seen = observations(policy, 2, 4)

    def act(observation: dict[str, Tensor]) -> Tensor:
        actions: Tensor = policy.sample_actions(**observation)
        return actions

    return act, lambda number: (seen[number % len(seen)],)


PROGRAMS = {each.__name__: each for each in (mlp, training, giving_up, loop, pi0)}


def work(name: str, device: str, directory: str) -> dict[str, Any]:
    """Run a program in this process; what became of its calls."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    function, arguments = PROGRAMS[name](torch.device(device))
    graphed = rote.graph(function, plans=directory or None)
    taken: list[float] = []
    first = final = None
    with torch.set_grad_enabled(name == "training"):
        for number in range(MOST_CALLS):
            given, before = arguments(number), graphed.report().replayed
            began = perf_counter()
            graphed(*given)
            if device == "cuda":
                torch.cuda.synchronize()
            taken.append(perf_counter() - began)
            if first is None and graphed.report().replayed > before:
                first = number
            began = perf_counter()
            settled = graphed.wait_until_optimized(timeout_s=60)
            taken[-1] += perf_counter() - began
            if settled and number >= CALLS:
                final = number
                break
    return {
        "calls": first,
        "first_ms": sum(taken[:first]) * 1e3 if first is not None else None,
        "all_ms": sum(taken[:CALLS]) * 1e3,
        "final_calls": final,
        "final_ms": sum(taken[: final + 1]) * 1e3 if final is not None else None,
        "operations": [each.tier.after for each in graphed.report().recordings if each.tier is not None],
    }


def run(settings: Settings) -> Outcome:
    """Measure all programs."""
    outcome = Outcome()
    for name in PROGRAMS:
        found = {}
        with tempfile.TemporaryDirectory() as directory:
            for way in WAYS:
                place = directory if way != "without" else ""
                command = [sys.executable, "-m", "benchmarks.plans", name, settings.device.type, place]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found[way] = json.loads(done.stdout.splitlines()[-1])
        outcome.facts[name] = found
        if found["known"]["first_ms"] is not None and found["without"]["first_ms"] is not None:
            ratio = found["known"]["first_ms"] / found["without"]["first_ms"]
            outcome.ratios[f"{name}: first replay, known / without"] = ratio
        outcome.ratios[f"{name}: {CALLS} calls, known / without"] = (
            found["known"]["all_ms"] / found["without"]["all_ms"]
        )
    return outcome


if __name__ == "__main__":
    print(json.dumps(work(*sys.argv[1:])))
