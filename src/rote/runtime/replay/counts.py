"""How many calls there were, and how many of them were replayed."""

from __future__ import annotations

from typing import Protocol


class Counting(Protocol):
    """What counts calls, and those of them that were replayed."""

    calls: int
    replayed: int
    due: bool


class Counts:
    """What a wrapper counts at every call."""

    __slots__ = ("calls", "due", "replayed")

    def __init__(self) -> None:
        self.calls = self.replayed = 0
        self.due = False


class KeyCounts:
    """What is counted of one key, and read by the functions that are generated for it.

    Attributes:
        lessons: The calls that were more than a replay, or were to be.
        dead: An argument that is a part of the key has died: no call has this key any more.
    """

    __slots__ = ("calls", "dead", "lessons")

    def __init__(self) -> None:
        self.calls = self.lessons = 0
        self.dead = False
