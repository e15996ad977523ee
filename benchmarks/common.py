"""What all cases share: settings and results, timing in turns, and the stamp of machine and versions.

A speed is only worth keeping as a ratio to a peer measured in the same run: clocks, neighbours and drivers
move absolute times by more than the differences of interest. So every timer here takes all ways of doing the
work at once and alternates between them (A B A B), and every result is a median.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rote.bench import machine as bench_machine
from rote.bench.profile.measure import p99

Call = Callable[[], object]


@dataclass(frozen=True)
class Settings:
    """How to measure: on which device, how long, and whether slow peers take part."""

    device: torch.device
    quick: bool = False
    peers: bool = False

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def rounds(self, number: int) -> int:
        """A number of repetitions, cut down for a quick run."""
        return max(1, number // 10) if self.quick else number


@dataclass
class Outcome:
    """What a case found out.

    Attributes:
        rows: One measured way each: ``subject``, ``way`` and microseconds per call.
        ratios: Quotients of medians, named ``"<subject>: <way> / <way>"``.
        checks: Properties that have to hold; the run fails where one does not.
        facts: Everything else worth keeping.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    checks: dict[str, bool] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, subject: str, measured: Mapping[str, dict[str, Any]]) -> None:
        """Keep the timings of one subject."""
        self.rows += [{"subject": subject, "way": way, **timing} for way, timing in measured.items()]

    def ratio(self, subject: str, above: str, below: str, metric: str = "median_us") -> None:
        """Keep how many times as long one way takes as another."""
        found = {row["way"]: row[metric] for row in self.rows if row["subject"] == subject}
        if above in found and below in found:
            self.ratios[f"{subject}: {above} / {below}"] = found[above] / found[below]


def now(device: torch.device) -> float:
    """Seconds on the clock once the device has done all that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def time_calls(ways: Mapping[str, Call], settings: Settings, rounds: int) -> dict[str, dict[str, Any]]:
    """Time single calls, each between two synchronisations. For work of a millisecond and more."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(settings.rounds(rounds)):
        for way, call in ways.items():
            start = now(settings.device)
            call()
            seconds[way].append(now(settings.device) - start)
    return {way: statistic(values) for way, values in seconds.items()}


def time_loops(
    ways: Mapping[str, Call], settings: Settings, rounds: int, calls: int
) -> dict[str, dict[str, Any]]:
    """Time loops of calls with one synchronisation at the end. For work of microseconds.

    ``host_us`` is the time until the loop had issued its last call, ``median_us`` until the device was done
    too. Keep ``calls`` below the depth of the launch queue (about a thousand), or the host waits for it.
    """
    total: dict[str, list[float]] = {way: [] for way in ways}
    host: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(settings.rounds(rounds)):
        for way, call in ways.items():
            start = now(settings.device)
            for _ in range(calls):
                call()
            issued = time.perf_counter()
            total[way].append((now(settings.device) - start) / calls)
            host[way].append((issued - start) / calls)
    return {
        way: {**statistic(total[way]), "host_us": statistics.median(host[way]) * 1e6, "calls_per_loop": calls}
        for way in ways
    }


def statistic(seconds: list[float]) -> dict[str, Any]:
    """Median, 99th percentile and minimum in microseconds; of loops, these are of the means of loops."""
    values = {"median_us": statistics.median(seconds), "p99_us": p99(seconds), "min_us": min(seconds)}
    return {**{name: value * 1e6 for name, value in values.items()}, "samples": len(seconds)}


def first_fast_call(graphed: Any, call: Call, device: torch.device, limit: int = 12) -> dict[str, Any]:
    """Call until the first replay; say when the recording was there and how long the first replay took."""
    calls: list[float] = []
    recorded: float | None = None
    for _ in range(limit):
        start = now(device)
        call()
        calls.append(now(device) - start)
        report = graphed.report()
        if recorded is None and report.recorded:
            recorded = sum(calls)
        if report.replayed:
            return {"recorded_after_s": recorded, "first_replay_ms": calls[-1] * 1e3, "calls_s": calls}
    return {"recorded_after_s": recorded, "first_replay_ms": None, "calls_s": calls}


def describe(graphed: Any) -> dict[str, Any]:
    """The part of a report that belongs beside a time: what was recorded, and what was not replayed."""
    report = graphed.report()
    counts = {name: getattr(report, name) for name in ("calls", "replayed", "eager", "recorded")}
    recordings = [
        {
            "segments": recording.segments,
            "operations": recording.operations,
            "paths": recording.paths,
            "islands": [f"{island.operation} at {island.where}" for island in recording.islands],
            "bytes_held": recording.bytes_held,
        }
        for recording in report.recordings
    ]
    reasons = [
        f"{reason.code} {reason.message} ({reason.where}), {reason.count} times" for reason in report.reasons
    ]
    return {**counts, "recordings": recordings, "reasons": reasons}


def bare_replay(graphed: Any) -> Call | None:
    """The launches of a graphed callable's only recording and nothing else; None if they depend on values.

    Values that the host reads are not read here, where only one was ever recorded.
    """
    entries = list(graphed._keys.entries.values())
    found = [variant for entry in entries for variant in entry.recordings if variant.recorded]
    if len(found) != 1:
        return None
    replays: list[Call] = []
    nodes = [found[0].root]
    while nodes:
        if len(nodes) != 1:
            return None
        replays += [step.replay for step in nodes[0].steps]
        nodes = [node for node in nodes[0].edges.values() if node.steps is not None]
    if len(replays) == 1:
        return replays[0]
    return lambda: [replay() for replay in replays]


def all_equal(left: Iterable[torch.Tensor], right: Iterable[torch.Tensor]) -> bool:
    """Whether two sequences of tensors are bitwise the same."""
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def first_line(error: BaseException) -> str:
    """The error's kind and first line: what a table has room for."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def versions() -> dict[str, Any]:
    """Versions of what was measured and of what it stands on."""
    known = bench_machine.versions(torch.cuda.is_available())
    return {**known, "transformers": bench_machine.version("transformers")}


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return bench_machine.processor()


def folder_name(device: torch.device) -> str:
    """Where results of this device are kept: ``host``, or the GPU's name in small letters and dashes."""
    if device.type != "cuda":
        return "host"
    return re.sub(r"[^a-z0-9]+", "-", device_name(device).lower()).strip("-")


def machine_state() -> dict[str, Any]:
    """Clocks and load at this moment, read only: a result far off the others is explained here or nowhere."""
    threads = torch.get_num_threads()
    return {**bench_machine.state(torch.cuda.is_available()), "torch_threads": threads}
