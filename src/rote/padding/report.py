"""The report of a padded callable."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ..api import ReasonReport, Report, explain_reasons
from ..hazards import Findings


@dataclass(frozen=True)
class PaddedReport:
    """The whole report.

    Attributes:
        name: The callable.
        calls: All calls.
        padded: Calls that were padded, and their results cut.
        checked: Calls that ran as they are, and padded as well, to compare the two.
        exact: Calls that only ran as they are: they needed no padding, or the reasons say why not.
        reasons: Why calls were not padded, most frequent first.
        graphed: The report of the graphed callable, which makes the padded and the exact calls.
    """

    name: str
    calls: int
    padded: int
    checked: int
    exact: int
    reasons: tuple[ReasonReport, ...]
    graphed: Report

    def findings(self) -> Findings:
        """The obstacles to padding, and to replays wholly from graphs."""
        return Findings(
            [*(reason.finding() for reason in self.reasons), *self.graphed.findings()], target=self.name
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and values."""
        return asdict(self)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        counts = f"{self.calls} calls, {self.padded} padded, {self.checked} checked, {self.exact} as they are"
        return "\n".join([f"{self.name}, padded: {counts}", *explain_reasons(self.reasons)])
