"""What a run meets, noted once for each place and rule."""

from __future__ import annotations

from dataclasses import replace

from ...base import NOWHERE
from ...hazards import rules
from ...hazards.rules import Finding, Rule, Severity
from ...runtime.operators import short
from .places import CodePlace, here


class TrialNotes:
    """The notes of one run.

    Attributes:
        found: What was found by rule and place, each with how often.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, int, int], tuple[Finding, int]] = {}
        self._raised: list[tuple[CodePlace, str]] = []

    def add(
        self,
        rule: Rule,
        message: str,
        *,
        evidence: str = "",
        severity: Severity | None = None,
        remedy: str = "",
        place: CodePlace | None = None,
    ) -> None:
        """Note a hazard, by default at the line that the callable is at."""
        site, column, path = place or here()
        severity, remedy = severity or rule.severity, remedy or rule.remedy
        new = Finding(rule.code, severity, site, message, remedy, column, path=path, evidence=evidence)
        key = (rule.code, site.file, site.line, column)
        finding, count = self.found.get(key, (new, 0))
        self.found[key] = finding, count + 1

    def findings(self, line: CodePlace) -> list[Finding]:
        """The notes as they are reported; those to which no Python line led are at a given one."""
        found: list[Finding] = []
        for each, count in self.found.values():
            site = line.site if each.where is NOWHERE else each.where
            times = f", {count} times" if count > 1 else ""
            evidence = f"{each.evidence}{times}".lstrip(", ")
            found.append(replace(each, where=site, source=site.text, evidence=evidence))
        return found

    def add_raised(self, operation: str, error: Exception) -> None:
        """An operation raises; when the call is over, it is known whether the callable caught that."""
        name = short(operation.replace("aten.", "aten::", 1))
        self._raised.append((here(), f"{name} raises {type(error).__name__}, and the call goes another way"))

    def add_caught(self) -> None:
        """The call has returned, so it caught everything that operations raised.

        An operation that raises for its shapes does so in every call, and a graph of the other way is right.
        But rote records no such call.
        """
        for place, text in self._raised:
            self.add(rules.OPERATION_RAISES, text, place=place, severity=Severity.SPEED)
