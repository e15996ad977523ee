"""Remarks on comments that silence nothing in the code that a trial ran.

One more call is watched for the lines that run, and only if a comment asks for it: to follow each line would
make every check slower.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

from ..hazards import Ignore, ignores_in, unused
from ..hazards.rules import RULES, Finder, Finding, Remark


class LinesRan:
    """Notes which of the wanted lines, each with its file, run while it is entered."""

    def __init__(self, wanted: set[tuple[str, int]]) -> None:
        self.ran: set[tuple[str, int]] = set()
        self._wanted = wanted
        self._files = {file for file, _ in wanted}

    def __enter__(self) -> LinesRan:
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._files else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.ran |= self._wanted & {(frame.f_code.co_filename, frame.f_lineno)}
        return self._line


def remarks(
    codes: Iterable[CodeType], findings: Iterable[Finding], run: Callable[[LinesRan], None]
) -> list[Remark]:
    """Remarks on comments that can silence nothing, and on those whose line runs without a finding.

    ``run`` calls the callable once more while the given lines are watched.
    """
    comments = unused(_comments_in(codes), findings)
    said = [each.remark(each.mistake) for each in comments if each.mistake]
    doubted = [each for each in comments if not each.mistake and Finder.TRIAL in RULES[each.code].found_by]
    if doubted:
        lines = LinesRan({(each.where.file, each.where.line) for each in doubted})
        run(lines)
        said += [
            each.remark(f"ignore[{each.code}] silences nothing, in this call at least")
            for each in doubted
            if (each.where.file, each.where.line) in lines.ran
        ]
    return said


def _comments_in(codes: Iterable[CodeType]) -> list[Ignore]:
    spans: dict[str, list[range]] = {}
    for code in codes:
        lines = [code.co_firstlineno, *(line for _, _, line in code.co_lines() if line)]
        spans.setdefault(code.co_filename, []).append(range(min(lines), max(lines) + 1))
    found: list[Ignore] = []
    for file, inside in spans.items():
        comments = ignores_in("".join(linecache.getlines(file)), file)
        found.extend(each for each in comments if any(each.where.line in span for span in inside))
    return found
