"""Never slower: replays of a recording against plain calls, and the recording dropped if it loses.

A graph is not always faster. Placing inputs and handing results out copies; a recording of a few
operations, or of many segments around host reads, may cost more than the launches it saves. Which it is
depends on the machine, so it is measured where it runs, on the calls that come anyway.

**What is compared** is what a call costs with the recording and without it: a replay as it is usually made
(by the hot path, where there is one), and a call of the same key that runs plainly. To that counts what rote
takes for such a call, unless it is next to nothing (see :mod:`.plain_path`). Observed calls say nothing
about either, since they run under a tracer.

**The cost of a call** is the larger of two times: how long the host was busy, and how long the device was,
from the work queued before to the end of its own. In a stream of calls the larger one is what each adds.
The device is asked with a pair of events on the current stream, which are read at a later call, when they
are done: nothing here waits. See :class:`~rote.backends.base.Timing`.

**When.** A plain call in place of a replay is always right: it is what rote does with any call that it
cannot answer. But it is a slow one where the recording pays, so there are few, ever more seldom. After
``FIRST`` replays of a recording there is a *round*: a replay and a plain call in turns, ``PAIRS`` of each;
where the replays win clearly, ``FEWEST`` pairs are enough. Then there is one after ``FACTOR`` times as many
replays, and so on. A round is lost if the median replay takes longer by more than ``MARGIN`` and by more
than ``LEAST_S``; then the next round follows soon, and only a recording that loses ``ROUNDS`` rounds in a
row is dropped. Medians, turns, the margin and the second round are for busy machines: a recording that is
faster loses twice in a row only if the noise is larger than what it gains.

**What follows.** The recordings of the key give their memory back, and the key runs plainly, with both
figures in the reason. Other keys go on. It is never tried again, until ``reset()``: to record costs many
times what the calls between could gain, and what lost twice in a row would lose again.

**What is not measured**, so never dropped:

- with ``keep=True``; in strict mode, where a plain call is an error; with ``verify``, which makes plain
  calls of its own; with ``shapes="buckets"``, where the plain call has other shapes than the recording;
- where the caller or another recording is lent memory (``outputs="borrow"``, borrowed arguments): a plain
  call gives other memory, for which a chained recording would have to be made again;
- where a result requires grad and somebody has walked back through one: the cost lies in both together, and
  nobody can be asked when the walk through a plain result begins and ends. Where nobody has (a policy called
  without ``torch.no_grad()``), the forward is all there is. Whole training steps are measured: a plain step
  leaves gradients and optimizer state as a replayed one does;
- where the device has not the memory for a plain call beside the recording, and inside somebody's own
  capture;
- within a process group: collectives have to be launched from graphs on all ranks or on none;
- with gradients under an autocast that goes on around the call: it keeps the casts of weights that a plain
  call made, and they would be stale in the next one.

Each timed call comes behind another of its kind, unless it is long: the first plain call after many replays
finds caches, branch predictors and the allocator as the replays left them, and takes several times as long
as the second.

What does not work: to time the call that was observed (twenty times too slow), or to take the best time of
each (a single early replay, from warm caches, decides); to wait for the device (a pipeline of calls comes
to a halt, and that is then what is measured); to run the plain call within the locks (its backward may need
them on another thread).
"""

from __future__ import annotations

import statistics
import sys
from enum import Enum
from typing import NamedTuple

from ..backends.base import Timing

FIRST = 64
"""Replays of a recording before the first round."""

FACTOR = 8
CONFIRM = 16
"""Replays from a lost round to the next."""

WAIT = 8
"""Replays until the device is asked again whether it is done."""

PAIRS = 5
FEWEST = 2
ROUNDS = 2
CLEAR = 1.5
MARGIN = 1.05
LEAST_S = 2e-6
LONG_S = 2e-3
"""Calls from which on none has to be made before one that is timed."""

NEVER = sys.maxsize


class Turn(Enum):
    """What a call is for."""

    REPLAY = "a replay that is timed"
    WARM = "a plain call before one that is timed"
    PLAIN = "a plain call that is timed"
    NOTHING = "a replay like any other"
    LOST = "the recording is to be dropped"


class Figures(NamedTuple):
    """Medians of a round.

    Attributes:
        replay_s: Of the replays, in seconds.
        plain_s: Of the plain calls.
    """

    replay_s: float
    plain_s: float

    @property
    def lost(self) -> bool:
        """Whether the replays take longer."""
        return self.replay_s > MARGIN * self.plain_s and self.replay_s - self.plain_s > LEAST_S

    def __str__(self) -> str:
        return f"a replay took {_told(self.replay_s)} and a plain call {_told(self.plain_s)}"


class Contest:
    """The rounds of one recording.

    Attributes:
        figures: Those of the last round that came to its end.
    """

    def __init__(self) -> None:
        self.figures: Figures | None = None
        self._gap = FIRST
        self._lost = 0
        self._begin()

    def _begin(self) -> None:
        self._pairs = 0
        self._next = Turn.REPLAY
        self._timings: tuple[list[Timing], list[Timing]] = ([], [])

    def turn(self, replays: int) -> tuple[Turn, int]:
        """What the next call is for, and after how many replays to ask again.

        Args:
            replays: Of the recording, so far.
        """
        times = self._times()
        ended = self._pairs == PAIRS
        if times is not None and (ended or _is_clear(*times)):
            return self._judge(*times, replays)
        if ended:
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
        """A replay was not the usual one, so it was not timed; after how many replays to try again."""
        self._next = Turn.REPLAY
        return replays + WAIT

    def _is_long(self) -> bool:
        """Whether a call takes so long that it makes no difference what was before it."""
        last = self._timings[0][-1].seconds() if self._timings[0] else None
        return last is not None and last > LONG_S

    def add(self, turn: Turn, timing: Timing) -> None:
        """A call was timed."""
        self._timings[turn is Turn.PLAIN].append(timing)

    def _times(self) -> tuple[list[float], list[float]] | None:
        """Seconds of replays and of plain calls; None while the device has not done all of them."""
        found = [[timing.seconds() for timing in timings] for timings in self._timings]
        replays, plain = [[value for value in values if value is not None] for values in found]
        complete = len(replays) + len(plain) == sum(map(len, found))
        return (replays, plain) if complete else None

    def _judge(self, replays: list[float], plain: list[float], count: int) -> tuple[Turn, int]:
        """Close the round."""
        self._begin()
        if min(len(replays), len(plain)) >= FEWEST:  # fewer if calls raised, or turned out to be no replays
            self.figures = Figures(statistics.median(replays), statistics.median(plain))
            self._lost = self._lost + 1 if self.figures.lost else 0
        if self._lost == ROUNDS:
            return Turn.LOST, NEVER
        if self._lost:
            return Turn.NOTHING, count + CONFIRM
        self._gap *= FACTOR
        return Turn.NOTHING, count + self._gap


def _is_clear(replays: list[float], plain: list[float]) -> bool:
    """Whether the replays win by so much that more calls would tell nothing new."""
    return min(len(replays), len(plain)) >= FEWEST and min(plain) > CLEAR * max(replays)


def _told(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
