"""What the ledgers of all parts of one callable may spend together."""

from __future__ import annotations

FREE_CALLS = 50
FREE_TRACES = 16
"""Traced calls that record nothing, while they are free."""
FREE_IN_PARTS = FREE_TRACES // 2
"""The same in all parts of a callable, which comes to them once its own have recorded nothing."""


class Means:
    """What several ledgers may spend together.

    Attributes:
        earned_s: Seconds that were earned and not spent; less than none where too much was spent.
        taken_s: Seconds that were taken in all, what was free among them.
    """

    def __init__(self) -> None:
        self.earned_s = self.taken_s = 0.0
        self._in_vain = 0
        self._calls = 0

    def earn(self, seconds: float, most: float) -> None:
        """Seconds were earned, of which no more than ``most`` are kept."""
        self.earned_s = min(self.earned_s + seconds, max(most, self.earned_s))

    def spend(self, seconds: float, *, free: bool = False) -> None:
        """Seconds were taken, and spent unless they were free."""
        self.taken_s += seconds
        if not free:
            self.earned_s -= seconds

    def add_vain(self, traces: int) -> None:
        """So many more traces have recorded nothing; fewer, if it is negative: one was completed."""
        self._in_vain += traces

    def add_call(self) -> None:
        """The callable around was called."""
        self._calls += 1

    @property
    def has_free(self) -> bool:
        """Whether a trace of a part is free."""
        return self._calls < FREE_CALLS and self._in_vain < FREE_IN_PARTS
