"""Places of findings in files that may be rewritten, and where they are after a change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...base import is_internal
from ..rules import Finding

INSTALLED = frozenset({"site-packages", "dist-packages"})


def by_file(findings: Iterable[Finding], folders: Iterable[Path]) -> dict[str, list[Finding]]:
    """The findings in the user's own files, which lie below ``folders``, by file."""
    roots = [folder.resolve() for folder in folders]
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if is_own_file(finding.where.file, roots):
            found.setdefault(finding.where.file, []).append(finding)
    return found


def is_own_file(file: str, roots: Iterable[Path]) -> bool:
    """Whether a file is the user's: Python below one of the folders, and no installed package."""
    path = Path(file).resolve()
    return (
        path.suffix == ".py"
        and path.is_file()
        and not is_internal(file)
        and INSTALLED.isdisjoint(path.parts)
        and any(path.is_relative_to(root) for root in roots)
    )


def moved(findings: Iterable[Finding], before: str, after: str) -> list[Finding]:
    """Findings with the lines that they have after a change of the file.

    Those in lines whose number changed with their text are left out: nobody can say where they are.
    """
    now: dict[int, int] = {}
    lines, others = before.splitlines(), after.splitlines()
    for tag, start, end, first, last in difflib.SequenceMatcher(
        a=lines, b=others, autojunk=False
    ).get_opcodes():
        if tag == "equal" or (tag == "replace" and end - start == last - first):
            now.update((start + offset + 1, first + offset + 1) for offset in range(end - start))
    return [
        replace(finding, where=finding.where._replace(line=now[finding.where.line]))
        for finding in findings
        if finding.where.line in now
    ]
