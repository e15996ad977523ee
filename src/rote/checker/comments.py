"""Comments of the code that a trial ran, and whether they silenced anything.

Which lines ran is watched in one more call, and only if there is a comment to ask about: following each line
of a call would make every check slower for the sake of a few.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Mapping
from types import CodeType, FrameType
from typing import Any

from ..hazards import Ignore, ignores_in, unused
from ..hazards.rules import RULES, Finder, Finding


class LinesRan:
    """Notes which of some lines are run while it is entered.

    Attributes:
        wanted: The lines, by file.
        ran: Those that were run.
    """

    def __init__(self, wanted: Mapping[str, set[int]]) -> None:
        self.wanted = wanted
        self.ran: set[tuple[str, int]] = set()

    def __enter__(self) -> LinesRan:
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self.wanted else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        file, line = frame.f_code.co_filename, frame.f_lineno
        if line in self.wanted[file]:
            self.ran.add((file, line))
        return self._line


def unused_comments(codes: Iterable[CodeType], findings: Iterable[Finding]) -> list[Ignore]:
    """The comments in functions that ran whose code was not found in their line."""
    spans: dict[str, list[range]] = {}
    for code in codes:
        lines = [code.co_firstlineno, *(line for _, _, line in code.co_lines() if line)]
        spans.setdefault(code.co_filename, []).append(range(min(lines), max(lines) + 1))
    found: list[Ignore] = []
    for file, inside in spans.items():
        comments = ignores_in("".join(linecache.getlines(file)), file)
        found.extend(each for each in comments if any(each.where.line in span for span in inside))
    return unused(found, findings)


def to_a_trial(comments: Iterable[Ignore]) -> list[Ignore]:
    """The comments that a trial would make use of, if their lines run."""
    return [each for each in comments if not each.mistake and Finder.TRIAL in RULES[each.code].found_by]


def lines_of(comments: Iterable[Ignore]) -> dict[str, set[int]]:
    """Their lines, by file."""
    found: dict[str, set[int]] = {}
    for each in comments:
        found.setdefault(each.where.file, set()).add(each.where.line)
    return found
