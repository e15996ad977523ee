"""The report as one page of HTML, which needs nothing else: no script, no network.

A policy in the page forbids everything but the style that stands in it, by its hash. So a text that came
through unescaped could still do nothing.
"""

from __future__ import annotations

import base64
import hashlib
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..base import EnvironmentError_, __version__
from .masking import hidden, masked
from .report import ReasonReport, Report
from .steps import CallReport, NodeReport
from .text import explain_tier
from .trace import durations

NO_JINJA = "a page needs jinja2: pip install 'rote[report]'"

MOST_BARS, MOST_ROWS = 2_000, 40
"""Bars of a timeline, and rows of a table, that a page shows."""

AROUND = 2
"""Lines of source shown before and behind the line of a reason."""


@dataclass(frozen=True)
class Bar:
    """A stretch of the timeline, in thousandths of its width."""

    kind: str
    left: float
    width: float
    label: str


@dataclass(frozen=True)
class CostRow:
    """What operations of one module or line cost together."""

    name: str
    text: str
    operations: int
    nbytes: int
    us: float | None
    share: float


def page_of(report: Report, call: CallReport | None = None) -> str:
    """The page.

    Raises:
        EnvironmentError_: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise EnvironmentError_(NO_JINJA) from error
    report = hidden(report)
    call = hidden(call) if call is not None else None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(mb=_megabytes, us=_microseconds, count="{:,}".format, percent=_percent)
    style = _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.from_string(_asset("page.html")).render(
        report=report,
        call=call,
        durations=durations(call) if call is not None and call.steps else "",
        bars=_bars(call) if call is not None else [],
        modules=costs(call.nodes, by="module") if call is not None else [],
        lines=costs(call.nodes, by="where") if call is not None else [],
        codes=[_source(each) for each in report.reasons],
        most_bytes=max([each.bytes_held for each in report.recordings], default=0) or 1,
        told=explain_tier,
        times=_times(call) if call is not None and call.us is not None else {},
        most_rows=MOST_ROWS,
        style=style,
        digest=digest,
        version=__version__,
    )


def _times(call: CallReport) -> dict[str, float]:
    """What was measured of each line."""
    found: dict[str, float] = {}
    for node in call.nodes:
        found[node.where] = found.get(node.where, 0.0) + (node.us or 0.0)
    return found


@cache
def _asset(name: str) -> str:
    return files(__package__ or "").joinpath(name).read_text("utf-8")


# ------------------------------------------------------------------ the timeline


def _bars(call: CallReport) -> list[Bar]:
    """The nodes of a call side by side, as wide as they take; by bytes where nothing was measured."""
    weights = [(step.kind, node, _weight(call, node)) for step in call.steps for node in step.nodes]
    whole = sum([weight for _, _, weight in weights]) or 1.0
    found, left = list[Bar](), 0.0
    for kind, node, weight in weights:
        width = 1000 * weight / whole
        label = (
            f"{node.operator} {node.where} {_microseconds(node.us) if node.us is not None else ''}".strip()
        )
        if len(weights) <= MOST_BARS or width >= 1000 / MOST_BARS:
            found.append(Bar(f"{kind} {node.tier}".replace("host read", "read"), left, width, label))
        left += width
    return found


def _weight(call: CallReport, node: NodeReport) -> float:
    return (node.us or 0.0) if call.us is not None else 1.0 + node.nbytes


def costs(nodes: Sequence[NodeReport], by: str) -> list[CostRow]:
    """The cost by ``module`` or by line (``where``), the highest first."""
    groups: dict[str, list[NodeReport]] = {}
    for node in nodes:
        groups.setdefault(getattr(node, by), []).append(node)
    timed = any([node.us is not None for node in nodes])
    whole = sum([_cost(node, timed=timed) for node in nodes]) or 1.0
    rows = [
        CostRow(
            name=name,
            text=group[0].text if by == "where" else "",
            operations=len(group),
            nbytes=sum([node.nbytes for node in group]),
            us=sum([node.us or 0.0 for node in group]) if timed else None,
            share=sum([_cost(node, timed=timed) for node in group]) / whole,
        )
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: -row.share)[:MOST_ROWS]


def _cost(node: NodeReport, *, timed: bool) -> float:
    return (node.us or 0.0) if timed else float(node.nbytes)


# ------------------------------------------------------------------ code beside reasons


def _source(reason: ReasonReport) -> list[tuple[int, str, bool]]:
    """The lines around that of a reason: number, text, and whether it is the line itself."""
    file, _, line = reason.where.rpartition(":")
    if not line.isdigit():
        return []
    numbers = range(max(1, int(line) - AROUND), int(line) + AROUND + 1)
    found = [
        (number, linecache.getline(file, number).rstrip("\n"), number == int(line)) for number in numbers
    ]
    return [(number, masked(text), own) for number, text, own in found if text or own]


# ------------------------------------------------------------------ numbers


def _megabytes(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.1f} MB" if nbytes >= 1e5 else f"{nbytes / 1e3:,.1f} kB"


def _microseconds(us: float) -> str:
    return f"{us / 1e3:,.2f} ms" if us >= 1e3 else f"{us:,.1f} us"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
