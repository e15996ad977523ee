"""The findings of a check, as a list that prints itself and becomes JSON or SARIF."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..base import NOWHERE, NotReplayedError, Site
from .rules import RULES, Finding, Reason, Remark, Rule, Severity

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Severity.STOPS: "error",
    Severity.WRONG: "error",
    Severity.ISLAND: "warning",
    Severity.UNKNOWN: "warning",
    Severity.SPEED: "note",
}


def to_sarif(findings: Iterable[Finding], remarks: Iterable[Remark], incomplete: str) -> dict[str, Any]:
    """A log with one run; remarks become notifications of the tool."""
    found = list(findings)
    codes = sorted({finding.code for finding in found})
    known = [_rule(RULES[code]) if code in RULES else {"id": code} for code in codes]
    driver = {"name": "rote", "rules": known}
    run: dict[str, Any] = {"tool": {"driver": driver}, "results": [_result(finding) for finding in found]}
    said = [_notification(remark) for remark in remarks]
    if said or incomplete:
        invocation: dict[str, Any] = {"executionSuccessful": not incomplete}
        if said:
            invocation["toolConfigurationNotifications"] = said
        if incomplete:
            notification = {"level": "error", "message": {"text": f"the check ended early: {incomplete}"}}
            invocation["toolExecutionNotifications"] = [notification]
        run["invocations"] = [invocation]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {"id": rule.code, "shortDescription": {"text": rule.title}, "help": {"text": rule.remedy}}


def _result(finding: Finding) -> dict[str, Any]:
    text = finding.message if not finding.evidence else f"{finding.message} ({finding.evidence})"
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{text}. {finding.severity.capitalize()}. {finding.remedy}"},
        "locations": [_location(finding.where.file, finding.where.line, finding.column)],
    }
    if len(finding.path) > 1:
        steps = [{"location": _location(site.file, site.line, 0)} for site in finding.path]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    return result


def _notification(remark: Remark) -> dict[str, Any]:
    place = _location(remark.where.file, remark.where.line, remark.column)
    return {"level": "note", "message": {"text": f"{remark.message}."}, "locations": [place]}


def _location(file: str, line: int, column: int) -> dict[str, Any]:
    path = Path(file)
    try:
        uri = quote(path.relative_to(Path.cwd()).as_posix())
    except ValueError:
        uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    region = {"startLine": max(line, 1)} | ({"startColumn": column} if column else {})
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}


SEVERE = {
    "error": (Severity.STOPS, Severity.WRONG),
    "island": (Severity.STOPS, Severity.WRONG, Severity.ISLAND),
    "speed": (Severity.STOPS, Severity.WRONG, Severity.ISLAND, Severity.SPEED),
    "unknown": tuple(Severity),
}
"""The severities of each level."""


class HazardError(NotReplayedError):
    """A check found hazards. The message lists them, one line each."""


class Findings(list[Finding]):
    """Findings in order of file, line and column.

    Args:
        incomplete: Why the check ended early, empty if it did not.
        operations: Operations of one call.
        printed: Characters that the callable printed.
        remarks: Comments and baseline entries that silence nothing.
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
        """Whether the check ran to its end and found no error."""
        return not self.incomplete and not self.errors

    def raise_if(self, level: str = "error") -> None:
        """Raise if there is a finding of a level.

        Args:
            level: ``"error"``, ``"island"``, ``"speed"`` or ``"unknown"``; each includes those before it.

        Raises:
            ValueError: There is no such level.
            HazardError: There is such a finding, or the check ended early.
        """
        if level not in SEVERE:
            raise ValueError(f"level is {level!r}; it can be {', '.join(map(repr, SEVERE))}")
        found = [finding for finding in self if finding.severity in SEVERE[level]]
        lines = self._lines(found)
        if lines:
            head = f"{self.target or 'the callable'} cannot be captured as it is:"
            raise HazardError("\n".join([head, *lines]), Findings(found, target=self.target))

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain dicts, lists and values."""
        return {
            "target": self.target,
            "ok": self.ok,
            "incomplete": self.incomplete,
            "operations": self.operations,
            "printed": self.printed,
            "findings": [as_dict(finding) for finding in self],
            "silenced": [as_dict(finding) for finding in self.silenced],
            "remarks": [
                {**_place(each.where, each.column), "code": each.code, "message": each.message}
                for each in self.remarks
            ],
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
        return "\n".join([*(self._lines(self) or ["nothing found"]), *map(str, self.remarks)])

    def _lines(self, findings: Iterable[Finding]) -> list[str]:
        early = [f"the check ended early: {self.incomplete}"] if self.incomplete else []
        return [*map(str, findings), *early]


def as_dict(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {
        "code": finding.code,
        "severity": str(finding.severity),
        **_place(finding.where, finding.column),
        "function": finding.where.function,
        "source": finding.source,
        "message": finding.message,
        "evidence": finding.evidence,
        "remedy": finding.remedy,
        "through": [f"{site.file}:{site.line}" for site in finding.path],
    }


def _place(where: Site, column: int) -> dict[str, Any]:
    return {"path": where.file, "line": where.line, "column": column}


def findings_of(reasons: Iterable[Reason], target: str = "") -> Findings:
    """The runtime's reasons as findings."""
    found = [finding_at(why.code, why.place, why.message, why.remedy) for why in reasons]
    return Findings(found, target=target)


def finding_at(code: str, where: str, message: str, remedy: str = "", *, island: bool = False) -> Finding:
    """A finding of the runtime at ``file:line``, or nowhere; the rule's remedy stands in for a missing one.

    With ``island`` it costs an island, whatever the rule says of graphs captured by hand.
    """
    rule = RULES.get(code)
    file, _, line = where.rpartition(":")
    site = Site(file, int(line), "") if line.isdigit() else NOWHERE
    severity = Severity.ISLAND if island else rule.severity if rule is not None else Severity.UNKNOWN
    source = site.text if site.line else ""
    return Finding(code, severity, site, message, remedy or (rule.remedy if rule else ""), source=source)
