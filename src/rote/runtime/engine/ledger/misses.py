"""Calls that no recording answers, of a callable that is replayed otherwise."""

from __future__ import annotations

from .ledger import LONGEST_REST, Ledger
from .means import FREE_TRACES

FREE_MISSES = 2
"""Traces of one key that may record nothing, however seldom it comes."""


class Misses:
    """Calls of one key that none of its recordings answers."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._met = self._in_vain = self._left = 0

    def admit(self) -> bool:
        """A call is one of them: whether it may be traced."""
        self._met += 1
        if self._left == 0:
            return True
        self._left -= 1
        return False

    def add_vain(self) -> None:
        """One was traced, and recorded nothing."""
        self._in_vain += 1
        further = self._in_vain - FREE_MISSES - int(FREE_TRACES * self._ledger.share_of(self._met))
        if further >= 0 and self._ledger.bounded:
            self._left = min(1 << further, LONGEST_REST)

    def forget(self) -> None:
        """A call has recorded something."""
        self._in_vain = self._left = 0

    def __str__(self) -> str:
        return f"{self._in_vain} calls that no recording answers were traced, and nothing came of it"
