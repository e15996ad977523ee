"""All that a check found, as a list that can be asked, printed and written down."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..base import NOWHERE, NotReplayedError, Site
from .rules import RULES, Finding, Reason, Remark, Severity
from .sarif import to_sarif

SEVERE = {
    "error": (Severity.STOPS, Severity.WRONG),
    "island": (Severity.STOPS, Severity.WRONG, Severity.ISLAND),
    "speed": (Severity.STOPS, Severity.WRONG, Severity.ISLAND, Severity.SPEED),
    "unknown": tuple(Severity),
}
"""Names of levels, and the severities that each takes in."""


class HazardError(NotReplayedError):
    """A check found what it should not have found. The message lists it, one line each."""


class Findings(list[Finding]):
    """Findings in order of file, line and column.

    Args:
        found: The findings.
        target: What was checked.
        incomplete: Why the check ended early, empty if it did not.
        operations: Operations of one call.
        printed: Characters that the callable printed.
        remarks: What is to be said of comments and baselines that silence nothing.
        silenced: Findings that a comment silences.
    """

    def __init__(
        self,
        found: Iterable[Finding] = (),
        *,
        target: str = "",
        incomplete: str = "",
        operations: int = 0,
        printed: int = 0,
        remarks: Iterable[Remark] = (),
        silenced: Iterable[Finding] = (),
    ) -> None:
        super().__init__(sorted(found, key=lambda f: (f.where.file, f.where.line, f.column, f.code)))
        self.target = target
        self.incomplete = incomplete
        self.operations = operations
        self.printed = printed
        self.remarks = sorted(remarks, key=lambda each: (each.where, each.column, each.code))
        self.silenced = list(silenced)

    @property
    def errors(self) -> list[Finding]:
        """Findings that stop a capture or make its replays wrong."""
        return [finding for finding in self if finding.severity.is_error]

    @property
    def ok(self) -> bool:
        """Whether the check was made to its end and found no error."""
        return not self.incomplete and not self.errors

    def raise_if(self, level: str = "error") -> None:
        """Raise if there is anything of a level.

        Args:
            level: ``"error"``; ``"island"``, ``"speed"`` and ``"unknown"`` take in more and more.

        Raises:
            ValueError: There is no such level.
            HazardError: There is such a finding, or the check ended early.
        """
        if level not in SEVERE:
            raise ValueError(f"level is {level!r}; it can be {', '.join(map(repr, SEVERE))}")
        found = [finding for finding in self if finding.severity in SEVERE[level]]
        lines = [str(finding) for finding in found]
        if self.incomplete:
            lines.append(f"the check ended early: {self.incomplete}")
        if lines:
            head = f"{self.target or 'the callable'} cannot be captured as it is:"
            raise HazardError("\n".join([head, *lines]), Findings(found, target=self.target))

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and values."""
        return {
            "target": self.target,
            "ok": self.ok,
            "incomplete": self.incomplete,
            "operations": self.operations,
            "printed": self.printed,
            "findings": [as_dict(finding) for finding in self],
            "silenced": [as_dict(finding) for finding in self.silenced],
            "remarks": [_remark(each) for each in self.remarks],
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """The findings as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_sarif(self) -> dict[str, Any]:
        """The findings as a SARIF 2.1.0 log, which editors and code hosts read."""
        return to_sarif(self, self.remarks, self.incomplete)

    def to_sarif_json(self, *, indent: int | None = 2) -> str:
        """The SARIF log as JSON."""
        return json.dumps(self.to_sarif(), indent=indent)

    def __str__(self) -> str:
        lines = [str(finding) for finding in self]
        if self.incomplete:
            lines.append(f"the check ended early: {self.incomplete}")
        return "\n".join([*(lines or ["nothing found"]), *map(str, self.remarks)])


def as_dict(finding: Finding) -> dict[str, Any]:
    """A finding as plain values; its place as ``path``, ``line`` and ``column``."""
    return {
        "code": finding.code,
        "severity": str(finding.severity),
        "path": finding.where.file,
        "line": finding.where.line,
        "column": finding.column,
        "function": finding.where.function,
        "source": finding.source,
        "message": finding.message,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
        "through": [f"{site.file}:{site.line}" for site in finding.path],
    }


def _remark(remark: Remark) -> dict[str, Any]:
    return {
        "path": remark.where.file,
        "line": remark.where.line,
        "column": remark.column,
        "code": remark.code,
        "message": remark.message,
    }


def findings_of(reasons: Iterable[Reason], target: str = "") -> Findings:
    """The runtime's reasons as findings."""
    found = [finding_at(why.code, why.place, why.message, why.remedy) for why in reasons]
    return Findings(found, target=target)


def finding_at(code: str, where: str, message: str, remedy: str = "", *, island: bool = False) -> Finding:
    """A finding of the runtime's at ``file:line``, or nowhere, with the rule's remedy if there is no other.

    ``island`` says that it costs an island, whatever the rule says of graphs captured by hand.
    """
    rule = RULES.get(code)
    file, _, line = where.rpartition(":")
    site = Site(file, int(line), "") if line.isdigit() else NOWHERE
    severity = Severity.ISLAND if island else rule.severity if rule is not None else Severity.UNKNOWN
    source = site.text if site.line else ""
    return Finding(code, severity, site, message, remedy or (rule.remedy if rule else ""), source=source)
