"""One call in Chrome's Trace Event Format, which Perfetto (ui.perfetto.dev) and ``chrome://tracing`` open.

Steps and nodes lie one behind the other, without the gaps between them: a clock stops between two steps, and
nobody sees where in a segment its nodes begin. ``otherData`` says what the durations are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from .masking import hidden
from .steps import CallReport, StepReport

PROCESS = 7683
"""The number of the process that rows belong to; that of the profiler's trace is another."""

CALLS, STEPS, NODES = 1, 2, 3
"""The rows."""

_ROWS = {CALLS: "call", STEPS: "segments, islands, host reads", NODES: "operations"}


def trace_events(call: CallReport, replay_us: float | None = None) -> dict[str, Any]:
    """The trace of a call.

    Args:
        replay_us: Microseconds of a replay, for a call that was not measured; None if that is not known.
    """
    lengths = _lengths(call, replay_us)
    return {
        "traceEvents": [*_names(call), *_spans(call, lengths)],
        "displayTimeUnit": "ms",
        "otherData": {"by": "rote", "call": call.name, "durations": durations(call, replay_us)},
    }


def save_trace(path: str | PathLike[str], call: CallReport, replay_us: float | None = None) -> None:
    """Write the trace of a call; compressed if the name ends in ``.gz``."""
    content = json.dumps(trace_events(hidden(call), replay_us)).encode()
    Path(path).write_bytes(gzip.compress(content) if str(path).endswith(".gz") else content)


def durations(call: CallReport, replay_us: float | None = None) -> str:
    """What the times of a call are."""
    if not call.steps:
        return "one call, which was not replayed"
    if call.us is None:
        if replay_us is None:
            return "nothing was measured: each operation stands for one microsecond"
        return "nothing was measured in this call: a median replay, divided by the bytes of the operations"
    if any([node.shared for node in call.nodes]):
        return (
            "one call: each segment, island and host read was measured on the device; the time of a segment "
            "is divided by the bytes of its operations"
        )
    return "one call: each operation was measured by the host's clock, with some 0.2 us for the clock itself"


def _lengths(call: CallReport, replay_us: float | None) -> list[list[float]]:
    """Microseconds of each node, by step."""
    if call.us is not None:
        return [[node.us or 0.0 for node in step.nodes] for step in call.steps]
    if replay_us is None:
        return [[1.0 for _ in step.nodes] for step in call.steps]
    whole = sum([1 + node.nbytes for node in call.nodes]) or 1
    return [[replay_us * (1 + node.nbytes) / whole for node in step.nodes] for step in call.steps]


def _names(call: CallReport) -> Iterator[dict[str, Any]]:
    named = {"process_name": (0, f"rote: {call.name} on {call.device}")}
    for row, name in _ROWS.items():
        named[f"thread_name {row}"] = (row, name)
    for key, (row, name) in named.items():
        yield {
            "ph": "M", "pid": PROCESS, "tid": row, "name": key.partition(" ")[0], "args": {"name": name},
        }  # fmt: skip


def _spans(call: CallReport, lengths: list[list[float]]) -> Iterator[dict[str, Any]]:
    now = 0.0
    for number, (step, nodes) in enumerate(zip(call.steps, lengths, strict=True)):
        began, whole = now, max(sum(nodes), step.us or 0.0)
        for node, length in zip(step.nodes, nodes, strict=True):
            facts = {
                "module": node.module, "line": node.where, "code": node.text, "tier": node.tier,
                "bytes": node.nbytes, "step": number, "share": node.shared,
            }  # fmt: skip
            yield _span(NODES, node.operator, step.kind, now, length, facts)
            now += length
        yield _span(STEPS, _told(step), step.kind, began, whole, {"step": number, "nodes": len(nodes)})
        now = began + whole
    whole = max(now, call.us or 0.0)
    yield _span(CALLS, call.name, "call", 0.0, whole, {"key": call.key, "device": call.device})


def _told(step: StepReport) -> str:
    """What a step is called."""
    alone = step.nodes[0].operator if len(step.nodes) == 1 else f"{len(step.nodes)} operations"
    return f"{step.kind}: {alone}"


def _span(
    row: int, name: str, kind: str, start: float, length: float, facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "pid": PROCESS, "tid": row, "name": name, "cat": f"rote {kind}",
        "ts": round(start, 3), "dur": round(length, 3), "args": facts,
    }  # fmt: skip
