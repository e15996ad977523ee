"""How many calls there were, and how many of them were replayed."""

from __future__ import annotations

from typing import Protocol


class Counting(Protocol):
    """What counts calls, and those of them that were replayed."""

    calls: int
    replayed: int


class Counts:
    """What a wrapper counts at every call.

    Attributes:
        calls: Its calls.
        replayed: Those that were replayed.
    """

    __slots__ = ("calls", "replayed")

    def __init__(self) -> None:
        self.calls = self.replayed = 0
