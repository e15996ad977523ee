"""Never slower: replays of a recording against plain calls, and the recording dropped if it loses.

``docs/call.md`` says what is compared, and ``docs/design.md`` what is not measured, and which ways do not
work. Calls are timed in blocks of one kind by turns, each in the form that it would have for good. The first
ones of a block are not timed, unless calls are long: they find caches and the allocator as the other kind
left them.

Versions of one recording (:mod:`..tiers`) are compared in the same blocks. A version that differs only in how
some operations are calculated *challenges* the one before: it has to be faster by a hundredth, in one round.
A recording whose tiers are still to be made is not dropped for what its plain tier takes, which may be twice
as much: they are made at once, and the contest begins anew, once.
"""

from __future__ import annotations

import statistics
import sys
from enum import Enum
from typing import NamedTuple

from .roundtrip import Cost, Kind, TimedCall

FEWEST = 2
"""Calls on each side that are compared at least."""

FEWEST_LOST = 3
"""Calls on each side that are compared at least where replays lose so clearly that one round tells."""

CLEAR = 1.5
MARGIN = 1.03
LEAST_S = 0.5e-6
GAIN = 1.01
"""How many times faster a version has to be that another one of its kind stands beside."""


class Figures(NamedTuple):
    """Usual times of a round, in seconds; ``walked`` if they include the walk back through the results."""

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

    If somebody ``walks`` back through results of the key, the calls alone do not tell.
    """
    found: list[Verdict] = []
    for kind in (Kind.BACK, Kind.THERE):
        ours, theirs = ([cost.seconds for cost in costs if cost.kind is kind] for costs in (replays, plain))
        fewest = min(len(ours), len(theirs))
        if fewest >= FEWEST:
            usual = Figures(_usual(ours), _usual(theirs), kind is Kind.BACK)
            lost = fewest >= FEWEST_LOST and min(ours) > CLEAR * statistics.median(theirs) and usual.lost
            won = min(theirs) > CLEAR * statistics.median(ours)
            found.append(Verdict(usual, usual.lost, lost or won))
    if not found or (walks and not found[0].figures.walked):
        return None
    lost = all([each.lost for each in found])
    clear = all([each.clear and each.lost is lost for each in found])
    return Verdict(found[0].figures, lost, clear)


def _usual(seconds: list[float]) -> float:
    """The lower quarter: what else runs on the machine makes calls longer, often most of them.

    The shortest one may be a single call from warm caches.
    """
    return sorted(seconds)[len(seconds) // 4]


def told(seconds: float) -> str:
    """A time as people write it."""
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


FIRST_ROUND = 64
"""Replays of a recording before the first round."""

NEVER = sys.maxsize
"""Replays at which nothing is asked any more."""

FACTOR = 8
CONFIRM = 8
"""Replays from a lost round to the next."""

WAIT = 8
"""Replays until the timed calls are asked again whether they are done."""

WAITS = 8
"""How often they are asked before unfinished ones are left out."""

BLOCK, WARM = 4, 1
"""Calls of a block that are timed, and those before them that are not."""

BLOCKS = 2
"""Blocks of each kind in a round."""

ROUNDS = 2
LONG_S = 20e-3
"""Seconds of a call from which on none comes before it, and ``FEWEST_LOST`` are a block."""


class Turn(Enum):
    """What a call is for."""

    AGAIN = "a replay before one that is timed"
    REPLAY = "a replay that is timed"
    WARM = "a plain call before one that is timed"
    PLAIN = "a plain call that is timed"
    NOTHING = "a replay like any other"
    LOST = "the recording is to be dropped"


def _are_alone(costs: list[Cost]) -> bool:
    """Whether the results of all calls died, and nobody has walked back through them."""
    return bool(costs) and all([cost.kind is Kind.THERE for cost in costs])


class Contest:
    """The rounds of one recording, with the figures of the last one that came to its end."""

    def __init__(self, *, challenges: bool = False) -> None:
        self.figures: Figures | None = None
        self._challenges = challenges
        self._gap = FIRST_ROUND
        self._lost = 0
        self._unwalked = False  # through no result of the last round was walked back
        self._trips: tuple[list[TimedCall], list[TimedCall]] = ([], [])
        self.restart()

    def restart(self) -> None:
        """Begin the round that is under way anew: replays are others than those that were timed."""
        for trip in (*self._trips[0], *self._trips[1]):
            trip.close()
        self._blocks = self._waits = 0
        self._trips = ([], [])
        self._begin(plain=False)

    def _begin(self, *, plain: bool) -> None:
        """Begin a block."""
        self._plain = plain
        self._warm, self._timed = (0, FEWEST_LOST) if self._is_long() else (WARM, BLOCK)

    @property
    def rests(self) -> bool:
        """Whether it is to be judged before there are further calls: a block of each kind is over."""
        return self._plain and self._timed <= 0

    def turn(self, replays: int, *, walks: bool = False) -> tuple[Turn, int]:
        """What the next call is for, and after how many replays to ask again."""
        if not self.rests:
            return self._step(), replays
        ours, theirs = ([trip.cost() for trip in trips] for trips in self._trips)
        ended = self._blocks == BLOCKS - 1
        if not any([self._waits_for(cost) for cost in (*ours, *theirs)]):
            alone = _are_alone(ours) and _are_alone(theirs)
            verdict = judge(ours, theirs, walks=walks and not (alone and self._unwalked))
            if ended or (verdict is not None and verdict.clear and not verdict.lost):
                before, self._unwalked = self._unwalked, alone
                return self._close(verdict, replays, soon=verdict is None and alone and not before)
        if ended:
            self._waits += 1
            return Turn.NOTHING, replays + WAIT
        self._blocks += 1
        self._begin(plain=False)
        return self._step(), replays

    def _step(self) -> Turn:
        turn = self.next
        self.advance()
        return turn

    @property
    def next(self) -> Turn:
        """What the next call of the block is for."""
        if self._plain:
            return Turn.WARM if self._warm > 0 else Turn.PLAIN
        return Turn.AGAIN if self._warm > 0 else Turn.REPLAY

    def advance(self) -> None:
        """That call is made; threads may make one at once."""
        if self._warm > 0:
            self._warm -= 1
            return
        self._timed -= 1
        if self._timed <= 0 and not self._plain:
            self._begin(plain=True)

    def retract(self) -> None:
        """A replay did not go the usual way, so it was not timed: another one is to be."""
        self._timed = 1 if self._plain else self._timed + 1
        self._plain, self._warm = False, 0

    def _waits_for(self, cost: Cost) -> bool:
        """Whether a call is not done. The device will be; nobody knows whether there will be a walk."""
        return cost.kind is Kind.QUEUED or (cost.kind is Kind.OPEN and self._waits < WAITS)

    def _is_long(self) -> bool:
        """Whether a call takes so long that it makes no difference what was before it."""
        last = self._trips[0][-1].call_seconds() if self._trips[0] else None
        return last is not None and last > LONG_S

    def add(self, turn: Turn, trip: TimedCall) -> None:
        """A call was timed."""
        self._trips[turn is Turn.PLAIN].append(trip)

    def _close(self, verdict: Verdict | None, count: int, *, soon: bool) -> tuple[Turn, int]:
        """Close the round; it has no verdict if too few calls could be compared.

        There is another one ``soon`` where nobody walked back: a second one in a row judges the calls alone.
        """
        self.restart()
        if soon:
            return Turn.NOTHING, count + FIRST_ROUND
        if verdict is None:
            self._gap *= FACTOR
            return Turn.NOTHING, count + self._gap
        self.figures = verdict.figures
        if self._challenges and not verdict.figures.won:
            return Turn.LOST, NEVER
        doubted, self._lost = self._lost > 0, self._lost + 1 if verdict.lost else 0
        if self._lost == ROUNDS or (verdict.lost and verdict.clear):
            return Turn.LOST, NEVER
        if self._lost:
            return Turn.NOTHING, count + CONFIRM
        self._gap *= 1 if doubted else FACTOR  # rounds that say different things are not enough
        return Turn.NOTHING, count + self._gap
