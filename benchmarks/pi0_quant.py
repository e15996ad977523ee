"""PI0 with a quantized action expert, against bf16: ``python -m benchmarks.pi0_quant [--out PATH]``.

One policy call, two views, batch 1: dense in bf16, and with the expert's 126 linear layers quantized, eagerly
and through rote. Under the policy variant that public forks use (``DuQuantConfig.vla()``: fake quantization,
block 16) in the way that they calculate it, by the plain reference, and by the fused path; then in integers,
with that variant's scales folded into the weight, and with DuQuant itself. Every graph is timed in turns with
the dense graph, on inputs that change. Weights are random, so a difference of action chunks says how far the
arithmetic is off, and nothing about a trained policy.

The result file is written after every step, and nothing new is begun after ``--seconds``. On a CPU, or with
``--small``, the policy is a small one in float32. ``--show FILE`` prints the table of a result again.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from examples.pi0_policy import build_policy
from torch import Tensor
from transformers import PI0ForConditionalGeneration

import rote
from rote.quant import CalibrationStats, DuQuantConfig, DuQuantLinear, QuantReport, calibrate, quantize_

from . import common
from .common import Outcome, Settings, describe, first_fast_call, first_line, now, time_calls
from .pi0 import calling, observations
from .policy_layer import make_public

VIEWS = 2
EXPERT = "model.dit.layers.*"
BATCHES = 2
COMPARED = 4
STEPS = 32  # of the greedy search: they take time once, and a layer's speed does not depend on them
EAGER_ROUNDS, GRAPH_ROUNDS, SLOW_ROUNDS = 10, 30, 2
KNOWN = {"public way, eager": 828.0, "public way, raw graph": 128.0, "bf16, eager": 173.0}
"""Milliseconds that the public forks' layers were measured with before, on an H200."""

PUBLIC, INTEGERS, DUQUANT = "policy variant", "policy variant in integers", "DuQuant in integers"


@dataclass(frozen=True)
class Variant:
    """A quantized policy, which shares all but the expert with the dense one."""

    policy: PI0ForConditionalGeneration
    report: QuantReport
    seconds: float
    gib: float | None


@dataclass
class Bench:
    """What all measurements share."""

    policy: PI0ForConditionalGeneration
    gib: float | None
    inputs: list[dict[str, Tensor]]
    settings: Settings
    small: bool
    deadline: float
    out: Outcome
    save: Callable[[], None]

    def step(self, subject: str, work: Callable[[], None]) -> bool:
        """Do something if there is time for it, and keep what it found, or why it failed."""
        if time.monotonic() > self.deadline:
            self.out.facts.setdefault("left out for lack of time", []).append(subject)
            self.save()
            return False
        try:
            work()
            return True
        except Exception as error:
            traceback.print_exc()
            self.out.facts.setdefault("failed", {})[subject] = first_line(error)
            self.out.checks[f"{subject}: works"] = False
            return False
        finally:
            self.save()


def memory(device: torch.device) -> float | None:
    """GiB that tensors take on a GPU."""
    gc.collect()
    return torch.cuda.memory_allocated(device) / 2**30 if device.type == "cuda" else None


def config_of(subject: str, small: bool) -> DuQuantConfig:
    """What a subject is quantized with."""
    blocks: dict[str, Any] = {"block_size": 32} if small else {}
    return {
        PUBLIC: DuQuantConfig.vla(calib_batches=BATCHES),
        INTEGERS: DuQuantConfig.vla(calib_batches=BATCHES, path="kernel", transform_dtype="bfloat16"),
        DUQUANT: DuQuantConfig(calib_batches=BATCHES, rotation_steps=STEPS, **blocks),
    }[subject]


def calibrated(bench: Bench, config: DuQuantConfig) -> CalibrationStats:
    """What the expert's layers are given in some policy calls, of all denoising steps."""
    with calibrate(bench.policy, config, include=EXPERT, manual=True, progress=False) as stats:
        for kwargs in bench.inputs[:BATCHES]:
            bench.policy.sample_actions(**kwargs)
            stats.end_batch()
    return stats


def copied_policy(dense: PI0ForConditionalGeneration) -> PI0ForConditionalGeneration:
    """A policy with a copy of the expert, and with the same language model and configurations.

    Copying a configuration of transformers changes the original, which the dense policy's recording notices.
    """
    configs = [module.config for module in dense.modules() if hasattr(module, "config")]
    return copy.deepcopy(dense, {id(item): item for item in (dense.model.vlm, *configs)})


def quantized(bench: Bench, config: DuQuantConfig) -> Variant:
    """A copy of the policy with a quantized expert, and the memory that it alone would take."""
    dense, device = bench.policy, bench.settings.device
    start = now(device)
    stats = calibrated(bench, config)
    before = memory(device)
    policy = copied_policy(dense)
    copied = memory(device)
    report = quantize_(policy, config, stats, include=EXPERT)
    after = memory(device)
    gib = None
    if bench.gib is not None and before is not None and copied is not None and after is not None:
        gib = bench.gib - (copied - before) + (after - before)
    return Variant(policy, report, now(device) - start, gib)


