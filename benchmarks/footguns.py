"""The footgun suite in every way of graphing a callable: ``python -m benchmarks.footguns --out FILE.json``.

Each case of ``tests/footguns`` is run by each way, in worker processes that work through a queue: a case that
hangs or kills its process, or leaves CUDA or the random number generators broken, costs that process and
nothing else. An outcome is ``right``, ``wrong`` (silently) or ``refused`` (an exception that is not the plain
program's, a hang, a crash). ``--table FILE.json`` writes ``docs/footguns.md`` from the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from tests.footguns.suite import CASES, label
from tests.footguns.ways import PEERS, WAYS

from . import common, footguns_page
from .footguns_worker import Worker

SLOWEST_FIRST = (
    "reduce-overhead",
    "dynamo",
    "make_graphed_callables",
    "by hand",
    "trusting",
    "rote",
    "eager",
)
Results = dict[str, dict[str, dict[str, Any]]]


class Board:
    """The jobs that are left and the answers that are there; shared by the threads that mind the workers."""

    def __init__(self, ways: Iterable[str], cases: Iterable[str], known: Results, limit_s: float) -> None:
        self._lock = threading.Lock()
        self._end = time.monotonic() + limit_s
        self.results: Results = {case: dict(known.get(case, {})) for case in cases}
        self._jobs = {way: deque(case for case in cases if way not in self.results[case]) for way in ways}

    def take(self, way: str) -> str | None:
        """The next case of a way; None when there is none left, or no time."""
        with self._lock:
            in_time = time.monotonic() < self._end
            return self._jobs[way].popleft() if in_time and self._jobs[way] else None

    def put(self, way: str, case: str, answer: dict[str, Any]) -> None:
        """Keep an answer."""
        with self._lock:
            self.results[case][way] = answer


def mind(board: Board, ways: Iterable[str], device: str, timeout_s: float) -> None:
    """Work the queues off, one way after the other, with one worker process at a time."""
    for way in ways:
        worker: Worker | None = None
        while (case := board.take(way)) is not None:
            worker = worker or Worker(way, device)
            answer = worker.ask(case, timeout_s)
            if not answer.pop("healthy"):
                worker.stop()
                worker = None
            board.put(way, case, answer)
        if worker is not None:
            worker.stop()


def measure(ways: list[str], cases: list[str], known: Results, options: argparse.Namespace) -> Results:
    """All cases by all ways, less those that are known."""
    board = Board(ways, cases, known, options.limit)
    arguments = (board, ways, options.device, options.timeout)
    minders = [threading.Thread(target=mind, args=arguments) for _ in range(options.workers)]
    for minder in minders:
        minder.start()
    for minder in minders:
        minder.join()
    return board.results


def main(argv: list[str] | None = None) -> int:
    """Measure, or write the page; 1 if rote was not right everywhere."""
    options = parse(argv)
    if options.table is not None:
        footguns_page.write(options.table)
        return 0
    device = torch.device(options.device)
    ways = [way for way in SLOWEST_FIRST if way in (options.way or WAYS)]
    ways = [way for way in ways if device.type == "cuda" or way not in PEERS]
    cases = [label(case) for case in CASES if not options.case or case.program.__name__ in options.case]
    out: Path = options.out or footguns_page.RESULTS / common.folder_name(device) / "footguns.json"
    earlier = json.loads(out.read_text()) if options.resume and out.exists() else {}
    start = time.perf_counter()
    results = measure(ways, cases, earlier.get("cases", {}), options)
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": common.device_name(device),
        "versions": common.versions(),
        "seconds": round(earlier.get("seconds", 0) + time.perf_counter() - start, 1),
        "cases": results,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    print(summary(results, ways))
    print(f"{document['seconds']} s, results in {out}")
    return int(any(each["rote"]["outcome"] != "right" for each in results.values() if "rote" in each))


def summary(results: Results, ways: list[str]) -> str:
    """Counts per way, then whatever the ways that have to be right got wrong."""
    lines = []
    for way in ways:
        counted = Counter(each[way]["outcome"] if way in each else "not run" for each in results.values())
        lines.append(f"{way:<24} {', '.join(f'{number} {what}' for what, number in sorted(counted.items()))}")
    for way in ("eager", "rote"):
        for case, each in results.items():
            if way in each and each[way]["outcome"] != "right":
                lines.append(f"{way}: {case} {each[way]['outcome']}: {each[way]['detail']}")
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.footguns", description="Run the footgun suite in every way."
    )
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/<gpu or host>/footguns.json")
    parser.add_argument(
        "--table", type=Path, metavar="JSON", help="write docs/footguns.md and measure nothing"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--way", action="extend", nargs="+", choices=list(WAYS), help="default: all")
    names = [case.program.__name__ for case in CASES]
    parser.add_argument(
        "--case", action="extend", nargs="+", choices=names, metavar="NAME", help="default: all"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one case")
    parser.add_argument("--limit", type=float, default=480.0, help="seconds after which no case is begun")
    parser.add_argument("--resume", action="store_true", help="keep what the file has, run what it lacks")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
