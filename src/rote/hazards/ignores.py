"""``# rote: ignore[RT104]`` on a line silences findings of that code there."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable

from .finding import Finding

_COMMENT = re.compile(r"#\s*rote:\s*ignore\[([A-Z0-9,\s]+)\]")


def ignored_codes(line: str) -> frozenset[str]:
    """The codes that a source line silences."""
    found = _COMMENT.search(line)
    return frozenset(code.strip() for code in found.group(1).split(",")) if found else frozenset()


def without_ignored_in(text: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the text of a file whose lines do not silence them."""
    lines = text.splitlines()
    return [each for each in findings if each.code not in ignored_codes(lines[each.where.line - 1])]


def without_ignored(findings: Iterable[Finding]) -> list[Finding]:
    """The findings whose lines do not silence them."""
    linecache.checkcache()  # a long-lived process has read files that were edited since
    return [
        finding
        for finding in findings
        if finding.code not in ignored_codes(linecache.getline(finding.where.file, finding.where.line))
    ]
