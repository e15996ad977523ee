"""Errors that are no bug of rote's, said in one line, with the exit status 2."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer

from ..base.errors import InternalError, MisuseError, RoteError

UNABLE = 2
"""Exit status of a command that could not do its work."""


@contextmanager
def told() -> Generator[None]:
    """Turn the errors that a user can do something about into a message and an exit status.

    Raises:
        typer.Exit: With the status 2, after the message was printed.
    """
    try:
        yield
    except InternalError:
        raise
    except RoteError as error:
        typer.echo(f"rote: {error}", err=True)
        raise typer.Exit(UNABLE) from error


def check_places(*paths: Path | None) -> None:
    """Whether there is a folder for each file, before minutes are spent.

    Args:
        *paths: Files to be written; None for one that is not.

    Raises:
        MisuseError: There is no such folder.
    """
    for path in paths:
        if path is not None and not path.resolve().parent.is_dir():
            raise MisuseError(f"{path} cannot be written: there is no folder {path.parent}")
