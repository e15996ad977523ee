"""What befalls recordings between two calls, and neither caller nor callable had a hand in.

Their memory is wanted elsewhere, they are measured against plain calls (and lose), a key that rested is tried
again. Such things come after many calls, or where memory is short; scenes are short, so they are brought
about.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import rote
from rote.runtime.engine.specialization import Specialization
from rote.runtime.recording.contest.contest import NEVER, Contest, Figures, Turn


class Rigged(Contest):
    """Goes through one round whatever the clocks say, and may lose it.

    Args:
        lost: How it ends.
    """

    def __init__(self, lost: bool) -> None:
        super().__init__()
        self.figures = Figures(2.0, 1.0)
        end = Turn.LOST if lost else Turn.NOTHING
        round_ = (Turn.REPLAY, Turn.WARM, Turn.PLAIN, Turn.REPLAY, Turn.PLAIN)
        self._turns = chain(round_, [end], repeat(Turn.NOTHING))

    def turn(self, replays: int, *, walks: bool = False) -> tuple[Turn, int]:
        """What the next call is for, and after how many replays to ask again."""
        turn = next(self._turns)
        return turn, NEVER if turn in (Turn.LOST, Turn.NOTHING) else replays


def evict(graph: rote.Graphed) -> None:
    """Recordings give their memory back, those that somebody waits for excepted."""
    for entry in _entries(graph):
        for variant in entry.recordings:
            if variant.recorded and not variant.busy:
                variant.evict("a scene took its memory")


def contest(graph: rote.Graphed, lost: bool) -> None:
    """The next calls are a round of each recording against plain calls."""
    for entry in _entries(graph):
        for variant in entry.recordings:
            variant.contest = Rigged(lost)
            variant.compare_at(0)


def optimise(graph: rote.Graphed) -> None:
    """The next replay of each recording is followed by the making of its exact tier."""
    for entry in _entries(graph):
        for variant in entry.recordings:
            if variant.recorded:
                variant.improve_at(0)


def wake(graph: rote.Graphed) -> None:
    """Keys that run plainly for a while have done so."""
    for entry in _entries(graph):
        entry.life.resting = 0


def _entries(graph: Any) -> Iterator[Specialization]:
    yield from graph._keys.entries.values()
