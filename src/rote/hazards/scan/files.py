"""The Python files of a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ...base.errors import MisuseError

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})

NOTEBOOK = ".ipynb"
FROM_NOTEBOOK = "this is a notebook; make a Python file of it first: jupyter nbconvert --to script {}"


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files as they are given, and the Python files below folders, in order of their names.

    Folders that begin with a dot and those of :data:`SKIPPED` are left out.

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
