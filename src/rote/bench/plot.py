"""A benchmark as a picture: time per call, and time until calls are fast."""

from __future__ import annotations

from pathlib import Path

from ..base import picture
from .report import MEASURED, BenchReport
from .table import headline

OURS, OTHERS = "#c0392b", "#7f8c8d"


def draw(report: BenchReport, path: Path) -> None:
    """Draw a report as a PNG. On a CPU the unit is eager's median."""
    rows = [row for row in report.rows if row.status == MEASURED and row.median_us is not None][::-1]
    eager = report.row("eager")
    per_unit = 1e3 if report.on_gpu or eager is None or not eager.median_us else eager.median_us
    unit = "ms" if report.on_gpu else "medians of eager"
    figure = picture.figure(1.3 + 0.45 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    names = [row.title for row in rows]
    colours = [OURS if row.name == "rote" else OTHERS for row in rows]
    medians = [(row.median_us or 0) / per_unit for row in rows]
    tails = [((row.p99_us or 0) - (row.median_us or 0)) / per_unit for row in rows]
    bars = left.barh(names, medians, color=colours, xerr=[[0.0] * len(rows), tails], capsize=3)
    left.bar_label(bars, [f" {median:.3g}" for median in medians], fontsize=7, label_type="center")
    left.set_xlabel(f"{unit} per call: median, and p99", fontsize=8)
    left.set_xlim(left=0)
    firsts = [(row.first_fast_call_s or 0) * 1e6 / per_unit for row in rows]
    bars = right.barh(names, firsts, color=colours)
    right.bar_label(bars, [_first(first) for first in firsts], fontsize=7)
    if any(firsts):
        right.set_xscale("log")
        right.set_xlim(min(filter(None, firsts)) / 3, max(firsts) * 3)
        right.xaxis.set_minor_formatter("")  # below a decade all ticks would have labels, one on the other
    right.set_xlabel(f"{unit} until a call was fast (logarithmic)", fontsize=8)
    for axis in (left, right):
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(headline(report), fontsize=8)
    figure.savefig(str(path), dpi=120)


def _first(time: float) -> str:
    if not time:
        return " never"
    return f" {time:,.0f}" if time >= 100 else f" {time:.3g}"
