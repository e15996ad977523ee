"""What strict mode says instead of running a call."""

from __future__ import annotations

from ..base import NotReplayedError, Site
from ..hazards import Findings
from ..hazards.rules import Reason
from .report import ReasonCounts


def refusal(
    name: str, call: int, site: Site, reasons: list[Reason], tally: ReasonCounts, findings: Findings
) -> NotReplayedError:
    """The error for a call that would not be replayed wholly from graphs.

    Args:
        name: Of the callable.
        call: The call's number.
        site: Its line.
        reasons: Why it would not be.
        tally: What was said of earlier calls.
        findings: The same as findings, with those of earlier calls.
    """
    codes = {why.code for why in reasons}
    earlier = [
        f"earlier: {found.code} at {found.where or 'an unknown line'}: {found.message}. {found.remedy} "
        f"({found.count} calls)"
        for found in tally.reports()
        if found.code not in codes
    ]
    listed = "\n  ".join([*map(str, reasons), *earlier])
    return NotReplayedError(
        f"{name} would not be replayed wholly from graphs (strict mode, call {call} at {site}):\n  {listed}",
        findings,
    )
