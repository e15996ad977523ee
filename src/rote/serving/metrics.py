"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from ..api import Report

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class RequestOutcome(Enum):
    """What became of a request."""

    ANSWERED = "answered"
    FAILED = "failed"  # the policy raised, or returned what cannot be sent
    REFUSED = "refused"  # over the bound
    TIMED_OUT = "timed_out"
    LEFT = "left"  # the client was gone
    MALFORMED = "malformed"


class Histogram:
    """How often what time was met."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        place = next((i for i, bound in enumerate(_BOUNDS_S) if seconds <= bound), len(_BOUNDS_S))
        self._counts[place] += 1
        self._sum_s += seconds

    def lines(self, name: str, text: str) -> Iterable[str]:
        """The lines of a metric."""
        yield from _head(name, text, "histogram")
        below = 0
        for bound, count in zip((*_BOUNDS_S, "+Inf"), self._counts, strict=True):
            below += count
            yield f'{name}_bucket{{le="{bound}"}} {below}'
        yield f"{name}_sum {self._sum_s:.9f}"
        yield f"{name}_count {below}"


class Metrics:
    """The counts of one server; they are kept on its event loop alone."""

    def __init__(self) -> None:
        self._outcomes: Counter[RequestOutcome] = Counter()
        self.waits = Histogram()
        self.inferences = Histogram()

    def count(self, outcome: RequestOutcome) -> None:
        """Count a request."""
        self._outcomes[outcome] += 1

    def text(self, gauges: Mapping[str, float], report: Report | None) -> str:
        """All metrics: those counted here, what is the case now, and what a report has."""
        name = "rote_serve_requests_total"
        lines = [*_head(name, "Requests by what became of them.", "counter")]
        lines += [
            f'{name}{{outcome="{outcome.value}"}} {self._outcomes[outcome]}' for outcome in RequestOutcome
        ]
        lines += self.waits.lines(
            "rote_serve_wait_seconds", "From a request to the beginning of its inference."
        )
        lines += self.inferences.lines("rote_serve_infer_seconds", "Inferences, results on the host.")
        for gauge, value in gauges.items():
            lines += _one(f"rote_serve_{gauge}", _GAUGES[gauge], "gauge", value)
        if report is not None:
            lines += _one("rote_calls_total", "Calls of the graphed callable.", "counter", report.calls)
            lines += _one("rote_replayed_total", "Those that were replayed.", "counter", report.replayed)
            lines += _one("rote_recordings", "Recordings it has.", "gauge", len(report.recordings))
            held = sum(recording.bytes_held for recording in report.recordings)
            lines += _one("rote_held_bytes", "Memory that they hold.", "gauge", held)
        return "\n".join([*lines, ""])


_GAUGES = {
    "clients": "Connected clients.",
    "waiting": "Requests that wait for an inference.",
    "busy_seconds": "For how long the inference that runs has been running; 0 if none does.",
}


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _one(name: str, text: str, kind: str, value: float) -> list[str]:
    return [*_head(name, text, kind), f"{name} {value:.10g}"]
