"""Rewrites of files, which can be shown before they are written."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base import EnvironmentError_, MisuseError, is_internal
from .. import without_ignored_in
from ..rules import Finding
from ..scan import python_files, scan_text

ROUNDS = 8
"""Times that a file is rewritten, at most: a fix may uncover another, and some wait for the next round."""

INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True)
class Fix:
    """What would become of a file. A finding has its line in the text of the round that fixed it."""

    file: str
    before: str
    after: str
    findings: tuple[Finding, ...]

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty if there is none."""
        path, here = Path(self.file), Path.cwd()
        # Relative to the working directory, so that ``git apply`` takes the diff.
        name = path.relative_to(here).as_posix() if path.is_relative_to(here) else self.file
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def fix_text(text: str, file: str, findings: Iterable[Finding] | None = None) -> Fix:
    """Rewrite the text of a file at its findings: unless given, those of the source scan without the ignored.

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
            left = _moved([each for each in left if each not in done], after, new)
        after = new
        fixed.extend(done)
    return Fix(file, text, mark + after, tuple(fixed))


def fix(paths: Iterable[Path]) -> list[Fix]:
    """What would change in files and folders. In folders, files that are not Python stay as they are.

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
    """What would change at findings in the user's files: those below ``folders``, without installed packages.

    Raises:
        EnvironmentError_: ``libcst`` is not installed.
    """
    roots = [folder.resolve() for folder in folders]
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        if _is_own_file(finding.where.file, roots):
            by_file.setdefault(finding.where.file, []).append(finding)
    fixes: list[Fix] = []
    for file, found in by_file.items():
        try:
            fixes.append(fix_text(_read(Path(file)), file, found))
        except MisuseError:  # it is not UTF-8, or no longer the Python that ran
            continue
    return [each for each in fixes if each.after != each.before]


def write(fixes: Iterable[Fix]) -> int:
    """Write the new texts; returns how many. A file that has changed since it was read stays as it is."""
    written = 0
    for each in fixes:
        path = Path(each.file)
        if _read(path) == each.before:
            path.write_text(each.after, "utf-8", newline="")
            written += 1
    return written


def _is_own_file(file: str, roots: Iterable[Path]) -> bool:
    """Whether a file is the user's: Python below one of the folders, and no installed package."""
    path = Path(file).resolve()
    return (
        path.suffix == ".py"
        and path.is_file()
        and not is_internal(file)
        and INSTALLED.isdisjoint(path.parts)
        and any(path.is_relative_to(root) for root in roots)
    )


def _moved(findings: Iterable[Finding], before: str, after: str) -> list[Finding]:
    """Findings with the lines that they have after a change of the file.

    A finding is dropped if the change touches its line and moves it: its new place is not known.
    """
    matcher = difflib.SequenceMatcher(a=before.splitlines(), b=after.splitlines(), autojunk=False)
    now: dict[int, int] = {}
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag == "equal" or (tag == "replace" and end - start == last - first):
            now.update((start + offset + 1, first + offset + 1) for offset in range(end - start))
    return [
        replace(finding, where=finding.where._replace(line=now[finding.where.line]))
        for finding in findings
        if finding.where.line in now
    ]


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
