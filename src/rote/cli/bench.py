"""``rote bench``: a target in eager, in other ways of graphing it, and with rote, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

from ..base import MisuseError
from ..bench import Bench, BenchPlan, BenchReport
from ..bench import plot as bench_plot
from ..bench import table as bench_table
from ..bench.worker import EAGER, Contender
from .bench_worker import CONTENDERS
from .output import HERE, check_places, terminal, told, write
from .targets import Arg, Target

DIFFERS = 1
"""Exit status where rote's results are not eager's."""


def bench(
    target: Target,
    arg: Arg = None,
    only: Annotated[
        str | None, typer.Option(metavar="A,B", help=f"Of {', '.join(CONTENDERS)}; eager always runs.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="For the timed calls of all contenders together.")
    ] = 20.0,
    limit: Annotated[
        float, typer.Option(min=1, help="Seconds a contender has for its first calls, or for one turn.")
    ] = 300.0,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds a contender has until its calls become no faster.")
    ] = 60.0,
    cache: Annotated[
        bool, typer.Option("--cache", help="Let compilers use the caches on disk they find.")
    ] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="OUT.json", help="Write all figures; - for the terminal.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="OUT.png", help="Draw a picture.")] = None,
) -> None:
    """Measure a target eagerly, in other ways of graphing it, and with rote, side by side.

    Exit status: 0, 1 if rote's results are not eager's, 2 if nothing could be measured.
    """
    with told():
        arguments = tuple(arg or ())
        check_places(json_path, picture=plot)

        def command(name: str, folder: Path) -> list[str]:
            wanted = {"target": target, "arguments": arguments, "contender": name, "folder": str(folder)}
            return [sys.executable, "-m", "rote.cli.bench_worker", json.dumps(wanted)]

        plan = BenchPlan(target, arguments, _chosen(only), command, seconds, limit, settle, cold=not cache)
        with _progress() as say:
            report = Bench(plan, say).run()
        write(json.dumps(report.to_dict(), indent=2), json_path)
        if json_path != HERE:
            _show(report)
        if plot is not None:
            bench_plot.draw(report, plot)
    if report.rote_differs:
        raise typer.Exit(DIFFERS)


def _chosen(only: str | None) -> tuple[Contender, ...]:
    """The wanted contenders, in the order of the table, eager first."""
    usual = [each.name for each in CONTENDERS.values() if each.by_default]
    named = usual if only is None else filter(None, map(str.strip, only.split(",")))
    wanted = {EAGER.name, *named}
    unknown = sorted(wanted - CONTENDERS.keys())
    if unknown:
        raise MisuseError(f"--only {', '.join(unknown)}: there is {', '.join(CONTENDERS)}")
    return tuple(contender for name, contender in CONTENDERS.items() if name in wanted)


@contextmanager
def _progress() -> Generator[Any]:
    """Progress on the standard error stream: one line that changes, on a terminal only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with Status("", console=console) as status:
        yield lambda text: status.update(text)


def _show(report: BenchReport) -> None:
    console = terminal(highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for title in bench_table.columns(report):
        table.add_column(title, justify="right")
    for row in report.rows:
        found = bench_table.cells(report, row)
        table.add_row(row.name, *(found or [row.status]))
    console.print(bench_table.headline(report))
    console.print(table)
    for remark in bench_table.remarks(report):
        console.print(remark)
