"""The source scan: what can be read from a program without running or importing it.

It reads single files with ``ast``, infers in each function which names are tensors, and reports what a
capture would meet, in branches that no call takes as well. It is made to be quiet: where it does not know
that a value is a tensor it says nothing. :data:`BLIND_SPOTS` says what it cannot see.
"""

from __future__ import annotations

import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import MisuseError
from ..finding import Finding
from .files import FROM_NOTEBOOK, NOTEBOOK, python_files
from .live import reached
from .module import scan_text

BLIND_SPOTS = (
    "functions of other files: what they return is not known, and what they do is found in their own file",
    "the type of arguments without annotation that are only used in arithmetic",
    "shapes, devices and values: a copy between two tensors of one device looks like any other",
    "what libraries do inside, apart from the idioms of the rules 7xx; the trial run sees that",
    "code that is made while it runs: exec, getattr with computed names, monkey patching",
)
"""What the scan does not see."""


class Scanned(NamedTuple):
    """A file that was read.

    Attributes:
        file: Its name.
        text: Its text.
        findings: What was found in it.
    """

    file: str
    text: str
    findings: list[Finding]


def scan(paths: Iterable[Path]) -> list[Finding]:
    """Read source files and say what a capture of their functions would meet.

    Read are ``forward`` of modules, functions handed to ``rote.graph`` or captured by hand, what they call in
    the same file, and other functions that take tensors.

    Args:
        paths: Python files, and folders that are searched for them.

    Returns:
        The findings, by file, line and column.

    Raises:
        MisuseError: There is no such path, or a file is not Python.
    """
    return [found for each in scanned(paths) for found in each.findings]


def scanned(paths: Iterable[Path], unread: Callable[[MisuseError], None] | None = None) -> Iterator[Scanned]:
    """Read source files one by one, as :func:`scan` does.

    Args:
        paths: Python files, and folders that are searched for them.
        unread: Told of each file that is not Python, instead of ending there.

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


def scan_callable(target: Callable[..., Any]) -> list[Finding]:
    """Read the source of a callable and of the functions and modules that it leads to, and nothing else.

    Args:
        target: A function, method, module or partial of one. It is not called.

    Returns:
        The findings, by file, line and column; files of PyTorch are left out.
    """
    found: list[Finding] = []
    for file, entries in sorted(reached(target).items()):
        if Path(file).is_file():
            found.extend(scan_text(_text(Path(file)), file, entries))
    return found


def _text(file: Path) -> str:
    """The text of a file, in the encoding that it declares."""
    if file.suffix == NOTEBOOK:
        raise MisuseError(f"{file}: {FROM_NOTEBOOK.format(file)}")
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except UnicodeDecodeError as error:
        raise MisuseError(f"{file}: this is not Python in UTF-8: {error}") from error
    except SyntaxError as error:  # the first lines, or the encoding that they declare
        raise MisuseError(f"{file}: this is not Python in UTF-8: {error.msg}") from error


__all__ = ["BLIND_SPOTS", "Scanned", "scan", "scan_callable", "scan_text", "scanned"]
