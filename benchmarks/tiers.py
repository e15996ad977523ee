"""The exact tier beside what was captured and eager: operations left out and fused, and times in turns.

Ways: *plain* replays what was captured, *short* leaves operations out, *exact* has fused kernels as well,
*near* calculates operators in other ways (``numerics="near"``), with other bits; how long it took to get them
stands among the facts.

Subjects: PI0 and a decoding step of a Llama of a billion parameters (in bf16 on a GPU, small on a CPU), a
loop that builds masks and tables of time steps anew in each turn, a transformer in inference, and an MLP from
which nothing can be removed.

``python -m benchmarks.run --case tiers --device cuda`` writes the JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

import rote
from rote.runtime.recording.contest import NEVER

from .common import Outcome, Settings, time_calls

try:
    from .pi0 import calling, observations, policy_for
    from .targets import llama
except ModuleNotFoundError:  # transformers is optional; the case says what it left out
    policy_for = None

NEEDS_GPU = False
VIEWS = 2
MOST_CALLS = 5_000
WARM = 4
"""Calls until all recordings replay, some to spare."""


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Every subject: equality, counts, times."""
    out = Outcome()
    torch.manual_seed(0)
    for name, (fn, inputs) in subjects(settings.device).items():
        measure(out, name, fn, inputs, settings)
    if policy_for is None:
        out.facts["pi0"] = "needs the package transformers"
        return out
    step, given, _ = llama.build(small=settings.device.type == "cpu", device=settings.device.type)
    measure(out, "llama", step, [dict(zip(("ids", "position"), given, strict=True))], settings)
    del step
    policy = policy_for(settings)
    measure(out, "pi0", policy.sample_actions, observations(policy, VIEWS, 4), settings)
    return out


def measure(
    out: Outcome, name: str, fn: Callable[..., Tensor], inputs: list[dict[str, Tensor]], settings: Settings
) -> None:
    """One subject."""
    exact, plain, short, near = (
        rote.graph(fn, keep=True),
        rote.graph(fn, keep=True, numerics="plain"),
        rote.graph(fn, keep=True),
        rote.graph(fn, keep=True, numerics="near"),
    )
    ways = {
        "eager": calling(fn, inputs), "plain": calling(plain, inputs), "short": calling(short, inputs),
        "exact": calling(exact, inputs), "near": calling(near, inputs),
    }  # fmt: skip
    seconds = optimize(exact, ways["exact"])
    optimize(near, ways["near"])
    _shorten(short, ways["short"])
    for _ in range(WARM):
        ways["plain"]()
    same = [torch.equal(fn(**each), act(**each)) for each in inputs for act in (exact, short, plain)]
    out.checks[f"{name}: bitwise equal"] = all(same)
    out.add(name, time_calls(ways, settings, rounds=50))
    for before in ("eager", "plain", "short"):
        out.ratio(name, before, "exact")
    out.ratio(name, "plain", "near")
    replaced = _counts(near)
    far = [difference(fn(**each), near(**each)) for each in inputs]
    facts = {"replaced": replaced.get("near", ()), "kept": replaced.get("kept", {}), "difference": max(far)}
    out.facts[name] = {**_counts(exact), "seconds_to_exact": seconds, "near": facts}
    for each in (exact, plain, short, near):
        each.reset()


def difference(expected: Tensor, found: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((expected - found).abs().max() / expected.abs().max())


def optimize(graphed: rote.Graphed, call: Callable[[], object]) -> dict[str, float]:
    """Call until nothing becomes faster; seconds until then, and those of them that compilers took."""
    began, waited = time.perf_counter(), 0.0
    for _ in range(MOST_CALLS):
        call()
        asked = time.perf_counter()
        done = graphed.wait_until_optimized(timeout_s=600)
        waited += time.perf_counter() - asked
        if done:
            break
    return {"all": time.perf_counter() - began, "waited_for_compilers": waited}


def _shorten(graphed: rote.Graphed, call: Callable[[], object]) -> None:
    """Call until operations are left out, and go no further: kernels may be there already."""
    for _ in range(MOST_CALLS):
        call()
        recordings = [each for entry in graphed._keys.entries.values() for each in entry.recordings]
        tiers = [each.tiers for each in recordings]
        if any([each.exact or each.whole for each in tiers]) and not any([each.open for each in tiers]):
            break
    for each in recordings:
        each.improve_at(NEVER)


def _counts(graphed: rote.Graphed) -> dict[str, Any]:
    """Operations before and after, by rule, and memory."""
    (recording,) = graphed.report().recordings
    tier = asdict(recording.tier) if recording.tier is not None else {}
    return {**tier, "bytes_held": recording.bytes_held, "segments": recording.segments}


def subjects(device: torch.device) -> dict[str, tuple[Callable[..., Tensor], list[dict[str, Tensor]]]]:
    """The subjects without a library, with the arguments of several calls."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).to(device).eval()
    mlp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(device)
    rows = [{"x": torch.randn(1, 16, 64, device=device)} for _ in range(4)]

    def denoise(x: Tensor) -> Tensor:
        for step in range(10):
            n = torch.arange(16, device=x.device)
            mask = n[:, None] >= n[None, :]
            angles = n[:, None].float() * torch.exp(-torch.arange(64, device=x.device).float() / 64)
            scores = (x @ x.transpose(1, 2)).masked_fill(~mask, -1e9).softmax(-1)
            x = x + 0.1 * (scores @ x + angles.sin() * (step / 10))
        return x

    def transformer(x: Tensor) -> Tensor:
        for _ in range(4):
            mask = nn.Transformer.generate_square_subsequent_mask(16, device=x.device)
            x = layer(x, src_mask=mask)
        return x

    def plain(x: Tensor) -> Tensor:
        return mlp(x)

    return {"denoise": (denoise, rows), "transformer": (transformer, rows), "mlp": (plain, rows)}
