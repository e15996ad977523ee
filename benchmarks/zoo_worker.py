"""One program of the zoo, plain and graphed in turns: ``python -m benchmarks.zoo_worker KEY``.

The two run in processes forked from this one, which has imported the library, so that neither sees what the
other leaves in it; they take turns, a block of calls each. Both begin at one seed. Of each call all that the
program yields is compared, and after each block the random generators. A time is that of whole calls, with
what the program does between two of them: on the host it is the time of the process, since others may use the
processor, too; on a GPU it is taken between two synchronisations. Where a difference is found, the plain
program is run again: kernels that add in any order do not give the same bits twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import pickle
import random
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy
import torch

import rote
from rote.testing import assert_same

from . import zoo_set
from .common import first_line

BLOCK = 10
WARM_UP = 50
"""Calls after which a program has to have settled."""
KEPT_REASONS = 4
GOODBYE_S = 5.0
PLAIN_AGAIN = 4
"""Further plain runs, at most, after a difference: they tell whether the plain program repeats itself."""
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Block:
    """What came of some calls.

    Attributes:
        seconds: Of each call.
        items: Copies of what the calls yielded; behind them the state of the random generators.
        counts: What the reports say so far.
        failure: What was raised, as an outcome; empty if nothing was.
    """

    seconds: list[float]
    items: list[Any]
    counts: Counts
    failure: dict[str, Any]


@dataclass(frozen=True)
class Counts:
    """What the reports of all graphed callables of a program add up to."""

    calls: int = 0
    replayed: int = 0
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    parts: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, graphs: list[Any]) -> Counts:
        """As it is now."""
        reports = [graph.report() for graph in graphs]
        reasons = Counter[tuple[str, str, str]]()
        for reason in (reason for report in reports for reason in report.reasons):
            reasons[reason.code, reason.where, f"{reason.message}\n{reason.remedy}"] += reason.count
        parts = [
            {"name": part.name, "calls": part.calls, "replayed": part.replayed}
            for report in reports
            for part in report.parts
            if not part.given_up
        ]
        calls, replayed = (sum(getattr(each, name) for each in reports) for name in ("calls", "replayed"))
        return cls(calls, replayed, reasons, tuple(parts))

    def told(self) -> list[dict[str, Any]]:
        """The reasons, those that came most often first."""
        return [
            {"code": code, "where": where, "message": text, "count": count}
            for (code, where, text), count in self.reasons.most_common()
        ]

    def since(self, early: Counts) -> dict[str, Any]:
        """Shares after the warm-up, and the reasons that came most often since, and before."""
        calls, replayed = self.calls - early.calls, self.replayed - early.replayed
        before = Counter[tuple[str, str]]()
        for (code, where, _), count in early.reasons.items():
            before[code, where] += count
        late = [
            {"code": code, "where": where, "message": text, "count": count - before[code, where]}
            for (code, where, text), count in self.reasons.items()
            if count > before[code, where]
        ]
        late.sort(key=lambda each: -each["count"])
        return {
            "graphed_calls": self.calls,
            "replayed_calls": self.replayed,
            "replayed": round(replayed / calls, 4) if calls else 0.0,
            "parts": [*self.parts],
            "reasons": late[:KEPT_REASONS],
            "before": early.told()[:KEPT_REASONS],
        }


class Way:
    """The program in one way of running it, in a process of its own.

    Args:
        program: The program.
        device: Where it runs.
        graphed: Whether what it wraps is graphed.
    """

    def __init__(self, program: zoo_set.Program, device: torch.device, graphed: bool) -> None:
        self._pipe, other = FORK.Pipe()
        self._process = FORK.Process(target=serve, args=(other, program, device, graphed), daemon=True)
        self._process.start()
        other.close()

    def block(self) -> Block:
        """The next calls."""
        self._pipe.send(True)
        return pickle.loads(self._pipe.recv_bytes())

    def stop(self) -> None:
        """Let the process end, and end it if it does not."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(False)
        self._process.join(GOODBYE_S)
        self._process.kill()
        self._process.join()


def serve(pipe: Connection, program: zoo_set.Program, device: torch.device, graphed: bool) -> None:
    """Make a block of calls whenever one is asked for."""
    graphs: list[Any] = []

    def wrap(function: Callable[..., Any]) -> Any:
        if not graphed:
            return function
        graphs.append(rote.graph(function))
        return graphs[-1]

    items: Iterator[Any] | None = None
    while pipe.recv():
        seconds, found, failure = list[float](), list[Any](), dict[str, Any]()
        try:
            if items is None:
                spare(program, device)
                items = program.start(wrap, device)
            for _ in range(BLOCK):
                start = now(device)
                item = next(items)
                seconds.append(now(device) - start)
                found.append(copied(item))
                del item  # a gradient that is held here would change what comes next
        except Exception as error:
            failure = broken(error)
        pipe.send_bytes(
            pickle.dumps(Block(seconds, [*found, copied(random_state(device))], Counts.of(graphs), failure))
        )


def spare(program: zoo_set.Program, device: torch.device) -> None:
    """Run the program for a while: what libraries import and set up once is no part of a time. Then seed."""
    unused = program.start(lambda function: function, device)
    for _ in range(BLOCK):
        next(unused)
    unused.close()
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def measure(program: zoo_set.Program, device: torch.device, calls: int, seconds: float) -> dict[str, Any]:
    """What became of one program.

    Args:
        program: The program.
        device: Where it runs.
        calls: How often it is called each way.
        seconds: After which no block is begun.
    """
    try:
        program.function()
    except Exception as error:
        return broken(error)
    plain, ours = Way(program, device, False), Way(program, device, True)
    try:
        compared, differing = compare(plain, ours, calls, time.monotonic() + seconds)
    finally:
        plain.stop()
        ours.stop()
    if differing is None:
        return compared
    return compared | {"plain_repeats": repeats(program, device, differing)}


