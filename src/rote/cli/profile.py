"""``rote profile TARGET``: is it launch-bound, where does its time go, what can a graph gain?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from ..bench.profile import CALLS, Profile, profile_calls
from . import targets
from .output import HERE, check_places, told, write


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
        typer.echo(found.text(top))


def _measured(target: targets.CommandTarget, calls: int) -> Profile:
    given = target.function, target.args, target.kwargs
    with targets.calling(target):
        return profile_calls(*given, calls=calls, name=target.name, outside=target.site)
