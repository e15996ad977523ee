"""How often a budget took the memory of a recording, and when the recording is made again."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_PAUSE = 32
"""Calls that a recording evicted again and again waits before it is made once more."""


@dataclass
class Evictions:
    """The evictions of one recording."""

    count: int = 0
    why: str | None = None
    pause: int = 0

    def add(self, why: str) -> None:
        """The recording was evicted. It is made again at once the first time, and later each further time."""
        self.count += 1
        self.why = why
        self.pause = min(2 ** (self.count - 1), LONGEST_PAUSE) - 1

    def waits(self) -> bool:
        """Whether the call that would record it again runs eagerly instead."""
        self.pause -= 1
        return self.pause >= 0
