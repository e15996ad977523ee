"""Errors that are no bug of rote's, said in one line, with the exit status 2."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import typer

from ..base import NO_MATPLOTLIB, EnvironmentError_, InternalError, MisuseError, RoteError

UNABLE = 2
"""Exit status of a command that could not do its work."""

HERE = Path("-")
"""In the place of a file: standard output, which then has nothing else in it."""


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


def check_places(*paths: Path | None, picture: Path | None = None) -> None:
    """Whether files, and a picture, can be written where they are asked for, before minutes are spent.

    Raises:
        MisuseError: There is no such folder, a folder has that name, or a picture is no PNG by its name.
        EnvironmentError_: matplotlib is not installed.
    """
    for path in (*paths, picture):
        if path is not None and not path.resolve().parent.is_dir():
            raise MisuseError(f"{path} cannot be written: there is no folder {path.parent}")
        if path is not None and path.is_dir():
            raise MisuseError(f"{path} cannot be written: it is a folder")
    if picture is not None:
        if picture.suffix.lower() != ".png":
            raise MisuseError(f"{picture} cannot be written: pictures are PNG files, as {picture.stem}.png")
        if find_spec("matplotlib") is None:
            raise EnvironmentError_(NO_MATPLOTLIB)
