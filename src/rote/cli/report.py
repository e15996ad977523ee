"""``rote report TARGET``: call it graphed, and write what became of it as a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from ..api import Graphed, graph
from ..base import read_settings
from ..inspect import NO_JINJA
from . import targets
from .output import HERE, check_installed, check_places, progress, told, write

CALLS, MOST_WAITED = 200, 2_000
"""Calls: enough for the first rounds of the contest and for the first tier; at most so many with --wait."""


def report(
    target: targets.Target,
    arg: targets.Arg = None,
    calls: Annotated[int, typer.Option(help="calls to make", min=1)] = CALLS,
    html: Annotated[Path, typer.Option(help="write the page here")] = Path("report.html"),
    trace: Annotated[
        Path | None, typer.Option(help="write a trace for Perfetto here (.json, .json.gz)")
    ] = None,
    wait: Annotated[
        float, typer.Option(help="seconds to wait for each round of compilers, and to go on calling", min=0)
    ] = 0.0,
    json: Annotated[Path | None, typer.Option(help="write the report here; - for the terminal")] = None,
) -> None:
    """Graph a callable, call it, and write its report as one page of HTML.

    TARGET names a function that returns a callable and its arguments: fn, (fn, args) or (fn, args, kwargs).
    The callable is really called, with the same arguments, --calls and once or twice more. What it prints
    goes to standard error. With --wait it is called until it becomes no faster, at most 2,000 times more.
    Under torchrun each rank writes files of its own, and the first one says what all have done.
    """
    rank = read_settings().rank
    if rank is not None:
        html, trace, json = (
            _of_rank(html, rank),
            trace and _of_rank(trace, rank),
            json and _of_rank(json, rank),
        )
    with told(), redirect_stdout(sys.stderr):
        check_places(html, trace, json)
        check_installed("jinja2", NO_JINJA)
        given = targets.load(target, arg or ())
        found = _called(given, calls, wait)
        if trace is not None:
            found.trace(trace, given.args, given.kwargs)
        found.save_report(html, given.args, given.kwargs)
        text = found.explain_ranks()
    write(found.report().to_json(), json)
    if json != HERE:
        if not rank:
            typer.echo(text)
        typer.echo(f"written: {', '.join([str(path) for path in (html, trace, json) if path is not None])}")


def _of_rank(path: Path, rank: int) -> Path:
    """Where a rank writes what one process alone writes there."""
    name, dot, ends = path.name.partition(".")
    return path if path == HERE else path.with_name(f"{name}-rank{rank}{dot}{ends}")


def _called(target: targets.CommandTarget, calls: int, wait: float) -> Graphed:
    """The graphed callable, once it was called."""
    graphed = graph(target.function)
    with targets.calling(target), progress() as bar:
        for _ in bar.track(range(calls), description="calling"):
            graphed(*target.args, **target.kwargs)
        for _ in bar.track(range(MOST_WAITED if wait else 0), description="optimizing"):
            if graphed.wait_until_optimized(wait):
                break
            graphed(*target.args, **target.kwargs)
    return graphed
