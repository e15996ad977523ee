"""A profile, as numbers, text, JSON and one picture."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...base import picture
from .costs import OperationCost

MOST_LINES = 8
"""Lines shown in the picture."""

_COLOURS = {"host": "tab:orange", "device": "tab:blue"}

Spans = dict[str, list[tuple[float, float]]]
"""Stretches of one call, ``(start, length)`` in microseconds, by row."""


def _draw(
    path: str | Path, title: str, spans: Spans, costs: tuple[OperationCost, ...], on_host: bool
) -> None:
    """Draw a profile as a PNG; the costs are of lines, the most expensive first."""
    figure = picture.figure(6)
    above, below = figure.subplots(2, 1, height_ratios=(1, 2))
    _draw_call(above, spans)
    _draw_lines(below, costs[:MOST_LINES], on_host)
    figure.suptitle(title, fontsize=9)
    figure.savefig(str(path), dpi=110)


def _draw_call(axis: Any, spans: Spans) -> None:
    rows = [row for row in spans if spans[row]]
    for height, row in enumerate(reversed(rows)):
        bars = [(start / 1e3, length / 1e3) for start, length in spans[row]]
        axis.broken_barh(bars, (height - 0.35, 0.7), facecolor=_COLOURS[row], linewidth=0)
    axis.set_yticks(range(len(rows)), labels=rows[::-1])
    axis.set_xlim(left=0)
    axis.set_xlabel("ms, one call under the profiler", fontsize=8)
    axis.tick_params(labelsize=8)


def _draw_lines(axis: Any, costs: tuple[OperationCost, ...], on_host: bool) -> None:
    places = range(len(costs))
    names = [f"{cost.name}\n{cost.line(50)}" for cost in costs]
    axis.barh([at - 0.2 for at in places], [cost.host_us / 1e3 for cost in costs], 0.4, color="tab:orange")
    axis.barh([at + 0.2 for at in places], [cost.busy_us / 1e3 for cost in costs], 0.4, color="tab:blue")
    axis.legend(["host", "inside the operations" if on_host else "device"], fontsize=7, loc="lower right")
    axis.set_yticks(list(places), labels=names, parse_math=False)  # a source line may hold dollar signs
    axis.set_xlabel("ms per call", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.invert_yaxis()


LAUNCH_BOUND = 0.5
"""A call is launch-bound if the device is idle for this share of it."""

PARTLY = 0.15
"""A graph is worth trying from this share on."""


@dataclass(frozen=True)
class Profile:
    """The cost of one call of a plain callable, before anything is recorded. All times are per call.

    Attributes:
        name: The callable's name.
        backend: ``cuda`` or ``host``: where a recording of it would live.
        device: The GPU's name, or ``cpu``.
        calls_timed: Plain calls behind the medians.
        calls_made: Calls of the callable in all.
        total_us: Time until the device is done too, the median.
        p99_us: The same, the 99th percentile; of fewer than 100 calls the slowest.
        host_us: Time until the call returned, the median.
        busy_us: Time in which the device works: the least that a graph of the same operations takes. On the
            host, time inside the operations without views, which a recording leaves out; the profiler adds
            about 0.2 us to each operation.
        synchronized_us: Time in which the host waits for the device before the call returns.
        synchronizations: Number of these waits.
        operations: Operations below autograd, views included.
        kernels: Kernels, copies and fills on the device; 0 on the host.
        by_operation: The operations, the most expensive first.
        by_line: The user's lines, the most expensive first.
        spans: Stretches of one call, ``(start, length)`` in microseconds from its beginning, by row:
            ``host`` (operations on the host) and ``device``.
    """

    name: str
    backend: str
    device: str
    calls_timed: int
    calls_made: int
    total_us: float
    p99_us: float
    host_us: float
    busy_us: float
    synchronized_us: float
    synchronizations: int
    operations: int
    kernels: int
    by_operation: tuple[OperationCost, ...]
    by_line: tuple[OperationCost, ...]
    spans: dict[str, list[tuple[float, float]]] = field(repr=False)
    _events: bytes = field(repr=False)

    @property
    def idle_share(self) -> float:
        """Share of the call in which the device is idle; on the host, time outside the operations."""
        return 1 - self.busy_us / self.total_us if self.total_us else 0.0

    @property
    def gain(self) -> float:
        """How many times as fast a graph can be at best, without a gap between the operations."""
        return self.total_us / self.busy_us if self.busy_us else 1.0

    @property
    def launch_bound(self) -> bool:
        """Whether the device is idle for at least half of the call."""
        return self.busy_us > 0 and self.idle_share >= LAUNCH_BOUND

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        if not self.busy_us:
            what = "tensor operations but views" if self.operations else "tensor operations"
            return f"{self.name} runs no {what} in its own thread: there is nothing to record."
        on_host = self.backend == "host"
        who = "Python and dispatch between the operations take" if on_host else "the device is idle for"
        facts = f"{who} {self.idle_share:.0%} of a call; a graph can gain {_times(self.gain)} at best"
        if self.launch_bound:
            return f"Launch-bound: {facts}."
        if self.idle_share >= PARTLY:
            return f"Partly launch-bound: {facts}."
        where = "inside the operations" if on_host else "on the device"
        return f"Not launch-bound: {1 - self.idle_share:.0%} of a call is work {where}; {facts}."

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and values, without the spans: :meth:`save_trace` has them in full."""
        found = {key: value for key, value in asdict(self).items() if key not in ("spans", "_events")}
        derived = ("idle_share", "gain", "launch_bound", "verdict")
        return found | {name: getattr(self, name) for name in derived}

    def to_json(self, *, indent: int | None = 2) -> str:
        """The profile as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def save_plot(self, path: str | Path) -> None:
        """Draw when host and device work in one call, and which lines the time goes to, as a PNG.

        Args:
            path: Of the picture.

        Raises:
            EnvironmentError_: matplotlib is not installed.
        """
        title = f"{self.name} on {self.device}\n{self.verdict}"
        _draw(path, title, self.spans, self.by_line, self.backend == "host")

    def save_trace(self, path: str | Path) -> None:
        """Write the calls as a Chrome trace, for Perfetto (ui.perfetto.dev) or ``chrome://tracing``.

        It holds the plain calls (``rote::call``) and, after them, calls in which each operation lies in a
        range named after the user's line.

        Args:
            path: Of the file; compressed if it ends in ``.gz``.
        """
        Path(path).write_bytes(self._events if str(path).endswith(".gz") else gzip.decompress(self._events))

    def __str__(self) -> str:
        rows = "\n".join(f"{name:<34}{value:>14}" for name, value in self.summary())
        parts = [f"{self.name} on {self.device}", rows, self.verdict]
        for title, costs in (("operation", self.by_operation), ("line", self.by_line)):
            head = f"{title:<44}{'operations':>11}{'kernels':>9}{'busy us':>11}{'host us':>11}"
            lines = [
                f"{cost.name[-43:]:<44}{cost.operations:>11}{cost.kernels:>9}{cost.busy_us:>11.1f}{cost.host_us:>11.1f}"
                for cost in costs[:10]
            ]
            parts.append("\n".join([head, *lines]))
        return "\n\n".join(parts)

    def summary(self) -> list[tuple[str, str]]:
        """The figures of the whole call, as names and texts."""
        on_host = self.backend == "host"
        tail = "99th percentile" if self.calls_timed >= 100 else f"slowest of {self.calls_timed}"
        rows = [
            ("per call, median", _time(self.total_us)),
            (f"per call, {tail}", _time(self.p99_us)),
            ("host time until it returns", _time(self.host_us)),
            ("inside the operations" if on_host else "device time", _time(self.busy_us)),
            ("between the operations" if on_host else "device idle", f"{self.idle_share:.0%}"),
            ("operations", f"{self.operations:,}"),
        ]
        if not on_host:
            waits = f"{self.synchronizations} x, {_time(self.synchronized_us)}"
            rows += [("kernels, copies and fills", f"{self.kernels:,}"), ("host waits for the device", waits)]
        return [*rows, ("a graph's gain at best", _times(self.gain))]


def _times(factor: float) -> str:
    return f"{factor:,.0f}x" if factor >= 10 else f"{factor:.2f}x"


def _time(us: float) -> str:
    return f"{us / 1e3:,.2f} ms" if us >= 1e4 else f"{us:,.1f} us"
