"""What a command writes: files, pictures, tables, and errors that a user can mend."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from ..base import NO_MATPLOTLIB, EnvironmentError_, InternalError, MisuseError, RoteError

HERE = Path("-")
"""In the place of a file: standard output, which then has nothing else in it."""

UNABLE = 2
"""Exit status of a command that could not do its work."""

PIPED_WIDTH = 160
"""Columns of a table where standard output is no terminal."""


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


def terminal(**options: Any) -> Console:
    """Standard output; where it is no terminal, wide enough for a table."""
    console = Console(**options)
    return console if console.is_terminal else Console(width=PIPED_WIDTH, **options)


def progress() -> Progress:
    """A progress bar on standard error, where that is a terminal."""
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def write(text: str, place: Path | None) -> None:
    """Write a text to a file, or to standard output; nothing without a place."""
    if place == HERE:
        typer.echo(text)
    elif place is not None:
        place.write_text(text + "\n", encoding="utf-8")


def check_places(*paths: Path | None, picture: Path | None = None) -> None:
    """Check that files, and a picture, can be written, before minutes are spent.

    Raises:
        MisuseError: There is no such folder, it cannot be written, a folder has that name, or a picture is no
            PNG by its name.
        EnvironmentError_: matplotlib is not installed.
    """
    for path in (*paths, picture):
        if path is None or path == HERE:
            continue
        if not path.resolve().parent.is_dir():
            raise MisuseError(f"{path} cannot be written: there is no folder {path.parent}")
        if path.is_dir():
            raise MisuseError(f"{path} cannot be written: it is a folder")
        if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
            raise MisuseError(f"{path} cannot be written: there is no permission")
    if picture is not None:
        if picture.suffix.lower() != ".png":
            raise MisuseError(f"{picture} cannot be written: pictures are PNG files, as {picture.stem}.png")
        check_installed("matplotlib", NO_MATPLOTLIB)


def check_installed(package: str, otherwise: str) -> None:
    """Raise an EnvironmentError_ with the text ``otherwise`` if a package is missing."""
    if find_spec(package) is None:
        raise EnvironmentError_(otherwise)
