"""Never slower: replays of a recording against plain calls, and the recording dropped if it loses.

A graph is not always faster. Placing inputs and handing results out copies; a recording of a few
operations, or of many segments around host reads, may cost more than the launches it saves. Which it is
depends on the machine, so it is measured where it runs, on the calls that come anyway.

**What is compared** is the cost of a call with the recording and without it: a replay as it is usually made
(by the hot path, where there is one), and a call of the same key that runs plainly. The plain call includes
what rote takes for it, unless that is next to nothing (see :mod:`...engine.plain_path`). Observed calls say
nothing about either, since they run under a tracer.

**The cost of a call** is the larger of two times: how long the host was busy, and how long the device was,
from the work queued before to the end of its own. In a stream of calls the larger one is what each adds.
The device is asked with a pair of events on the current stream, which are read at a later call, when they
are done: nothing here waits. See :class:`~...backends.protocol.base.Timing`.

**Where results require grad**, the cost of a call is that of both ways: its own, and that of the walk back
through its results outside (``loss = g(x).sum(); loss.backward()``), where there is one; see
:mod:`.roundtrip`. Like is compared with like: calls that were walked with calls that were walked, and calls
whose results died with such calls. A loss has to be one in either comparison that there are enough calls for.
Where anybody has ever walked back, calls that were not say nothing alone; where nobody has (a policy called
without ``torch.no_grad()``), the call is all there is. A result that is held may be walked any time later:
it is waited for during ``WAIT * WAITS`` replays, and then left out. Such recordings lose oftener than others:
a few operations with a backward behind them do, on a GPU too. (Whole training steps need none of
that. They are calls, and a plain step leaves gradients and optimizer state as a replayed one does.)

**When.** A plain call in place of a replay is always right: it is what rote does with any call that it
cannot answer. But it is a slow one where the recording pays, so there are few, ever more seldom. After
``FIRST_ROUND`` replays of a recording there is a *round*: a replay and a plain call in turns, ``PAIRS`` of
each; where the replays win clearly, ``FEWEST`` pairs are enough. Then there is one after ``FACTOR`` times as
many replays, and so on. A round is lost if the median replay takes longer by more than ``MARGIN`` and by more
than ``LEAST_S``; then the next round follows soon, and only a recording that loses ``ROUNDS`` rounds in a row
is dropped. Medians, turns, the margin and the second round are for busy machines: a recording that is faster
loses twice in a row only if the noise is larger than what it gains.

**Versions of one recording** (:mod:`..tiers`) are compared in the same rounds: replays of the new version
take the place of replays, those of the one before that of plain calls. A version that differs only in how
some operations are calculated *challenges* the one before: it has to be faster by a hundredth, in one round.
Sixteen versions that are kept for being no slower could add up to one that is.

A recording whose tiers are still to be made is not dropped for what its plain tier takes, which may be
twice as much: they are made at once, and the contest begins anew, once.

**What follows.** The recordings of the key give their memory back, and the key runs plainly, with both
figures in the reason. Other keys go on. It is never tried again, until ``reset()``: to record costs many
times what the calls between could gain, and what lost twice in a row would lose again.

**What is not measured**, so never dropped:

- with ``keep=True``; in strict mode, where a plain call is an error; with ``verify``, which makes plain
  calls of its own; where a wrapper around makes the call, as ``rote.padded`` does in another shape;
- where the device has not the memory for a plain call beside the recording, and inside somebody's own
  capture;
- with collectives: such a call takes as long as the slowest rank, whatever this one does;
- with gradients under an autocast that goes on around the call: it keeps the casts of weights that a plain
  call made, and they would be stale in the next one;
- with gradients under saved-tensor hooks (activation checkpointing), where no call is a replay;
- walks of results that are walked in parts or more than once, and all of them in a PyTorch that does not say
  when a backward pass ends.

Each timed call comes behind another of its kind, unless it is long: the first plain call after many replays
finds caches, branch predictors and the allocator as the replays left them, and takes several times as long
as the second.

What does not work: to time the call that was observed (twenty times too slow), or to take the best time of
each (a single early replay, from warm caches, decides); to wait for the device (a pipeline of calls comes
to a halt, and that is then what is measured); to run the plain call within the locks (its backward may need
them on another thread); to compare the calls alone where somebody walks back (a replayed call is often the
faster one, and its walk back the slower).
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
LONG_S = 2e-3
"""Seconds of a call from which on it need not follow another of its kind."""


class Turn(Enum):
    """What a call is for."""

    REPLAY = "a replay that is timed"
    WARM = "a plain call before one that is timed"
    PLAIN = "a plain call that is timed"
    NOTHING = "a replay like any other"
    LOST = "the recording is to be dropped"


class Contest:
    """The rounds of one recording, with the figures of the last one that came to its end.

    Args:
        challenges: What is not faster in the first round has lost.
    """

    def __init__(self, *, challenges: bool = False) -> None:
        self.figures: Figures | None = None
        self._challenges = challenges
        self._gap = FIRST_ROUND
        self._lost = 0
        self._trips: tuple[list[RoundTrip], list[RoundTrip]] = ([], [])
        self._begin()

    def _begin(self) -> None:
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
        self._begin()
        if verdict is None:
            self._gap *= FACTOR
            return Turn.NOTHING, count + self._gap
        self.figures = verdict.figures
        if self._challenges and not verdict.figures.won:
            return Turn.LOST, NEVER
        self._lost = self._lost + 1 if verdict.lost else 0
        if self._lost == ROUNDS:
            return Turn.LOST, NEVER
        if self._lost:
            return Turn.NOTHING, count + CONFIRM
        self._gap *= FACTOR
        return Turn.NOTHING, count + self._gap
