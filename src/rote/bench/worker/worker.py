"""A process that runs one contender: it answers questions, one line of JSON each, until there are no more.

    question                            answer
    {"do": "build"}                     the device, and the threads of a CPU
    {"do": "warm", "calls": 8,          seconds of each of the first calls, and how their results compare with
     "keep": true}                      the kept ones; with "keep" they are kept first
    {"do": "settle", "seconds": 60}     seconds and number of calls until calls do not become faster any more
    {"do": "turn", "seconds": 0.5}      microseconds of single calls, and of the host in short loops
    {"do": "again", "calls": 8}         how these calls compare, made once more
    {"do": "notes"}                     remarks on the contender
    {"do": "count"}                     launches per call, on a GPU

Before an answer there may be progress: ``{"at": "call 3 of 8"}``. A failure is an answer:
``{"error": "RuntimeError: ...", "memory": false}``.

PyTorch's, numpy's and Python's generators are seeded before the target is built, and again before each of the
first calls, with another seed each. In the timed calls they run on.
"""

from __future__ import annotations

import json
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy
import torch

from ...base import NOWHERE, Site, traceback_site
from ...runtime.arguments import leaves_of
from ..profile import refuse_unread
from . import launches as bench_launches
from . import memory as bench_memory
from .contenders import Call, Contender
from .inputs import PLACES, Inputs
from .results import Equality, Results

SEED = 20
LOOP_S = 2e-3
"""Work that a loop without synchronisation may queue. A launch costs the host 2 us at least, so these stay
below the thousand or so after which the host would have to wait."""

MOST_IN_LOOP = 50

AFTERMATH = "previous error during capture"
"""The error at the end of a failed capture: it hides the one that says why."""

LEAD_CALLS = 2
"""Untimed calls at the beginning of a turn: caches and clocks recover from the others' turns."""