def difference(bench: Bench, policy: PI0ForConditionalGeneration, calls: int) -> dict[str, float]:
    """Relative differences of action chunks from the dense policy's, with the same noise."""
    found: list[float] = []
    for kwargs in bench.inputs[-calls:]:
        exact = bench.policy.sample_actions(**kwargs).double()
        found.append(((policy.sample_actions(**kwargs).double() - exact).norm() / exact.norm()).item())
    return {"median": statistics.median(found), "largest": max(found)}


def graphed(bench: Bench, subject: str, policy: PI0ForConditionalGeneration) -> Any:
    """The policy in graphs, recorded, and checked against itself on other inputs."""
    act = rote.graph(policy.sample_actions)
    call = calling(act, bench.inputs)
    bench.out.facts[f"{subject}: first fast call"] = first_fast_call(act, call, bench.settings.device)
    fresh = bench.inputs[-COMPARED:]
    same = [torch.equal(policy.sample_actions(**kwargs), act(**kwargs)) for kwargs in fresh]
    bench.out.checks[f"{subject}: bitwise equal to eager"] = all(same)
    bench.out.checks[f"{subject}: replayed"] = act.report().replayed > COMPARED
    bench.out.facts[f"{subject}: rote"] = describe(act)
    return act


def measure_dense(bench: Bench) -> Any:
    """The dense policy, eager and in a graph, which stays for comparisons."""
    bench.policy.sample_actions(**bench.inputs[0])
    eager = {"eager": calling(bench.policy.sample_actions, bench.inputs)}
    bench.out.add("dense", time_calls(eager, bench.settings, EAGER_ROUNDS))
    act = graphed(bench, "dense", bench.policy)
    graph = {"rote": calling(act, bench.inputs)}
    bench.out.add("dense", time_calls(graph, bench.settings, GRAPH_ROUNDS))
    return act


def measure(bench: Bench, subject: str, dense: Any) -> Variant:
    """A quantized policy, eager and in a graph, each in turns with the dense one."""
    variant = quantized(bench, config_of(subject, bench.small))
    report = variant.report.quantized
    errors = [layer.output_error for layer in report if layer.output_error is not None]
    bench.out.facts[subject] = {
        "config": json.loads(config_of(subject, bench.small).to_json()),
        "layers": len(report),
        "paths": sorted({layer.path for layer in report}),
        "seconds to calibrate and quantize": variant.seconds,
        "share of dense bytes": variant.report.ratio,
        "GiB": variant.gib,
        "output error, median layer": statistics.median(errors),
        "action difference": difference(bench, variant.policy, COMPARED),
    }
    bench.save()
    eager = {
        "dense eager": calling(bench.policy.sample_actions, bench.inputs),
        "eager": calling(variant.policy.sample_actions, bench.inputs),
    }
    bench.out.add(subject, time_calls(eager, bench.settings, EAGER_ROUNDS))
    bench.save()
    act = graphed(bench, subject, variant.policy)
    graphs = {"dense rote": calling(dense, bench.inputs), "rote": calling(act, bench.inputs)}
    bench.out.add(subject, time_calls(graphs, bench.settings, GRAPH_ROUNDS))
    for other in ("eager", "rote"):
        bench.out.ratio(subject, f"dense {other}", other)
    act.reset()
    return variant


def measure_slow(bench: Bench, policy: PI0ForConditionalGeneration) -> None:
    """The policy variant by the plain reference, then as the public forks calculate it; a few calls each."""
    for layer in policy.modules():
        if isinstance(layer, DuQuantLinear):
            layer.set_path("reference")
    slow(bench, policy, "reference")
    bench.save()
    make_public(policy)
    slow(bench, policy, "public way")
    for other in ("reference", "public way"):
        for way in ("eager", "rote"):
            bench.out.ratio(PUBLIC, f"{other}, eager", way)
    rows = {row["way"]: row["median_us"] / 1e3 for row in bench.out.rows if row["subject"] == PUBLIC}
    bench.out.facts[f"{PUBLIC}: ms added to a dense eager call"] = {
        way: rows[way] - rows["dense eager"] for way in ("eager", "reference, eager", "public way, eager")
    }


def measure_public_graph(bench: Bench, policy: PI0ForConditionalGeneration) -> None:
    """The public forks' layers in a graph."""
    act = graphed(bench, "public way", policy)
    graph = {"public way, rote": calling(act, bench.inputs)}
    bench.out.add(PUBLIC, time_calls(graph, bench.settings, GRAPH_ROUNDS))
    bench.out.ratio(PUBLIC, "public way, rote", "rote")
    act.reset()


