"""A benchmark's figures as text: cells of a table, and the lines below it.

On a GPU times are absolute. On a CPU they are ratios to eager's median in the same run: on a shared machine
only those repeat.
"""

from __future__ import annotations

from ..runtime.memory import format_size
from .report import MEASURED, BenchReport, BenchRow
from .worker import EAGER

NONE = "-"
GPU_COLUMNS = (
    "first fast call", "settled", "median", "p99", "host", "launches", "graphs", "peak", "held", "copied",
    "results",
)  # fmt: skip
CPU_COLUMNS = ("first fast call", "settled", "median", "p99", "peak", "held", "results")


def columns(report: BenchReport) -> tuple[str, ...]:
    """Titles of the columns after the contender's name."""
    return GPU_COLUMNS if report.on_gpu else CPU_COLUMNS


def cells(report: BenchReport, row: BenchRow) -> list[str]:
    """One contender's figures, in the order of :func:`columns`; empty if it was not measured."""
    if row.status != MEASURED:
        return []
    eager = report.row("eager")
    unit = None if report.on_gpu or eager is None else eager.median_us
    since_first = [row.first_fast_call_s, row.settled_after_s]
    times = [None if each is None else each * 1e6 for each in since_first]
    found = [_time(value, unit) for value in (*times, row.median_us, row.p99_us)]
    if report.on_gpu:
        found += [_time(row.host_us, None), *(_count(row, what) for what in ("total", "graphs"))]
    found += [_size(row.peak_bytes), _size(row.held_bytes)]
    if report.on_gpu:
        found.append(_size(row.copied_bytes))
    return [*found, _results(row)]


def remarks(report: BenchReport) -> list[str]:
    """The lines below the table: why contenders failed, what differs, what holds for all."""
    lines = [f"{row.name}: {row.status}: {row.why}" for row in report.rows if row.status != MEASURED]
    for row in report.rows:
        if not row.settled:
            lines.append(f"{row.name}: its calls may become faster than they were when they were timed")
        if row.equality is not None and not row.equality["bitwise"]:
            lines.append(f"{row.name}: {row.equality['what']}")
        lines += [f"{row.name}: {note}" for note in row.notes]
    unseen = next((row.equality["unseen"] for row in report.rows if row.equality is not None), "")
    if unseen:
        lines.append(f"Only the type is compared of {unseen}.")
    if report.draws:
        lines.append("The target draws random numbers; those of compiled code are not eager's.")
    if report.repeats is not None and not report.repeats["bitwise"]:
        lines.append(f"Eager does not repeat itself either: {report.repeats['what']}")
    if not report.on_gpu:
        lines.append("Times are in medians of eager (on a CPU only ratios within one run are worth keeping).")
    return lines


def headline(report: BenchReport) -> str:
    """The target, the device and the versions."""
    known = report.versions
    names = ("torch", "cuda", "driver", "triton", "python")
    versions = ", ".join(f"{name} {known[name]}" for name in names if known.get(name))
    arguments = f" ({', '.join(report.arguments)})" if report.arguments else ""
    threads = "" if report.on_gpu else f", {report.threads} thread{'' if report.threads == 1 else 's'}"
    return f"{report.target}{arguments} on {report.device_name}{threads}, {versions}"


def _time(us: float | None, unit: float | None) -> str:
    """A time, or how many times the unit it is."""
    if us is None:
        return NONE
    if unit:
        return _ratio(us / unit)
    if us < 1e3:
        return f"{us:.1f} us"
    return f"{us / 1e3:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def _ratio(times: float) -> str:
    if times < 0.1:
        return f"{times:.2g} x"
    return f"{times:.2f} x" if times < 100 else f"{times:,.0f} x"


def _size(nbytes: float | None) -> str:
    if nbytes is None:
        return NONE
    return f"-{format_size(-int(nbytes))}" if nbytes < 0 else format_size(int(nbytes))


def _count(row: BenchRow, what: str) -> str:
    return NONE if row.launches is None else f"{row.launches[what]:g}"


def _results(row: BenchRow) -> str:
    if row.equality is None:
        return NONE
    if row.name == EAGER.name:
        return "reference"
    if not row.equality["calls"]:
        return "not compared"
    if row.equality["bitwise"]:
        return "equal as far as seen" if row.equality["unseen"] else "bitwise equal"
    largest = row.equality["largest"]
    return "differ" if largest is None else f"differ by {largest:.2g}"
