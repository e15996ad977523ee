"""Rewrites of files, shown before they are written."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base import EnvironmentError_, MisuseError
from .. import without_ignored_in
from ..rules import Finding
from ..scan import python_files, scan_text
from .places import by_file, moved

ROUNDS = 8
"""A file is rewritten again so often: a fix may uncover another, and not all are made in one round."""


@dataclass(frozen=True)
class Fix:
    """What would become of a file.

    Lines of the findings are those of the text before, of a later round those of that round.
    """

    file: str
    before: str
    after: str
    findings: tuple[Finding, ...]

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty if there is none."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True),
            f"a/{self._shown}", f"b/{self._shown}",
        )  # fmt: skip
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)

    @property
    def _shown(self) -> str:
        """Its name from the working directory, so that ``git apply`` takes the diff."""
        path, here = Path(self.file), Path.cwd()
        return path.relative_to(here).as_posix() if path.is_relative_to(here) else self.file


def fix_text(text: str, file: str, findings: Iterable[Finding] | None = None) -> Fix:
    """Rewrite the text of a file, in the places of findings.

    Without ``findings`` those are the ones that the source scan finds and no comment accepts.

    Raises:
        MisuseError: It is not Python.
        EnvironmentError_: ``libcst`` is not installed.
    """
    rewrite = _rewriter()
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    after, fixed = text.removeprefix(mark), list[Finding]()
    left = None if findings is None else list(findings)
    for _ in range(ROUNDS):
        found = without_ignored_in(after, scan_text(after, file)) if left is None else left
        new, done = rewrite(after, found)
        if not done:
            break
        if left is not None:
            left = moved([each for each in left if each not in done], after, new)
        after = new
        fixed.extend(done)
    return Fix(file, text, mark + after, tuple(fixed))


def fix(paths: Iterable[Path]) -> list[Fix]:
    """What would change in files and folders; in folders, what is not Python is left alone.

    Raises:
        MisuseError: There is no such path, or a file that was named is not Python.
        EnvironmentError_: ``libcst`` is not installed.
    """
    fixes: list[Fix] = []
    for path in paths:
        for file in python_files([path]):
            try:
                fixes.append(fix_text(_read(file), str(file)))
            except MisuseError:
                if path == file:
                    raise
    return [each for each in fixes if each.after != each.before]


def fix_found(findings: Iterable[Finding], folders: Iterable[Path]) -> list[Fix]:
    """What would change at the places of findings, in the user's own files: those below ``folders``.

    Installed packages there are left alone.

    Raises:
        EnvironmentError_: ``libcst`` is not installed.
    """
    fixes: list[Fix] = []
    for file, found in by_file(findings, folders).items():
        try:
            fixes.append(fix_text(_read(Path(file)), file, found))
        except MisuseError:  # it is in no UTF-8, or no longer the Python that ran
            continue
    return [each for each in fixes if each.after != each.before]


def write(fixes: Iterable[Fix]) -> int:
    """Write the new texts, and return how many files were changed.

    A file that is no longer what it was when it was read is left alone.
    """
    written = 0
    for each in fixes:
        path = Path(each.file)
        if _read(path) == each.before:
            path.write_text(each.after, "utf-8", newline="")
            written += 1
    return written


def _read(path: Path) -> str:
    """The text with its line ends as they are."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path}: this is not Python in UTF-8: {error}") from error


def _rewriter() -> Any:
    try:
        return importlib.import_module(".rewrite", __package__).rewritten
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "libcst":
            raise
        raise EnvironmentError_("fixing needs libcst: pip install 'rote[fix]'") from error