def slow(bench: Bench, policy: PI0ForConditionalGeneration, way: str) -> None:
    """A few eager calls; the first is not timed."""
    bench.out.facts[f"{PUBLIC}: {way}: action difference"] = difference(bench, policy, 1)
    call = {f"{way}, eager": calling(policy.sample_actions, bench.inputs)}
    bench.out.add(PUBLIC, time_calls(call, bench.settings, SLOW_ROUNDS))


@torch.no_grad()
def run(bench: Bench) -> None:
    """All subjects, those that matter most first."""
    found: dict[str, Any] = {}

    def keep(subject: str, work: Callable[[], Any]) -> bool:
        return bench.step(subject, lambda: found.update({subject: work()}))

    bench.out.facts["dense"] = {"GiB": bench.gib}
    if not keep("dense", lambda: measure_dense(bench)):
        return
    dense = found["dense"]
    keep(PUBLIC, lambda: measure(bench, PUBLIC, dense))
    for subject in (INTEGERS, DUQUANT):
        keep(subject, lambda subject=subject: measure(bench, subject, dense))
        found.pop(subject, None)
        if subject == INTEGERS and PUBLIC in found:
            bench.step(f"{PUBLIC}: slow ways", lambda: measure_slow(bench, found[PUBLIC].policy))
    if PUBLIC in found:
        bench.step("public way in a graph", lambda: measure_public_graph(bench, found[PUBLIC].policy))
    dense.reset()


def table(result: dict[str, Any]) -> str:
    """The result as rows of a Markdown table."""
    facts, rows = result["facts"], {(row["subject"], row["way"]): row for row in result["rows"]}

    def ms(subject: str, way: str) -> str:
        row = rows.get((subject, way))
        return "-" if row is None else f"{row['median_us'] / 1e3:.1f} ms"

    layers = facts.get(PUBLIC, {}).get("layers", "no")
    head = (
        f"{layers} layers of the expert",
        "eager",
        "in a graph",
        "dense in turns",
        "GiB",
        "bytes",
        "difference",
    )
    lines = [head, ("---",) * len(head)]
    for subject in ("dense", PUBLIC, INTEGERS, DUQUANT):
        fact = facts.get(subject, {})
        gib, share = fact.get("GiB"), fact.get("share of dense bytes")
        off = fact.get("action difference", {}).get("median")
        lines.append(
            (
                subject, ms(subject, "eager"), ms(subject, "rote"), ms(subject, "dense rote"),
                "-" if gib is None else f"{gib:.2f}", "-" if share is None else f"{share:.3f}",
                "-" if off is None else f"{off:.2e}",
            )
        )  # fmt: skip
    for way in ("public way", "reference"):
        off = facts.get(f"{PUBLIC}: {way}: action difference", {}).get("median")
        off = "-" if off is None else f"{off:.2e}"
        times = ms(PUBLIC, f"{way}, eager"), ms(PUBLIC, f"{way}, rote")
        lines.append((f"{PUBLIC}, {way}", *times, "-", "-", "-", off))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def begin(settings: Settings, small: bool, seconds: float, path: Path) -> Bench:
    """Build the dense policy, and open the result file."""
    deadline = time.monotonic() + seconds
    size, dtype = ("small", torch.float32) if small else ("full", torch.bfloat16)
    policy = build_policy(size, settings.device, dtype)
    gib, out = memory(settings.device), Outcome()
    header = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": common.device_name(settings.device),
        "versions": common.versions(),
        "size": size,
        "views": VIEWS,
        "machine": common.machine_state(),
        "known_ms": KNOWN,
    }
    start = time.monotonic()

    def save() -> None:
        found = {**header, "seconds": time.monotonic() - start, **asdict(out)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    inputs = observations(policy, VIEWS, 4 + COMPARED)
    return Bench(policy, gib, inputs, settings, small, deadline, out, save)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, keep; 1 if something failed or two ways that have to agree do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/<gpu>/<date>-pi0-quant.json")
    parser.add_argument("--small", action="store_true", help="the small policy, as on a CPU")
    parser.add_argument("--seconds", type=float, default=150.0, help="begin nothing after (default 150)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--show", type=Path, help="print the table of this result and end")
    options = parser.parse_args(argv)
    if options.show:
        print(table(json.loads(options.show.read_text(encoding="utf-8"))))
        return 0
    device = torch.device(options.device)
    settings = Settings(device, quick=options.small)
    if device.type == "cpu":
        torch.set_num_threads(1)
    name = f"{datetime.now(UTC).date().isoformat()}-pi0-quant.json"
    path = options.out or Path(__file__).parent / "results" / common.folder_name(device) / name
    bench = begin(settings, options.small or device.type == "cpu", options.seconds, path)
    run(bench)
    print(table(json.loads(path.read_text(encoding="utf-8"))))
    print(*(f"{what}: {'yes' if holds else 'NO'}" for what, holds in bench.out.checks.items()), sep="\n")
    print(f"results in {path}")
    return int(not all(bench.out.checks.values()))


if __name__ == "__main__":
    sys.exit(main())
