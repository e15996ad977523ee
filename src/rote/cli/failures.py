"""Errors that a user can mend, in one line, with the exit status 2."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

from ..base import InternalError, RoteError

UNABLE = 2
"""Exit status of a command that could not do its work."""


@contextmanager
def told() -> Generator[None]:
    """Print errors that a user can mend, and exit with the status 2; bugs of rote keep their traceback."""
    try:
        yield
    except InternalError:
        raise
    except RoteError as error:
        typer.echo(f"rote: {error}", err=True)
        raise typer.Exit(UNABLE) from error
