"""The source scan: what can be read from a program without running or importing it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..finding import Finding
from .files import python_files
from .module import scan_text


def scan(paths: Iterable[Path]) -> list[Finding]:
    """Read source files and say what a capture of their functions would meet.

    Args:
        paths: Python files, and folders that are searched for them.

    Returns:
        The findings, by file and line.

    Raises:
        MisuseError: There is no such path, or a file is not Python.
    """
    return [found for file in python_files(paths) for found in scan_text(file.read_text("utf-8"), str(file))]
