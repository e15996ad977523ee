"""What a run meets, noted once for each place and rule."""

from __future__ import annotations

from dataclasses import dataclass

from ...hazards import rules
from ...hazards.rules import Finding, Rule, Severity
from ...runtime.operators import short
from .places import CodePlace, here


@dataclass
class Note:
    """A hazard at a place; it becomes a finding when the check is over."""

    rule: Rule
    place: CodePlace
    message: str
    severity: Severity
    remedy: str
    evidence: str
    count: int = 1

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Notes of one rule at one place are one."""
        return (self.rule.code, self.place.site.file, self.place.site.line, self.place.column)

    def finding(self) -> Finding:
        """The note as it is reported."""
        site, column, path = self.place
        times = f", {self.count} times" if self.count > 1 else ""
        evidence = f"{self.evidence}{times}".lstrip(", ")
        code, severity, remedy = self.rule.code, self.severity, self.remedy
        return Finding(code, severity, site, self.message, remedy, column, site.text, path, evidence)


class TrialNotes:
    """The notes of one run."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, int, int], Note] = {}
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
        severity, remedy = severity or rule.severity, remedy or rule.remedy
        note = Note(rule, place or here(), message, severity, remedy, evidence)
        known = self.found.setdefault(note.key, note)
        if known is not note:
            known.count += 1

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
