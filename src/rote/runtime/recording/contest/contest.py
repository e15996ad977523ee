"""Never slower: replays of a recording against plain calls, and the recording dropped if it loses.

What is compared is the cost of a call with the recording and without it, on calls that come anyway: the
larger of how long the host was busy and how long the device was, from the work queued before to the end of
its own. Nothing here waits (:class:`~...backends.protocol.base.Timing`). Where results require grad, the walk
back through them counts as well (:mod:`.roundtrip`).

After ``FIRST_ROUND`` replays of a recording there is a *round*: a replay and a plain call in turns, ``PAIRS``
of each, ``FEWEST`` where the replays win clearly, and ``FEWEST_LOST`` where they lose clearly. Then there is
one after ``FACTOR`` times as many replays, and so on. A round is lost if the median replay takes longer by
comes behind another of its kind, unless it is long: the first plain call after many replays finds caches and
the allocator as the replays left them.

Versions of one recording (:mod:`..tiers`) are compared in the same rounds. A version that differs only in how
some operations are calculated *challenges* the one before: it has to be faster by a hundredth, in one round.
A recording whose tiers are still to be made is not dropped for what its plain tier takes, which may be twice
as much: they are made at once, and the contest begins anew, once.

``docs/design.md`` says what is not measured, and which ways do not work.
"""

from __future__ import annotations

import sys
from enum import Enum

from .figures import Figures, Verdict, judge
from .roundtrip import Cost, Kind, RoundTrip

FIRST_ROUND = 64
"""Replays of a recording before the first round."""

NEVER = sys.maxsize
"""Replays at which nothing is asked any more."""

FACTOR = 8
CONFIRM = 16
"""Replays from a lost round to the next."""

WAIT = 8
"""Replays until the timed calls are asked again whether they are done."""

WAITS = 8
"""How often they are asked before unfinished ones are left out."""

PAIRS = 5
ROUNDS = 2
LONG_S = 20e-3
"""Seconds of a call from which on it need not follow another of its kind."""


class Turn(Enum):
    """What a call is for."""

    REPLAY = "a replay that is timed"
    WARM = "a plain call before one that is timed"
    PLAIN = "a plain call that is timed"
    NOTHING = "a replay like any other"
    LOST = "the recording is to be dropped"


class Contest:
    """The rounds of one recording, with the figures of the last one that came to its end."""

    def __init__(self, *, challenges: bool = False) -> None:
        self.figures: Figures | None = None
        self._challenges = challenges
        self._gap = FIRST_ROUND
        self._lost = 0
        self._trips: tuple[list[RoundTrip], list[RoundTrip]] = ([], [])
        self.restart()

    def restart(self) -> None:
        """Begin the round that is under way anew: replays are others than those that were timed."""
        for trip in (*self._trips[0], *self._trips[1]):
            trip.close()
        self._pairs = self._waits = 0
        self._next = Turn.REPLAY
        self._trips = ([], [])

    def turn(self, replays: int, *, walks: bool = False) -> tuple[Turn, int]:
        """What the next call is for, and after how many replays to ask again."""
        ended = self._pairs == PAIRS
        ours, theirs = ([trip.cost() for trip in trips] for trips in self._trips)
        if not any([self._waits_for(cost) for cost in (*ours, *theirs)]):
            verdict = judge(ours, theirs, walks=walks)
            if ended or (verdict is not None and verdict.clear):
                return self._close(verdict, replays)
        if ended:
            self._waits += 1
            return Turn.NOTHING, replays + WAIT
        if self._next is Turn.REPLAY:
            self._next = Turn.WARM
            return Turn.REPLAY, replays
        if self._next is Turn.WARM and not self._is_long():
            self._next = Turn.PLAIN
            return Turn.WARM, replays
        self._next = Turn.REPLAY
        self._pairs += 1
        return Turn.PLAIN, replays + 1  # after a replay that is not timed

    def retract(self, replays: int) -> int:
        """A replay did not go the usual way, so it was not timed; after how many replays to try again."""
        self._next = Turn.REPLAY
        return replays + WAIT

    def _waits_for(self, cost: Cost) -> bool:
        """Whether a call is not done. The device will be; nobody knows whether there will be a walk."""
        return cost.kind is Kind.QUEUED or (cost.kind is Kind.OPEN and self._waits < WAITS)

    def _is_long(self) -> bool:
        """Whether a call takes so long that it makes no difference what was before it."""
        last = self._trips[0][-1].call_seconds() if self._trips[0] else None
        return last is not None and last > LONG_S

    def add(self, turn: Turn, trip: RoundTrip) -> None:
        """A call was timed."""
        self._trips[turn is Turn.PLAIN].append(trip)

    def _close(self, verdict: Verdict | None, count: int) -> tuple[Turn, int]:
        """Close the round; it has no verdict if too few calls could be compared."""
        self.restart()
        if verdict is None:
            self._gap *= FACTOR
            return Turn.NOTHING, count + self._gap
        self.figures = verdict.figures
        if self._challenges and not verdict.figures.won:
            return Turn.LOST, NEVER
        self._lost = self._lost + 1 if verdict.lost else 0
        if self._lost == ROUNDS or (verdict.lost and verdict.clear):
            return Turn.LOST, NEVER
        if self._lost:
            return Turn.NOTHING, count + CONFIRM
        self._gap *= FACTOR
        return Turn.NOTHING, count + self._gap
