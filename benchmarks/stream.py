"""Batches of many sizes in random order: ``python -m benchmarks.stream TARGET --json OUT``.

``rote bench`` calls a program with one shape; here every call has another. A way goes through all batches
several times, in a process of its own. The first passes are kept one by one (that is where graphs are made),
the others timed call by call. Options and the report are those of ``rote bench``, as far as they apply.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import rote
from rote.cli.targets import load

from . import common
from .common import now, statistic

FIRST = 4
"""Passes before anything is timed: rote observes a shape twice before it records it."""

START_S = 20.0
"""Seconds for the imports of a process, on top of what a way may take."""

Call = Callable[[Tensor], Tensor]


class ByHand:
    """A graph for every size, made when it is first met, all in one pool."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.made(x.clone())
        graph, into, out = self.graphs[x.shape]
        into.copy_(x)
        graph.replay()
        return out.clone()

    def made(self, into: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        """Warmed up on a side stream, then captured."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.model(into)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            out = self.model(into)
        return graph, into, out


def reduce_overhead(model: nn.Module) -> Call:
    """A graph for every size by the compiler, results copied as those of the others are."""
    compiled = torch.compile(model, mode="reduce-overhead")

    def call(x: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(x).clone()

    return call


WAYS: dict[str, Callable[[nn.Module], Call]] = {
    "eager": lambda model: model,
    "by-hand": ByHand,
    "compile": torch.compile,
    "reduce-overhead": reduce_overhead,
    "rote": rote.graph,
}
NEED_GPU = ("by-hand", "reduce-overhead")


def measure(way: str, model: nn.Module, batches: list[Tensor], seconds: float) -> dict[str, Any]:
    """One way's row."""
    device = batches[0].device
    expected = [model(batch) for batch in batches]
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    start = now(device)
    call = WAYS[way](model)
    passes: list[float] = []
    largest, bitwise = 0.0, True
    for _ in range(FIRST):
        results = [call(batch) for batch in batches]
        passes.append(now(device) - start)
        for got, wanted in zip(results, expected, strict=True):
            bitwise = bitwise and torch.equal(got, wanted)
            largest = max(largest, (got.float() - wanted.float()).abs().max().item())
        del results
        start = now(device)
    held = torch.cuda.memory_allocated() - held if device.type == "cuda" else None
    calls: list[float] = []
    end = time.monotonic() + seconds
    while not calls or time.monotonic() < end:
        for batch in batches:
            start = now(device)
            call(batch)
            calls.append(now(device) - start)
    timed = statistic(calls)
    return {
        "name": way,
        "title": way,
        "status": "measured",
        "why": "",
        "first_calls_s": passes,
        "median_us": timed["median_us"],
        "p99_us": timed["p99_us"],
        "samples": timed["samples"],
        "held_bytes": held,
        "equality": {"calls": FIRST * len(batches), "bitwise": bitwise, "largest": largest},
        "notes": [f"passes over {len(batches)} sizes: {', '.join(f'{each:.2f} s' for each in passes)}"],
    }


def main(argv: list[str] | None = None) -> int:
    """All ways, or one of them in this process; 1 if rote's results differ."""
    options = parse(argv)
    if options.way:
        target = load(options.target, options.arg)
        model, (batches,) = target.function, target.args
        print(json.dumps(measure(options.way, model, batches, options.seconds)), flush=True)
        return 0
    on_gpu = torch.cuda.is_available()
    asked = list(WAYS) if options.only is None else ["eager", *options.only.split(",")]
    ways = [way for way in WAYS if way in asked]
    rows = [
        child(way, options, options.seconds / len(ways)) if on_gpu or way not in NEED_GPU else no_gpu(way)
        for way in ways
    ]
    report = {
        "target": options.target,
        "arguments": options.arg,
        "device": "cuda" if on_gpu else "cpu",
        "device_name": common.device_name(torch.device("cuda" if on_gpu else "cpu")),
        "rows": rows,
        "rote_differs": differs(rows),
    }
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(report["rote_differs"])


def child(way: str, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One way in a process of its own; why it failed is a row too."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.stream",
        options.target,
        "--way",
        way,
        "--seconds",
        str(seconds),
    ]
    command += [part for text in options.arg for part in ("--arg", text)]
    try:
        limit = START_S + options.limit + seconds
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return failed(way, f"not done in {options.limit:g} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    return failed(way, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])


def differs(rows: list[dict[str, Any]]) -> bool:
    """Whether rote does not give what eager gives."""
    found = {row["name"]: row for row in rows}
    if "rote" not in found or found["eager"]["status"] != "measured":
        return False
    return found["rote"]["status"] != "measured" or not found["rote"]["equality"]["bitwise"]


def failed(way: str, why: str, status: str = "failed") -> dict[str, Any]:
    """The row of a way that has no figures."""
    return {"name": way, "title": way, "status": status, "why": why, "median_us": None, "equality": None}


def no_gpu(way: str) -> dict[str, Any]:
    """The row of a way that means nothing on a CPU."""
    return failed(way, "", "needs a GPU")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream")
    parser.add_argument("target")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--only", metavar="A,B", help="ways; eager always runs")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timed calls, all ways together")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the first passes of a way")
    parser.add_argument("--json", type=Path, default=Path("stream.json"))
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
