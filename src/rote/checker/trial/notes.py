"""What a run meets, noted once for each place and rule."""

from __future__ import annotations

from dataclasses import dataclass

from ...hazards.rules import Finding, Rule, Severity
from .places import CodePlace, here


@dataclass
class Note:
    """A hazard at a place.

    Attributes:
        rule: The rule.
        place: Where.
        message: What happens.
        severity: What it costs.
        remedy: What to write instead.
        evidence: The value, the shape, the state.
        count: How often it was met in the run.
    """

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
        times = f", {self.count} times" if self.count > 1 else ""
        return Finding(
            self.rule.code,
            self.severity,
            self.place.site,
            self.message,
            self.remedy,
            self.place.column,
            self.place.source,
            self.place.path,
            f"{self.evidence}{times}".lstrip(", "),
        )


class TrialNotes:
    """The notes of one run."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, int, int], Note] = {}

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
        """Note a hazard, at the line that the callable is at unless told otherwise."""
        note = Note(
            rule, place or here(), message, severity or rule.severity, remedy or rule.remedy, evidence
        )
        known = self.found.setdefault(note.key, note)
        if known is not note:
            known.count += 1
