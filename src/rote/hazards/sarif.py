"""Findings as SARIF 2.1.0, the format in which editors and code hosts read them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .rules import RULES, Finding, Remark, Rule, Severity

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
