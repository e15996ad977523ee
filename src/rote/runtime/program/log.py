"""Counts the backward passes of recorded calls, for the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from ...hazards.rules import Reason
from ..arguments import Call

REPLAYED, EAGER, RECORDED = "replayed", "eager", "recorded"

PLAINLY: Any = object()
"""The value of a call that has not run: the caller calls the function, once it holds no lock.

The function may need a lock on another thread: a backward inside it may reach a recorded node.
"""


@dataclass(frozen=True)
class Result:
    """A finished call.

    Attributes:
        how: One of REPLAYED, EAGER, RECORDED.
        reasons: Why it was no plain replay.
    """

    value: Any
    how: str
    reasons: list[Reason]


class Tally(Protocol):
    """Counts reasons; see :class:`...api.reasons.ReasonCounts`."""

    def add(self, reasons: list[Reason]) -> None:
        """Count the reasons of one call."""
        ...


class Checks(Protocol):
    """Makes calls and checks them; see :class:`..verify.verify.Verifier`."""

    verified: int

    def run(self, entry: Any, call: Call, caller: FrameType, entries: Iterable[Any]) -> Result:
        """Make one call."""
        ...


class BackwardLog:
    """What the backward passes of one wrapper did.

    Args:
        strict: Raise for backward passes that would not replay, after their warm-up.
        checks: Makes the passes and checks them; None for no checks.
        graphs: Passes may be recorded.

    Attributes:
        calls: How many backward passes went through recorded calls.
        replayed: How many of them were replayed.
        due: The last one was left to the general path, since its recording is to be measured.
    """

    def __init__(
        self, tally: Tally, strict: bool, checks: Checks | None = None, *, graphs: bool = True
    ) -> None:
        self.calls = 0
        self.replayed = 0
        self.due = False
        self.strict = strict
        self.checks = checks
        self.graphs = graphs
        self._tally = tally

    @property
    def verified(self) -> int:
        """How many passes were checked and found right."""
        return self.checks.verified if self.checks is not None else 0

    def add(self, result: Result) -> None:
        """Count one."""
        self.calls += 1
        if result.how == REPLAYED:
            self.replayed += 1
        else:
            self._tally.add(result.reasons)

    def finish(self, entry: Any, result: Result) -> Any:
        """Take the result of a pass that was counted and was more than a replay; gives its value."""
        del entry
        self._tally.add(result.reasons)
        return result.value

    def clear(self) -> None:
        """Forget everything."""
        self.calls = self.replayed = 0
        if self.checks is not None:
            self.checks.verified = 0
