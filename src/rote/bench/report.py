"""The figures of ``rote bench``, as plain values that serialise to JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from .profile import p99

FAST, SLACK_US = 1.5, 50.0
COLD, COLD_US = 3.0, 200.0
"""See :func:`first_fast_call` and :attr:`BenchReport.cold_us`: factors, and microseconds on top."""

MEASURED, FAILED, NO_GPU = "measured", "failed", "needs a GPU"


@dataclass
class BenchRow:
    """One contender.

    Attributes:
        name: Its name on the command line and in the table.
        title: Its name in a picture.
        status: ``"measured"``, ``"failed"`` or ``"needs a GPU"``.
        why: Why it was not measured.
        first_fast_call_s: Seconds from the beginning of the first call to the end of the first fast one, with
            setup; None if none of the first calls was fast.
        settled: Whether calls would not have become faster any more when they were timed.
        settled_after_s: Seconds from the beginning of the first call until then, if more calls were needed.
        median_us: Microseconds of a call, from an idle device to an idle device.
        p99_us: The 99th percentile of these times; of fewer than 100 calls the slowest.
        samples: Number of timed calls.
        round_medians_us: The median of each round: a drift of the machine shows here.
        host_us: Microseconds in which the host issues a call while the queue is short. On a GPU only.
        peak_bytes: The target's memory (weights, arguments) and the peak of the first calls on top of it. On
            a CPU it is resident memory, with what the comparison needs.
        held_bytes: Memory that the calls before the timed ones have added.
        launches: Counts per call, see :class:`~.worker.launches.Launches`. On a GPU only.
        equality: How the results of the first calls compare with eager's, also when they are made once more
            at the end; see :class:`~.worker.results.Equality`.
        notes: Remarks, in one line each.
    """

    name: str
    title: str
    status: str = MEASURED
    why: str = ""
    first_fast_call_s: float | None = None
    first_calls_s: list[float] = field(default_factory=list[float])
    settled: bool = True
    settled_after_s: float | None = None
    median_us: float | None = None
    p99_us: float | None = None
    samples: int = 0
    round_medians_us: list[float] = field(default_factory=list[float])
    host_us: float | None = None
    peak_bytes: int | None = None
    held_bytes: int | None = None
    launches: dict[str, Any] | None = None
    equality: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list[str])

    def fail(self, why: str, status: str = FAILED) -> None:
        """Drop all figures: it was not measured."""
        self.__dict__.update(BenchRow(self.name, self.title, status, why).__dict__)

    def begin_again(self) -> None:
        """Forget a failure."""
        self.__dict__.update(BenchRow(self.name, self.title).__dict__)

    def time(self, rounds: Iterable[dict[str, list[float]]]) -> None:
        """Add up the turns of all rounds; :meth:`BenchReport.find_fast_calls` does the rest."""
        turns = list(rounds)
        latencies = [value for turn in turns for value in turn["latency_us"]]
        host = [value for turn in turns for value in turn["host_us"]]
        self.samples = len(latencies)
        self.median_us = statistics.median(latencies)
        self.p99_us = p99(latencies)
        self.round_medians_us = [statistics.median(turn["latency_us"]) for turn in turns]
        self.host_us = statistics.median(host) if host else None

    @property
    def copied_bytes(self) -> float | None:
        """Bytes copied per call, in all directions."""
        return sum(self.launches["bytes_copied"].values()) if self.launches is not None else None

    @property
    def differs(self) -> bool:
        """Whether its results were not bitwise eager's."""
        return self.equality is not None and not self.equality["bitwise"]


@dataclass
class BenchReport:
    """The whole benchmark.

    Attributes:
        target: The target, as the user wrote it.
        arguments: Its arguments, ``name=value``.
        device: ``"cuda"`` or ``"cpu"``.
        device_name: The GPU's name, or the processor's.
        threads: Threads of PyTorch's operations on the CPU, once the target is built.
        versions: Versions of rote and of all that it runs on.
        machine: Clocks and load before and after.
        seconds: Time meant for timed calls.
        rounds: Turns of each contender.
        first_calls: Calls that were compared with eager.
        compared_again: Whether the first calls were made and compared once more after the timed ones. A
            target that keeps state, or is not deterministic, gives other results then, in eager too.
        draws: Whether the target draws random numbers from PyTorch. Compilers draw others than eager does.
        repeats: Whether a second eager process gave the same results; None if rote's do not differ.
    """

    target: str
    arguments: list[str]
    device: str = "cpu"
    device_name: str = ""
    threads: int = 0
    versions: dict[str, Any] = field(default_factory=dict[str, Any])
    machine: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    rounds: int = 0
    first_calls: int = 0
    compared_again: bool = False
    draws: bool = False
    repeats: dict[str, Any] | None = None
    rows: list[BenchRow] = field(default_factory=list[BenchRow])

    def row(self, name: str) -> BenchRow | None:
        """The contender of that name, if it took part."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def on_gpu(self) -> bool:
        """Whether the target is on a GPU."""
        return self.device == "cuda"

    @property
    def cold_us(self) -> float:
        """Microseconds that cold caches may cost a first call: twice what they cost eager's fastest one."""
        eager = self.row("eager")
        if eager is None or eager.median_us is None:
            return COLD_US
        return max(COLD_US, 2 * (min(eager.first_calls_s) * 1e6 - eager.median_us))

    def find_fast_calls(self) -> None:
        """Find the first fast call of every row that was timed."""
        for row in self.rows:
            if row.median_us is not None:
                row.first_fast_call_s = first_fast_call(row.first_calls_s, row.median_us, self.cold_us)

    def to_eager(self, row: BenchRow) -> float | None:
        """A row's median by eager's."""
        eager = self.row("eager")
        if eager is None or not eager.median_us or row.median_us is None:
            return None
        return row.median_us / eager.median_us

    @property
    def rote_differs(self) -> bool:
        """Whether rote failed, or differs from eager by more than eager differs from itself."""
        rote = self.row("rote")
        if rote is None:
            return False
        if rote.status == FAILED:
            return True
        if not rote.differs or rote.equality is None:
            return False
        if self.repeats is None or self.repeats["bitwise"]:
            return True
        largest, own = rote.equality["largest"], self.repeats["largest"]
        return largest is None or own is None or largest > 2 * own

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and values."""
        rows = [
            {**asdict(row), "copied_bytes": row.copied_bytes, "to_eager": self.to_eager(row)}
            for row in self.rows
        ]
        return {**asdict(self), "rows": rows, "rote_differs": self.rote_differs}


def first_fast_call(seconds: list[float], median_us: float, cold_us: float) -> float | None:
    """Seconds up to the end of the first fast call; None if none was fast.

    Results are compared between the first calls, so all have cold caches: the fastest may take a few times
    the median of the timed calls, and ``cold_us`` more. A call is fast if it is about as fast as that one.
    """
    best = min(seconds)
    if best > (COLD * median_us + cold_us) / 1e6:
        return None
    limit = FAST * max(best, median_us / 1e6) + SLACK_US / 1e6
    for number, each in enumerate(seconds):
        if each <= limit:
            return sum(seconds[: number + 1])
    return None
