"""Fixes for findings of the source scan, where what the program computes certainly stays the same.

- a tensor made from Python numbers becomes ``torch.full``, ``torch.arange`` or a stack of those (RT124)
- a factory whose result is moved to a device gets ``device=`` (RT121)
- a scale that ``forward`` stores on ``self`` becomes a registered buffer, updated in place (RT212)
- a sum over a mask becomes a sum over ``torch.where`` (RT111; sums of floats may round otherwise)

Everything else is left alone: a fix is made only where the source shows all that it depends on. Formatting
and comments are kept. Nothing is written but by :func:`write`. Needs ``libcst``: ``pip install 'rote[fix]'``.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import EnvironmentError_, MisuseError
from ..finding import Finding
from ..scan import scan_text
from ..scan.files import python_files

ROUNDS = 8
"""A file is scanned and rewritten again so often, since a fix may uncover another."""


@dataclass(frozen=True)
class Fix:
    """What would become of a file.

    Attributes:
        file: Its name.
        before: Its text.
        after: The new text.
        findings: What is fixed; lines are those of the text before, of a later round those of that round.
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
            f"a/{self.file}", f"b/{self.file}",
        )  # fmt: skip
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def fix_text(text: str, file: str) -> Fix:
    """Rewrite the text of a file.

    Raises:
        MisuseError: It is not Python.
        EnvironmentError_: ``libcst`` is not installed.
    """
    rewrite = _rewriter()
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    after, fixed = text.removeprefix(mark), list[Finding]()
    for _ in range(ROUNDS):
        found = scan_text(after, file)
        new, done = rewrite(after, found)
        if not done:
            break
        after = new
        fixed.extend(done)
    return Fix(file, text, mark + after, tuple(fixed))


def fix(paths: Iterable[Path]) -> list[Fix]:
    """Rewrite files, and folders of files, without writing them.

    Returns:
        One for each file that would change.

    Raises:
        MisuseError: There is no such path, or a file is not Python.
        EnvironmentError_: ``libcst`` is not installed.
    """
    fixes = (fix_text(_read(file), str(file)) for file in python_files(paths))
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
        return importlib.import_module(f"{__name__}.rewrite").rewritten
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "libcst":
            raise
        raise EnvironmentError_("fixing needs libcst: pip install 'rote[fix]'") from error


__all__ = ["Fix", "fix", "fix_text", "write"]