class Workload(NamedTuple):
    """What a target's builder returned."""

    function: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Worker:
    """One contender at work.

    ``load`` builds the target. Eager's results lie in ``folder``. ``say`` gets its progress.
    """

    def __init__(
        self,
        contender: Contender,
        load: Callable[[], Workload],
        folder: Path,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._contender = contender
        self._load = load
        self._folder = folder
        self._say = say
        self._calls = 0

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer a question; a failure is an answer."""
        try:
            match question["do"]:
                case "build":
                    return self._build()
                case "warm":
                    return self._warm(question["calls"], question["keep"])
                case "settle":
                    return self._settle(question["seconds"])
                case "again":
                    return self._again(question["calls"])
                case "turn":
                    return self._turn(question["seconds"])
                case "notes":
                    return {"notes": self._contender.notes(self._call)}
                case "count":
                    return {"launches": self._count()}
                case other:
                    raise ValueError(f"no such question: {other}")
        except (Exception, SystemExit) as error:
            return {"error": first_line(error), "memory": lacks_memory(error)}

    # ------------------------------------------------------------------ questions

    def _build(self) -> dict[str, Any]:
        empty = bench_memory.held(bench_memory.CPU) or 0
        allocations = _allocations()
        seed_all(SEED)
        subject = self._load()
        self._function = subject.function
        self._device = _device(subject, allocations)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
            empty = 0
        self._target_bytes = (bench_memory.held(self._device) or 0) - empty
        self._inputs = Inputs(subject.args, subject.kwargs, SEED)
        gpu = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else None
        return {"device": self._device.type, "gpu": gpu, "threads": torch.get_num_threads()}

    def _warm(self, calls: int, keep: bool) -> dict[str, Any]:
        results, equality = Results(self._folder), Equality()
        self._held_before = before = bench_memory.held(self._device)
        allocations = _allocations()
        seconds: list[float] = []
        drew, peak = False, 0
        start = time.perf_counter()
        self._call = self._contender.make(self._function)
        setup = time.perf_counter() - start
        for number in range(calls):
            self._say(f"call {number + 1} of {calls}")
            args, kwargs = self._inputs.fresh(number)
            seed_all(SEED + 1 + number)
            random_before = _random_state(self._device)
            bench_memory.begin_peak(self._device)
            start = self._now()
            value = self._call(*args, **kwargs)
            seconds.append(self._now() - start)
            refuse_unread(value)
            peak = max(peak, bench_memory.peak(self._device) or 0)
            drew = drew or random_before != _random_state(self._device)
            written = self._inputs.written(number)
            if keep:
                results.keep(number, value, written)
            results.compare(number, value, written, equality)
            del value, written
        if keep and self._device.type == "cpu" and sum(_allocations()) > sum(allocations):
            raise RuntimeError("it uses the GPU in its calls, but has nothing there when it is built")
        self._calls = calls
        seconds[0] += setup
        return {
            "seconds": seconds,
            "equality": asdict(equality),
            "draws": drew,
            "held_bytes": self._held(),
            "peak_bytes": None if before is None else self._target_bytes + max(0, peak - before),
        }

    def _settle(self, seconds: float) -> dict[str, Any]:
        """Call until kernels that are compiled meanwhile are in use, or the time is up."""
        first, start = self._calls, time.perf_counter()
        end = start + seconds
        while not (settled := self._contender.is_settled(self._call, max(0.0, end - time.perf_counter()))):
            if time.perf_counter() >= end:
                break
            self._say(f"settling, call {self._calls - first + 1}")
            self._time()
        took, calls = self._now() - start, self._calls - first
        return {"settled": settled, "seconds": took, "calls": calls, "held_bytes": self._held()}

    def _again(self, calls: int) -> dict[str, Any]:
        """Make the first calls once more, with all that was recorded since."""
        results, equality = Results(self._folder), Equality()
        for number in range(calls):
            args, kwargs = self._inputs.fresh(number)
            seed_all(SEED + 1 + number)
            value = self._call(*args, **kwargs)
            results.compare(number, value, self._inputs.written(number), equality)
        return {"equality": asdict(equality)}

    def _turn(self, seconds: float) -> dict[str, Any]:
        for _ in range(LEAD_CALLS):
            self._time()
        on_gpu = self._device.type == "cuda"
        latencies: list[float] = []
        end = time.perf_counter() + (seconds / 2 if on_gpu else seconds)
        while not latencies or time.perf_counter() < end:
            latencies.append(self._time())
        host: list[float] = []
        if on_gpu:
            typical = sorted(latencies)[len(latencies) // 2]
            calls = max(1, min(MOST_IN_LOOP, int(LOOP_S / typical)))
            end = time.perf_counter() + seconds / 2
            while not host or time.perf_counter() < end:
                host.append(self._loop(calls))
        return {"latency_us": _microseconds(latencies), "host_us": _microseconds(host)}

    def _count(self) -> dict[str, Any] | None:
        if self._device.type != "cuda":
            return None
        prepared = [self._arguments() for _ in range(PLACES)]
        calls = [lambda given=given: self._call(*given[0], **given[1]) for given in prepared]
        return asdict(bench_launches.count(list(calls), self._folder))

    # ------------------------------------------------------------------ timing

    def _time(self) -> float:
        """Seconds of one call, from an idle device to an idle device."""
        args, kwargs = self._arguments()
        start = self._now()
        self._call(*args, **kwargs)
        return self._now() - start

    def _loop(self, calls: int) -> float:
        """Seconds of the host per call, in a loop that does not wait for the device."""
        spent = 0.0
        self._now()
        for _ in range(calls):
            args, kwargs = self._arguments()
            start = time.perf_counter()
            self._call(*args, **kwargs)
            spent += time.perf_counter() - start
        self._now()
        return spent / calls

    def _held(self) -> int | None:
        """Memory that the calls so far have added."""
        now = bench_memory.held(self._device)
        return None if now is None or self._held_before is None else now - self._held_before

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self._calls += 1
        return self._inputs.fresh(self._calls)

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def serve(worker: Callable[[Callable[[str], None]], Worker], questions: IO[str], answers: IO[str]) -> None:
    """Answer questions until there are no more; ``worker`` gets a function for its progress."""

    def write(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=answers, flush=True)

    asked = worker(lambda text: write({"at": text}))
    write({"ready": True})
    for line in questions:
        write(asked.answer(json.loads(line)))


def seed_all(seed: int) -> None:
    """Seed every generator a target may draw from."""
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def first_line(error: BaseException) -> str:
    """The error's kind and first line, with the user's line; without a message, the line that raised it."""
    while AFTERMATH in str(error) and error.__context__ is not None:
        error = error.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    site = traceback_site(error.__traceback__) if text else _raised_at(error)
    return f"{type(error).__name__}: {text}".rstrip(": ") + (f" ({site})" if site.line else "")


def _raised_at(error: BaseException) -> Site:
    frames = traceback.extract_tb(error.__traceback__)
    return Site(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name) if frames else NOWHERE


def lacks_memory(error: BaseException) -> bool:
    """Whether memory ran out; the driver, and the allocator of the CPU, say it in the text only."""
    words = ("out of memory", "can't allocate memory")
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or any(word in str(error) for word in words)


def _device(subject: Workload, before: list[int]) -> torch.device:
    """The GPU that holds an argument, or got memory while the target was built; else the CPU."""
    leaves = leaves_of((subject.args, subject.kwargs))
    found = [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_cuda]
    if found:
        return found[0]
    now = _allocations()
    more = [each - then for each, then in zip(now, before or [0] * len(now), strict=True)]
    return torch.device("cuda", more.index(max(more))) if any(more) else torch.device("cpu")


def _allocations() -> list[int]:
    """How often each GPU gave memory; empty if none was used so far."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    count = torch.cuda.device_count()
    return [torch.cuda.memory_stats(i).get("allocation.all.allocated", 0) for i in range(count)]


def _random_state(device: torch.device) -> list[bytes]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return [state.numpy().tobytes() for state in states]


def _microseconds(seconds: list[float]) -> list[float]:
    return [round(value * 1e6, 3) for value in seconds]
