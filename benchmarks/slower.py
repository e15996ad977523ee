"""What short and unsettled programs lose: ``python -m benchmarks.slower``.

Each program runs plainly and graphed in one process, a block of calls each by turns, some times over in
worlds of its own. A block takes what it took the fastest time, in seconds of the thread, as others may use
the processor. Programs are those of :mod:`.short_programs`, of :mod:`.unsettled`, of the zoo (``--zoo``), and
the state programs (``--state``), whose last call is made again and again once they are over.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tests.state_programs.suite import PROGRAMS

import rote

from . import common, forked, zoo_set
from .short_programs import SHORT
from .unsettled import PROGRAMS as UNSETTLED
from .unsettled import Program

BLOCK = 10
WINDOWS = {"1-50": (0, 50), "51-200": (50, 200), "201-": (200, 1000)}
CALLS, REPEATS, LONG_S = 1000, 3, 2.0
"""Calls of a program, how often it begins anew, and seconds after which a plain run has no more calls."""
SLOWER = 1.05
Calls = Iterator[float]


def calls_of(build: Callable[[torch.device], Program], wrap: Callable[[Any], Any]) -> Calls:
    """The seconds of each call of a program."""
    program = build(torch.device("cpu"))
    function = wrap(program.function)
    for arguments in program.arguments:
        start = time.thread_time()
        with contextlib.suppress(ValueError):
            function(*arguments)
        if program.whole:
            program.between()
        yield time.thread_time() - start
        if not program.whole:
            program.between()


class Last:
    """A callable that remembers its last call."""

    def __init__(self, function: Any, made: list[Last]) -> None:
        self.function = function
        self.given: tuple[Any, Any] | None = None
        made.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.given = args, kwargs
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


def calls_of_state(program: Any, wrap: Callable[[Any], Any]) -> Calls:
    """Those of a state program from its last call on."""
    made: list[Last] = []
    for _ in program.program(lambda function: Last(wrap(function), made), torch.device("cpu")):
        pass
    function, (args, kwargs) = next((each.function, each.given) for each in made if each.given)
    while True:
        start = time.thread_time()
        with contextlib.suppress(Exception):
            function(*args, **kwargs)
        yield time.thread_time() - start


def calls_of_zoo(program: Any, wrap: Callable[[Any], Any]) -> Calls:
    """Those of a program of the zoo, with what it does between them."""
    items = program.start(wrap, torch.device("cpu"))
    while True:
        start = time.thread_time()
        next(items)
        yield time.thread_time() - start


def measure(calls: Callable[[Callable[[Any], Any]], Calls]) -> dict[str, Any]:
    """The times of a program both ways."""
    torch.set_num_threads(1)
    tick = min(-time.thread_time() + time.thread_time() for _ in range(1000))
    found: dict[str, list[list[float]]] = {"plain": [], "rote": []}
    length, told = CALLS, dict[str, Any]()
    for _ in range(REPEATS):
        graphs: list[Any] = []

        def wrap(function: Any, graphs: list[Any] = graphs) -> Any:
            graphs.append(rote.graph(function))
            return graphs[-1]

        ways = {"plain": calls(lambda function: function), "rote": calls(wrap)}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        while len(seconds["rote"]) < length:
            for way, times in ways.items():
                seconds[way] += [max(next(times) - tick, 1e-9) for _ in range(BLOCK)]
            if sum(seconds["plain"]) > LONG_S / REPEATS:
                length = min(length, max(len(seconds["rote"]), 250))
        for way in ways:
            found[way].append(seconds[way])
        reports = [graph.report() for graph in graphs]
        began = time.thread_time()
        graphs[0].explain()
        told = {
            "explain_ms": 1e3 * (time.thread_time() - began),
            "calls": sum(each.calls for each in reports),
            "replayed": sum(each.replayed for each in reports),
            "reasons": [str(why)[:200] for each in reports for why in each.reasons][-4:],
        }
    return told | summed(found, length)


def summed(found: dict[str, list[list[float]]], length: int) -> dict[str, Any]:
    """Totals of windows, by the fastest of the repeats of each block."""
    least = {
        way: [min(sum(run[at : at + BLOCK]) for run in runs) for at in range(0, length, BLOCK)]
        for way, runs in found.items()
    }
    out: dict[str, Any] = {"plain_us": 1e6 * sum(least["plain"]) / length}
    for name, (begin, end) in WINDOWS.items():
        ours, theirs = (sum(least[way][begin // BLOCK : end // BLOCK]) for way in ("rote", "plain"))
        out[name], out[f"lost {name}"] = ours / theirs, 1e3 * (ours - theirs)
    peak = max(min(run[at] for run in found["rote"]) for at in range(length))
    out["peak"] = 1e6 * peak / out["plain_us"]
    return out


def main(argv: list[str] | None = None) -> int:
    """Measure, and print what is slowest."""
    options = parse(argv)
    works: dict[str, Callable[[], Any]] = {}
    for name, build in {**SHORT, **{f"unsettled: {key}": each for key, each in UNSETTLED.items()}}.items():
        works[name] = partial(measure, partial(calls_of, build))
    if options.state:
        works |= {each.label: partial(measure, partial(calls_of_state, each)) for each in PROGRAMS}
    if options.zoo:
        works |= {each.key: partial(measure, partial(calls_of_zoo, each)) for each in zoo_set.programs()}
    if options.only:
        works = {name: work for name, work in works.items() if any(part in name for part in options.only)}
    answers = forked.run_all(works, options.jobs, options.timeout)
    if options.out:
        made = {"device": common.device_name(torch.device("cpu")), "versions": common.versions()}
        options.out.write_text(json.dumps({**made, "programs": answers}, indent=1))
    print_table(answers, options.worst)
    return 0


def print_table(answers: dict[str, Any], worst: int) -> None:
    """The worst programs, and how many are slower."""
    rows = {name: each for name, each in answers.items() if "peak" in each}
    print(
        f"{'program':<44}{'plain us':>9}"
        + "".join(f"{name:>9}" for name in WINDOWS)
        + f"{'peak':>8}  replayed"
    )
    late = list(WINDOWS)[-1]
    for name, row in sorted(rows.items(), key=lambda each: -each[1][late])[:worst]:
        shares = "".join(f"{row[window]:>9.2f}" for window in WINDOWS)
        print(
            f"{name[:43]:<44}{row['plain_us']:>9.1f}{shares}{row['peak']:>8.1f}{row['replayed']:>6}/{row['calls']}"
        )
    for window in WINDOWS:
        slower = sum(row[window] > SLOWER for row in rows.values())
        lost = sum(max(row[f"lost {window}"], 0) for row in rows.values())
        told = f"{slower} of {len(rows)} programs slower than {SLOWER}, {lost:.0f} ms lost in all"
        print(f"calls {window}: {told}")
    failed = {name: each.get("detail", "") for name, each in answers.items() if "peak" not in each}
    print(f"{len(failed)} could not be measured")
    for name, why in list(failed.items())[:8]:
        print(f"  {name}: {why[:120]}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slower", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="PART", help="programs with these parts in their names")
    parser.add_argument("--state", action="store_true", help="state programs, too")
    parser.add_argument("--zoo", action="store_true", help="those of the zoo, too")
    parser.add_argument("--worst", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
