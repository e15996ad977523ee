"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from ..base import __version__
from .bench import bench
from .check import check
from .explain import explain
from .plans import plans
from .profile import profile
from .quantize import quantize
from .report import report
from .serve import serve

app = typer.Typer(
    name="rote",
    help="Record a PyTorch callable once, and replay it from CUDA graphs.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Say the version and end.")
    ] = False,
) -> None:
    """Record a PyTorch callable once, and replay it from CUDA graphs."""


app.command()(quantize)
app.command()(bench)
app.command()(profile)
app.command()(report)
app.command()(check)
app.command()(explain)
app.command()(serve)
app.add_typer(plans, name="plans")
