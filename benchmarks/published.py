"""The layers of ``tests/published`` with each remedy under each runtime: ``python -m benchmarks.published``.

Users of ``torch.compile`` got "accessing tensor output of CUDAGraphs that has been overwritten" from layers
like these, and were told many things. A cell is a layer, a remedy and a runtime, in a process of its own,
beside eager with the same weights and calls. Its outcome is ``right``, ``error`` (with its first line),
``wrong`` (silently) or ``refused`` (a hang, a crash); ``replayed`` says whether each of the last calls
replayed a graph. ``docs/overwritten.md`` shows the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
from tests.published.cell import Cell, cells, run
from tests.published.runtimes import NEEDS_GPU, RUNTIMES

from . import common, forked
from .footguns_page import RESULTS

OURS = ("eager", "backend rote", "rote.graph")
"""Runtimes that have to be right."""

Answers = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""By layer, remedy and runtime."""


def measure(wanted: list[Cell], known: Answers, options: argparse.Namespace) -> Answers:
    """All cells, less those that are known; what is left at the limit has no answer."""
    found = {cell: answer for cell in wanted if (answer := _of(known, cell)) is not None}
    works = {cell: partial(_answer, cell, options.device) for cell in wanted if cell not in found}
    with tempfile.TemporaryDirectory() as folder:  # what was compiled before is no part of it
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        found |= forked.run_all(works, options.jobs, options.timeout, options.limit)
    answers: Answers = {}
    for cell in filter(found.__contains__, wanted):
        answers.setdefault(cell.layer, {}).setdefault(cell.remedy.name, {})[cell.runtime] = found[cell]
    return answers


def _of(answers: Answers, cell: Cell) -> dict[str, Any] | None:
    return answers.get(cell.layer, {}).get(cell.remedy.name, {}).get(cell.runtime)


def _answer(cell: Cell, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1  # there are many processes
    answer = asdict(run(cell, torch.device(device)))
    return {**answer, "detail": answer["detail"][:300]}


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if a cell in eager or by rote was not right."""
    options = parse(argv)
    device = torch.device(options.device)
    runtimes = [name for name in RUNTIMES if device.type == "cuda" or name not in NEEDS_GPU]
    only = set(options.only or ())
    wanted = [
        cell
        for cell in cells()
        if cell.runtime in runtimes and only <= {cell.layer, cell.remedy.name, cell.runtime}
    ]
    start = time.perf_counter()
    earlier = json.loads(options.resume.read_text()) if options.resume else {}
    answers = measure(wanted, earlier.get("cells", {}), options)
    out: Path = options.out or RESULTS / common.folder_name(device) / "published.json"
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": common.device_name(device),
        "versions": common.versions(),
        "seconds": round(earlier.get("seconds", 0) + time.perf_counter() - start, 1),
        "runtimes": runtimes,
        "cells": answers,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n")
    print(summary(answers))
    print(f"{document['seconds']} s, results in {out}")
    ours = [answer for runtime in OURS for answer in of_runtime(answers, runtime)]
    return int(any(answer["outcome"] != "right" for answer in ours))


def of_runtime(answers: Answers, runtime: str) -> list[dict[str, Any]]:
    """The answers of one runtime."""
    rows = [row for rows in answers.values() for row in rows.values()]
    return [row[runtime] for row in rows if runtime in row]


def summary(answers: Answers) -> str:
    """Counts by runtime."""
    lines: list[str] = []
    for runtime in RUNTIMES:
        each = of_runtime(answers, runtime)
        counted = Counter(answer["outcome"] for answer in each)
        replayed = sum(answer["outcome"] == "right" and answer["replayed"] for answer in each)
        said = ", ".join(f"{number} {what}" for what, number in sorted(counted.items()))
        lines += [f"{runtime:<16} {said}; {replayed} right and replayed"] if each else []
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/<gpu or host>/published.json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="layer, remedy, runtime; default: all")
    parser.add_argument("--device", help="cuda or cpu; default: cuda where there is a GPU")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one cell")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds after which no cell is begun")
    parser.add_argument("--resume", type=Path, metavar="JSON", help="keep what this has, run what it lacks")
    options = parser.parse_args(argv)
    options.device = options.device or forked.default_device()
    return options


if __name__ == "__main__":
    sys.exit(main())
