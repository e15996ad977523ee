"""Why calls were not replayed, counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..base import Site
from ..hazards.rules import NOT_YET, Reason
from ..inspect import ReasonReport

MOST_EARLY = 1024
"""Keys without a recording whose reasons are remembered."""

_Place = tuple[str, Site | None]


class ReasonCounts:
    """Counts reasons by code and line; the text is that of the last occurrence.

    A reason that a key met before its first recording, and not since, was its warm-up.
    """

    def __init__(self) -> None:
        self._found: dict[_Place, tuple[Reason, int]] = {}
        self._early: dict[_Place, Counter[Any]] = {}  # by the keys that have no recording yet
        self._warm: Counter[_Place] = Counter()

    def add(self, reasons: list[Reason], early: Any = None, calls: int = 1) -> None:
        """Count the reasons of one or more calls; ``early`` is their key if it has no recording yet."""
        for reason in {(reason.code, reason.where): reason for reason in reversed(reasons)}.values():
            place = (reason.code, reason.where)
            self._found[place] = (reason, self._found.get(place, (reason, 0))[1] + calls)
            if early is not None:
                keys = self._early.setdefault(place, Counter())
                if len(keys) >= MOST_EARLY:  # most are never recorded
                    keys.clear()
                keys[early] += 1

    def settle(self, key: Any) -> None:
        """A key has its first recording."""
        for place, keys in self._early.items():
            self._warm[place] += keys.pop(key, 0)

    def reports(self) -> tuple[ReasonReport, ...]:
        """All reasons, most frequent first; warm-up and keys still under observation come last."""

        def order(item: tuple[_Place, tuple[Reason, int]]) -> tuple[bool, int, bool]:
            place, (reason, count) = item
            return count == self._warm[place], -count, reason.code == NOT_YET.code

        return tuple(
            ReasonReport(
                reason.code, reason.message, reason.place, reason.remedy, count, count == self._warm[place]
            )
            for place, (reason, count) in sorted(self._found.items(), key=order)
        )

    def clear(self) -> None:
        """Forget everything."""
        self._found.clear()
        self._early.clear()
        self._warm.clear()
