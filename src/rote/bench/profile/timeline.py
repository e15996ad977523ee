"""One picture of a profile: when host and device work in one call, and which lines the time goes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...base import picture
from .costs import OperationCost

MOST_LINES = 8
"""Lines shown in the picture."""

_COLOURS = {"host": "tab:orange", "device": "tab:blue"}

Spans = dict[str, list[tuple[float, float]]]
"""Stretches of one call, ``(start, length)`` in microseconds, by row."""


def draw(path: str | Path, title: str, spans: Spans, costs: tuple[OperationCost, ...], on_host: bool) -> None:
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
