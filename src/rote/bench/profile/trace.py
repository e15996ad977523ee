"""Reads the Chrome trace that ``torch.profiler`` writes: operations on the host, work on the device.

The format is public and the same in every version. Read are complete events (``"ph": "X"``) with a category,
microseconds on one clock, and ``External id``, the number of the operation that launched a piece of device
work. Where that is missing, ``correlation``, the number of the launch, leads to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .mode import MARK

CALL = "rote::call"
"""The range of one call."""

DONE = "rote::done"
"""The range in which the device is waited for after a call."""

MARKED = "rote::marked call"
"""The range of one call under :class:`.mode.AskingMode`."""

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver"})
_WAITS = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "CtxSynchronize")


@dataclass(frozen=True)
class TraceSpan:
    """A stretch of time, in microseconds on the trace's clock.

    Attributes:
        id: Number of the operation or range; of device work, of the operation that launched it.
        thread: The thread, or the device and stream.
    """

    name: str
    start: float
    end: float
    id: int = 0
    thread: str = ""

    @property
    def length(self) -> float:
        """Microseconds."""
        return self.end - self.start


@dataclass
class ProfilerTrace:
    """The spans of a trace, each list in order of time.

    Attributes:
        operations: Operations on the host, nested ones too.
        ranges: Ranges named by the program or by rote.
        device: Kernels, copies and fills.
        waits: Runtime calls in which the host waits for the device.
    """

    operations: list[TraceSpan] = field(default_factory=list["TraceSpan"])
    ranges: list[TraceSpan] = field(default_factory=list["TraceSpan"])
    device: list[TraceSpan] = field(default_factory=list["TraceSpan"])
    waits: list[TraceSpan] = field(default_factory=list["TraceSpan"])

    def named(self, name: str) -> list[TraceSpan]:
        """The ranges of a name."""
        return [span for span in self.ranges if span.name == name]

    def window(self, start: float, end: float) -> ProfilerTrace:
        """The spans that began in a stretch of time."""
        return ProfilerTrace(
            *([span for span in spans if start <= span.start <= end] for spans in vars(self).values())
        )

    def owners(self) -> dict[int, int]:
        """For each operation's number, the number of the marked operation around it."""
        marks = [span for span in self.ranges if span.name.startswith(MARK)]
        found: dict[int, int] = {}
        by_thread: dict[str, list[TraceSpan]] = {}
        for mark in marks:
            by_thread.setdefault(mark.thread, []).append(mark)
            found[mark.id] = int(mark.name.removeprefix(MARK))
        starts = {thread: [mark.start for mark in inside] for thread, inside in by_thread.items()}
        for span in self.operations:
            at = bisect_right(starts.get(span.thread, []), span.start) - 1
            if at >= 0 and span.start <= (mark := by_thread[span.thread][at]).end:
                found[span.id] = int(mark.name.removeprefix(MARK))
        return found


def read(events: Iterable[dict[str, Any]]) -> ProfilerTrace:
    """Sort a trace's ``traceEvents``."""
    trace, launched = ProfilerTrace(), dict[int, int]()
    complete = [event for event in events if event.get("ph") == "X"]
    for event in complete:
        about = event.get("args", {})
        if event.get("cat") in _RUNTIME and "correlation" in about:
            launched[about["correlation"]] = int(about.get("External id", 0))
    for event in complete:
        category, name = event.get("cat", ""), event["name"]
        if category == "cpu_op":
            trace.operations.append(_span(event))
        elif category == "user_annotation":
            trace.ranges.append(_span(event))
        elif category in _DEVICE:
            span, launch = _span(event), event.get("args", {}).get("correlation")
            trace.device.append(span if span.id else replace(span, id=launched.get(launch, 0)))
        elif category in _RUNTIME and any(word in name for word in _WAITS):
            trace.waits.append(_span(event))
    for spans in vars(trace).values():
        spans.sort(key=lambda span: (span.start, -span.end))
    return trace


def outermost(spans: list[TraceSpan]) -> list[TraceSpan]:
    """The spans that lie in no other span of their thread."""
    found: list[TraceSpan] = []
    ends: dict[str, float] = {}
    for span in spans:
        if span.start >= ends.get(span.thread, float("-inf")):
            found.append(span)
            ends[span.thread] = span.end
    return found


def covered(spans: list[TraceSpan]) -> float:
    """Microseconds in which at least one of the spans was under way."""
    total, reached = 0.0, float("-inf")
    for span in spans:
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total


def _span(event: dict[str, Any]) -> TraceSpan:
    start, about = float(event["ts"]), event.get("args", {})
    thread = f"{event.get('pid')}/{event.get('tid')}"
    return TraceSpan(
        event["name"], start, start + float(event.get("dur", 0)), int(about.get("External id", 0)), thread
    )
