"""Times the steps of examples/torchrun_transformer.py, plainly and through rote, on each rank.

    torchrun --nproc-per-node 2 -m benchmarks.distributed --device cuda --out distributed.json

Some steps are also captured by hand, their collectives included, which is what a graph can reach at best.
With ``NCCL_GRAPH_REGISTER=0`` in the environment rote captures them as well, as a way of its own.
Ways take turns in rounds; a round begins with a barrier and ends when the device has nothing left to do. The
times are the medians over rounds, for each rank. Every way has to give equal bits in a first run of 12 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from examples.torchrun_transformer import WAYS, played

import rote

BY_HAND = ("decode", "sharded", "step", "whole")
"""Steps that a user can capture as they are."""

WARM = 150
"""Steps before anything is timed; the exact tier is made in the 128th replay."""


def by_hand(function: Any, stream: torch.cuda.Stream) -> Any:
    """A callable captured on a stream, on its first arguments, with its collectives."""
    captured: list[Any] = []

    def call(*given: Any) -> Any:
        if not captured:
            static = [each.clone() for each in given]
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                for _ in range(11):
                    function(*static)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                out = function(*static)
            captured.extend([graph, static, out])
        graph, static, out = captured
        for place, each in zip(static, given, strict=True):
            place.copy_(each)
        graph.replay()
        return out

    return call


def step_by_hand(way: str, options: argparse.Namespace, device: torch.device) -> Any:
    """A step that is captured by hand. It is made on the stream that captures it, as wrappers have to be."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        made = WAYS[way](options, device, partial(by_hand, stream=stream))
    torch.cuda.synchronize()
    return made


def plain(function: Any) -> Any:
    return function


def timed(step: Callable[[int], Any], first: int, steps: int, device: torch.device) -> float:
    """Milliseconds of a step, over a round."""
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = perf_counter()
    for number in range(first, first + steps):
        step(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (perf_counter() - began) * 1e3 / steps


def measured(way: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """The times of one kind of step on this rank."""
    wraps = {"eager": plain, "rote": rote.graph}
    if device.type == "cuda" and os.environ.get("NCCL_GRAPH_REGISTER") == "0":
        wraps["captured"] = partial(rote.graph, capture_collectives=True)
    made = {name: WAYS[way](options, device, wrap) for name, wrap in wraps.items()}
    if way in BY_HAND and device.type == "cuda":
        made["by hand"] = step_by_hand(way, options, device)
    for step, _ in made.values():
        timed(step, 0, options.warm, device)
    rounds: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(options.rounds):
        for name, (step, _) in made.items():
            rounds[name].append(timed(step, options.warm + turn * options.steps, options.steps, device))
    reports = {name: graphed.report() for name, (_, graphed) in made.items() if hasattr(graphed, "report")}
    report = reports["rote"]
    return {
        "way": way,
        "rank": dist.get_rank(),
        "captured": reports["captured"].replayed if "captured" in reports else 0,
        "ms": {name: round(statistics.median(times), 4) for name, times in rounds.items()},
        "rounds_ms": {name: [round(each, 4) for each in times] for name, times in rounds.items()},
        "calls": report.calls,
        "replayed": report.replayed + sum([part.replayed for part in report.parts]),
        "reasons": [str(each) for each in report.reasons],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--way", choices=tuple(WAYS), action="append", help="all if none is named")
    for name, default in (
        *(("width", 512), ("layers", 12), ("heads", 8), ("batch", 8), ("length", 64)),
        *(("steps", 50), ("rounds", 9), ("warm", WARM)),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=Path("distributed.json"))
    return parser.parse_args()


def main() -> None:
    options = arguments()
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    ways = options.way or list(WAYS)
    checked = argparse.Namespace(**{**vars(options), "steps": 12})
    equal = [played(way, checked, device) for way in ways]
    mine = {"equal": equal, "timed": [measured(way, options, device) for way in ways]}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if dist.get_rank() == 0:
        found = {
            "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor(),
            "torch": torch.__version__,
            "ranks": dist.get_world_size(),
            "options": {name: str(value) for name, value in vars(options).items()},
            "equal": [row for each in everyone for row in each["equal"]],
            "timed": [row for each in everyone for row in each["timed"]],
        }
        options.out.write_text(json.dumps(found, indent=1))
        for row in found["timed"]:
            times = ", ".join([f"{name} {ms:.3f} ms" for name, ms in row["ms"].items()])
            print(
                f"{row['way']:>7} rank {row['rank']}: {times}; {row['replayed']} of {row['calls']} replayed"
            )
        print("bitwise equal:", all([row["equal"] == row["steps"] for row in found["equal"]]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
