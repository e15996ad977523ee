"""``rote profile TARGET``: is it launch-bound, where does its time go, what can a graph gain?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..bench.profile import CALLS, OperationCost, Profile, profile_calls
from . import targets
from .output import HERE, check_places, terminal, told, write

LONGEST = 36
"""Characters of a source line that are shown."""


def profile(
    target: targets.Target,
    arg: targets.Arg = None,
    calls: Annotated[int, typer.Option(help="plain calls to time", min=1)] = CALLS,
    top: Annotated[int, typer.Option(help="operations and lines to show", min=0)] = 10,
    json: Annotated[Path | None, typer.Option(help="write the figures here; - for the terminal")] = None,
    plot: Annotated[Path | None, typer.Option(help="write a picture (PNG) here")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="write a trace for Perfetto here (.json, .json.gz)")
    ] = None,
) -> None:
    """Measure what a call costs before anything is recorded, and what a graph can gain.

    TARGET names a function that returns a callable and its arguments: fn, (fn, args) or (fn, args, kwargs).
    The callable is really called, --calls and 7 times more (on a CPU up to 25). What it prints goes to
    standard error.
    """
    with told(), redirect_stdout(sys.stderr):
        check_places(json, trace, picture=plot)
        found = _measured(targets.load(target, arg or ()), calls)
        if plot is not None:
            found.save_plot(plot)
        if trace is not None:
            found.save_trace(trace)
    write(found.to_json(), json)
    if json != HERE:
        _show(found, top)


def _measured(target: targets.CommandTarget, calls: int) -> Profile:
    given = target.function, target.args, target.kwargs
    with targets.calling(target):
        return profile_calls(*given, calls=calls, name=target.name, outside=target.site)


def _show(found: Profile, top: int) -> None:
    console = terminal()
    console.print(Text.assemble((found.name, "bold"), f" on {found.device}, {found.calls_made} calls"))
    summary = Table(show_header=False, box=None, padding=(0, 2))
    summary.add_column()
    summary.add_column(justify="right")
    for name, value in found.summary():
        summary.add_row(name, value)
    console.print(summary)
    if top:
        console.print(_table("operation", found.by_operation[:top], found))
        console.print(_table("line", found.by_line[:top], found))
    console.print(found.verdict, style="bold", highlight=False)


def _table(title: str, costs: tuple[OperationCost, ...], found: Profile) -> Table:
    on_host = found.backend == "host"
    table = Table(padding=(0, 1))
    table.add_column(title, overflow="fold")
    kernels = () if on_host else ("kernels",)
    for number in ("operations", *kernels, "inside, us" if on_host else "device, us", "host, us"):
        table.add_column(number, justify="right", no_wrap=True)
    for cost in costs:
        name = Text.assemble(cost.name, *([("\n  " + cost.line(LONGEST), "dim")] if cost.text else []))
        counts = [f"{cost.operations:,}", *([] if on_host else [f"{cost.kernels:,}"])]
        table.add_row(name, *counts, f"{cost.busy_us:,.1f}", f"{cost.host_us:,.1f}")
    return table