@dataclass(frozen=True)
class Differing:
    """The first block in which the graphed program differs.

    Attributes:
        number: Of the block.
        expected: What the plain program yielded in it.
    """

    number: int
    expected: list[Any]


def repeats(program: zoo_set.Program, device: torch.device, differing: Differing) -> bool:
    """Whether further plain runs give what the first one gave, where the graphed one differs."""
    return all(_repeats(program, device, differing) for _ in range(PLAIN_AGAIN))


def _repeats(program: zoo_set.Program, device: torch.device, differing: Differing) -> bool:
    again = Way(program, device, False)
    try:
        blocks = [again.block() for _ in range(differing.number + 1)]
    finally:
        again.stop()
    return not different(blocks[-1].items, differing.expected, 0)


def compare(plain: Way, ours: Way, calls: int, end: float) -> tuple[dict[str, Any], Differing | None]:
    """Call both in turns, until there are enough calls or the time is up."""
    difference, differing, early, late = "", None, Counts(), Counts()
    theirs, mine = list[float](), list[float]()
    while len(mine) < calls and (time.monotonic() < end or len(mine) <= WARM_UP):
        expected = plain.block()
        if expected.failure:
            return expected.failure, None
        found = ours.block()
        if found.failure:
            failed = f"call {len(mine) + len(found.seconds)} raised {found.failure['detail']}"
            raised = {
                **found.failure,
                "outcome": "compared",
                "equal": False,
                "difference": difference or failed,
                "calls": len(mine),
                **times(theirs, mine),
                **found.counts.since(early),
            }
            return raised, differing
        if not difference:
            difference = different(found.items, expected.items, len(mine))
            differing = Differing(len(mine) // BLOCK, expected.items) if difference else None
        theirs += expected.seconds
        mine += found.seconds
        late = found.counts
        early = late if len(mine) == WARM_UP else early
    compared = {
        "outcome": "compared",
        "equal": not difference,
        "difference": difference[:400],
        "calls": len(mine),
        **times(theirs, mine),
        **late.since(early),
    }
    return compared, differing


def broken(error: BaseException) -> dict[str, Any]:
    """The outcome of a program that does not run plainly."""
    why = "cannot be imported" if isinstance(error, ImportError) else "does not run plainly"
    where = "".join(traceback.format_exception(error)[-4:])
    return {"outcome": why, "detail": first_line(error)[:300], "where": where[-1500:]}


def times(plain: list[float], ours: list[float]) -> dict[str, Any]:
    """Times over plain in the first calls, in those after them, and in the last third."""
    plain = plain[: len(ours)]
    windows = {
        "first": slice(0, WARM_UP),
        "afterwards": slice(WARM_UP, None),
        "late": slice(-(len(ours) // 3), None),
    }
    found = {name: (sum(ours[part]), sum(plain[part])) for name, part in windows.items() if ours[part]}
    return {
        "plain_us": round(1e6 * sum(plain) / len(plain), 1) if plain else None,
        **{name: round(mine / other, 3) for name, (mine, other) in found.items() if other},
    }


def different(found: list[Any], expected: list[Any], number: int) -> str:
    """The first difference of a block, empty if there is none."""
    for offset, (mine, other) in enumerate(zip(found, expected, strict=True)):
        what = (
            f"call {number + offset}"
            if offset < BLOCK
            else f"random generators after call {number + BLOCK - 1}"
        )
        try:
            assert_same(mine, other, what)
        except AssertionError as error:
            return str(error)
    return ""


def copied(item: Any) -> Any:
    """An item with copies of its tensors, and with what modules and optimizers hold."""
    if isinstance(item, torch.Tensor):
        about = (str(item.dtype), str(item.device), tuple(item.shape), item.requires_grad)
        with torch.no_grad():
            return about, item.detach().to("cpu", copy=True).contiguous()
    if isinstance(item, numpy.ndarray):
        return str(item.dtype), item.shape, item.tobytes()
    if isinstance(item, (torch.nn.Module, torch.optim.Optimizer)):
        return copied(item.state_dict())
    if isinstance(item, dict):
        return {str(key): copied(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [copied(value) for value in item]
    if item is None or isinstance(item, (int, float, str, bytes, numpy.generic)):
        return item
    return str(item) if isinstance(item, (torch.dtype, torch.device)) else f"a {type(item).__name__}"


def now(device: torch.device) -> float:
    """Seconds of the processor on the host; of the clock on a GPU, when it is done."""
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def random_state(device: torch.device) -> list[Any]:
    """The state of all generators that programs draw from."""
    cuda = [torch.cuda.get_rng_state()] if device.type == "cuda" else []
    return [torch.get_rng_state(), random.getstate(), numpy.random.get_state(), *cuda]


def main(argv: list[str] | None = None) -> int:
    """Measure one program, and write the answer to the standard output."""
    options = parse(argv)
    if options.memory:
        limit = int(options.memory * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    (program,) = [each for each in zoo_set.programs() if each.key == options.program]
    answer = measure(program, torch.device(options.device), options.calls, options.seconds)
    answers.write(json.dumps(answer))
    answers.close()
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo_worker")
    parser.add_argument("program", help="library:function")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0, help="after which no calls are begun")
    parser.add_argument(
        "--memory", type=float, default=0.0, help="GiB it may have on the host; 0 for no limit"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
