"""``rote report TARGET``: call it graphed, and write what became of it as a page."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from ..api import Graphed, graph
from ..base import MisuseError, RoteError
from ..inspect import NO_JINJA
from . import targets
from .output import HERE, check_installed, check_places, told, write

CALLS = 200
"""Calls that are made: enough for the first rounds of the contest, and for the first tier."""


def report(
    target: targets.Target,
    arg: targets.Arg = None,
    calls: Annotated[int, typer.Option(help="calls to make", min=1)] = CALLS,
    html: Annotated[Path, typer.Option(help="write the page here")] = Path("report.html"),
    trace: Annotated[
        Path | None, typer.Option(help="write a trace for Perfetto here (.json, .json.gz)")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="write the report here; - for the terminal")] = None,
) -> None:
    """Graph a callable, call it, and write its report as one page of HTML.

    TARGET names a function that returns a callable and its arguments: fn, (fn, args) or (fn, args, kwargs).
    The callable is really called, with the same arguments, --calls and once or twice more. What it prints
    goes to standard error.
    """
    with told(), redirect_stdout(sys.stderr):
        check_places(html, trace, json)
        check_installed("jinja2", NO_JINJA)
        found = _called(targets.load(target, arg or ()), calls, html, trace)
    write(found.report().to_json(), json)
    if json != HERE:
        typer.echo(found.explain())
        typer.echo(f"written: {', '.join([str(path) for path in (html, trace, json) if path is not None])}")


def _called(target: targets.CommandTarget, calls: int, html: Path, trace: Path | None) -> Graphed:
    args, kwargs = target.args, target.kwargs
    try:
        graphed = graph(target.function)
        for _ in range(calls):
            graphed(*args, **kwargs)
        if trace is not None:
            graphed.trace(trace, args, kwargs)
        graphed.save_report(html, args, kwargs)
    except RoteError:
        raise
    except (Exception, SystemExit) as error:
        raise MisuseError(f"the callable of {target.name} raised {targets.said(error)}") from error
    return graphed
