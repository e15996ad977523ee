"""Counts the backward passes of recorded calls, for the report."""

from __future__ import annotations

from typing import Protocol

from ..hazards.rules import Reason
from .result import REPLAYED, Result


class Tally(Protocol):
    """Where reasons are counted; see :class:`rote.front.report.Tally`."""

    def add(self, reasons: list[Reason]) -> None:
        """Count the reasons of one call."""
        ...


class BackwardLog:
    """What the backward passes of one wrapper did.

    Args:
        tally: Counts reasons.
        strict: Raise for backward passes that would not replay, after their warm-up.

    Attributes:
        calls: Backward passes through recorded calls.
        replayed: Those that were replayed.
    """

    def __init__(self, tally: Tally, strict: bool) -> None:
        self.calls = 0
        self.replayed = 0
        self.strict = strict
        self._tally = tally

    def add(self, result: Result) -> None:
        """Count one."""
        self.calls += 1
        if result.how == REPLAYED:
            self.replayed += 1
        else:
            self._tally.add(result.reasons)

    def clear(self) -> None:
        """Forget everything."""
        self.calls = self.replayed = 0
