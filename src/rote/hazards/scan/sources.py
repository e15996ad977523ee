"""Source files below a path, and the findings in each."""

from __future__ import annotations

import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...base import MisuseError
from ..rules import Finding
from .module import scan_text

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})

NOTEBOOK = ".ipynb"
FROM_NOTEBOOK = "this is a notebook; make a Python file of it first: jupyter nbconvert --to script {}"


class Scanned(NamedTuple):
    """A file that was read, and what was found in it."""

    file: str
    text: str
    findings: list[Finding]


def scanned(paths: Iterable[Path], unread: Callable[[MisuseError], None] | None = None) -> Iterator[Scanned]:
    """Scan Python files, and those below folders.

    ``unread`` is called for each file that is not Python.

    Raises:
        MisuseError: There is no such path, or a file is not Python and ``unread`` is not given.
    """
    for file in python_files(paths):
        try:
            text = _text(file)
            found = scan_text(text, str(file))
        except MisuseError as error:
            if unread is None:
                raise
            unread(error)
        else:
            yield Scanned(str(file), text, found)


def _text(file: Path) -> str:
    """The text of a file, in the encoding that it declares."""
    if file.suffix == NOTEBOOK:
        raise MisuseError(f"{file}: {FROM_NOTEBOOK.format(file)}")
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except UnicodeDecodeError as error:
        raise MisuseError(f"{file}: this is not Python in UTF-8: {error}") from error
    except SyntaxError as error:  # of the declared encoding
        raise MisuseError(f"{file}: this is not Python in UTF-8: {error.msg}") from error


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files as they are given, and the Python files below folders, in order of their names.

    Folders in :data:`SKIPPED`, or with a dot before the name, are left out.

    Raises:
        MisuseError: There is no such path.
    """
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("*.py")):
                parts = file.relative_to(path).parts
                if not any(part in SKIPPED or part.startswith(".") for part in parts):
                    yield file
        elif path.exists():
            yield path
        else:
            raise MisuseError(f"{path}: there is no such file or folder")
