"""``# rote: ignore[RT104]`` on a line silences findings of that code there.

A comment that silences nothing gets a remark, but only from a check that would know: the source scan makes
none for a code that it never finds, and a trial run none for a line that did not run.
"""

from __future__ import annotations

import io
import linecache
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..base import Site
from .rules import RULES, Finder, Finding, Remark

_COMMENT = re.compile(r"#\s*rote:\s*ignore\b(?:\[([^\]]*)\])?")


class Ignore(NamedTuple):
    """One code that a comment names; empty if it names none.

    Columns count from 1. A comment that is ``alone`` has a line to itself, so nothing can be found there.
    """

    where: Site
    column: int
    code: str
    alone: bool

    @property
    def mistake(self) -> str:
        """Why the comment can silence nothing in any check; empty if it can."""
        rule = RULES.get(self.code)
        if not self.code:
            return "this comment names no rule, as ignore[RT101] does, and silences nothing"
        if rule is None:
            return f"ignore[{self.code}] silences nothing: there is no rule {self.code}"
        if not rule.found_by & Finder.CHECK:
            return f"ignore[{self.code}] silences nothing: only the runtime gives this reason, to g.explain()"
        if self.alone:
            return f"ignore[{self.code}] silences nothing: it has to stand in the line that it is for"
        return ""

    def remark(self, message: str) -> Remark:
        """A remark at the comment."""
        return Remark(self.where, self.column, message, self.code)


def ignored_codes(line: str) -> frozenset[str]:
    """The codes that a source line silences."""
    found = _COMMENT.search(line)
    return frozenset(_codes(found)) - {""} if found else frozenset()


def told_apart(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings whose lines do not silence them, and those whose lines do."""
    linecache.checkcache()  # files may have been edited since this process read them
    heard: list[Finding] = []
    silenced: list[Finding] = []
    for each in findings:
        codes = ignored_codes(linecache.getline(each.where.file, each.where.line))
        (silenced if each.code in codes else heard).append(each)
    return heard, silenced


def without_ignored_in(text: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the text of a file whose lines do not silence them."""
    lines = text.splitlines()
    return [each for each in findings if each.code not in ignored_codes(lines[each.where.line - 1])]


def ignores_in(text: str, file: str) -> list[Ignore]:
    """The comments of a file, one for each code that they name; those inside strings do not count."""
    if "rote:" not in text:
        return []
    found: list[Ignore] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match is not None:
                line, column = token.start
                alone = not token.line[:column].strip()
                place = Site(file, line, "")
                found.extend(Ignore(place, column + 1, code, alone) for code in _codes(match))
    except (tokenize.TokenError, SyntaxError):
        pass  # the comments before the mistake count; the scan reports the mistake
    return found


def unused(ignores: Iterable[Ignore], findings: Iterable[Finding]) -> list[Ignore]:
    """The comments whose code was not found in their line."""
    found = {(finding.where.file, finding.where.line, finding.code) for finding in findings}
    return [each for each in ignores if (each.where.file, each.where.line, each.code) not in found]


def remarks_of_scan(text: str, file: str, findings: Iterable[Finding]) -> list[Remark]:
    """Remarks on a file's comments, given all that the source scan found in it."""
    return [
        each.remark(said)
        for each in unused(ignores_in(text, file), findings)
        if (said := each.mistake or _to_a_scan(each.code))
    ]


def _to_a_scan(code: str) -> str:
    finders = RULES[code].found_by
    if Finder.SCAN not in finders:
        return ""
    also = "; rote check TARGET may need it, --static does not" if Finder.TRIAL in finders else ""
    return f"ignore[{code}] silences nothing that the source scan sees{also}"


def _codes(found: re.Match[str]) -> Iterator[str]:
    yield from (code.strip().upper() for code in (found.group(1) or "").split(","))
