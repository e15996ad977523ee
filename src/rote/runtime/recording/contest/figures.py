"""What the timed calls of a round say: medians of what can be compared."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from .roundtrip import Cost, Kind

FEWEST = 2
"""Calls on each side that are compared at least."""

FEWEST_LOST = 3
"""Calls on each side that are compared at least where replays lose so clearly that one round tells."""

CLEAR = 1.5
MARGIN = 1.05
LEAST_S = 2e-6
GAIN = 1.01
"""How many times faster a version has to be that another one of its kind stands beside."""


class Figures(NamedTuple):
    """Medians of a round, in seconds; ``walked`` if they include the walk back through the results."""

    replay_s: float
    plain_s: float
    walked: bool = False

    @property
    def lost(self) -> bool:
        """Whether the replays take longer."""
        return self.replay_s > MARGIN * self.plain_s and self.replay_s - self.plain_s > LEAST_S

    @property
    def won(self) -> bool:
        """Whether the replays take less time, by more than is noise on a quiet machine."""
        return self.replay_s * GAIN < self.plain_s

    def __str__(self) -> str:
        walked = ", each with the walk back through its results" if self.walked else ""
        return f"a replay took {told(self.replay_s)} and a plain call {told(self.plain_s)}{walked}"


class Verdict(NamedTuple):
    """What a round says."""

    figures: Figures
    lost: bool
    clear: bool


def judge(replays: list[Cost], plain: list[Cost], *, walks: bool) -> Verdict | None:
    """Compare replays with plain calls, walked ones with walked ones; None if there are too few.

    If somebody ``walks`` back through results of the key, the calls alone would not tell.
    """
    found: list[Verdict] = []
    for kind in (Kind.BACK, Kind.THERE):
        ours, theirs = ([cost.seconds for cost in costs if cost.kind is kind] for costs in (replays, plain))
        fewest = min(len(ours), len(theirs))
        if fewest >= FEWEST:
            medians = Figures(statistics.median(ours), statistics.median(theirs), kind is Kind.BACK)
            lost = fewest >= FEWEST_LOST and min(ours) > CLEAR * max(theirs) and medians.lost
            found.append(Verdict(medians, medians.lost, lost or min(theirs) > CLEAR * max(ours)))
    if not found or (walks and not found[0].figures.walked):
        return None
    lost = all([each.lost for each in found])
    clear = all([each.clear and each.lost is lost for each in found])
    return Verdict(found[0].figures, lost, clear)


def told(seconds: float) -> str:
    """A time as people write it."""
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
