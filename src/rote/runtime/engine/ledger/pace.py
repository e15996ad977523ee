"""Whether calls follow each other faster with rote or without it, whatever it is that takes the time.

Tracing is paid for by the ledger, and a contest compares a replay with a plain call. Neither sees what a
call costs besides: looks that find no recording, a recording for each result that is kept, a walk back
through many calls at once, gradients that others send meanwhile. So calls are made in windows of both kinds
by turns, and what counts is the time from one call to the next, with all that the caller does between.

- No call is made plainly where calls follow each other faster than a plain one takes by itself, as a contest
  has measured it: what replays ten times as fast is not to wait for ten plain calls.
- Else a round ends as soon as one kind is clearly faster: from three windows of each on, or from one where
  calls take twice as long. So those that win lose few replays. Else there are more, which cost little, as
  both kinds are about as fast.
- Something may happen in each tenth call: data are loaded, a target is updated, the policy is trained.
  Windows by turns would meet it in those of one kind alone, so they come in the order of Thue and Morse, and
  how long they are was drawn. Means count where they differ by more than chance, as each fifth call may be
  the one that is slow; else medians do.
- Where plain calls follow each other faster, the next ones are all plain. Then there is another round: a
  program may have come to what replays. None comes before the calls have made up for what the last one took.
- A call that was traced says nothing, nor does a plain one of a contest, or one behind which another thread
  calls.
- Windows go by the number of the call, so they are the same ones on all ranks, and of all wrappers that are
  called by turns.

Without a device and other ranks the time of the thread counts: others may have the processor meanwhile, and
a loop that sleeps until its next step is no faster for what it saves.
"""

from __future__ import annotations

import math
import statistics
from random import Random
from typing import NamedTuple

from ...recording.contest import told

FIRST = 256
"""Calls before the first round, and between two that do not say the same."""

WARM = 1
"""Calls of a window before those that are timed: caches are as the others left them."""

TOGETHER_S, MOST_TOGETHER, SHORT = 0.5e-3, 8, 2
"""Short calls are timed together, so many at most, and so often in a window: to look at the clock before each
empties the processor's caches."""

LONG_S = 20e-3
"""Seconds of a call from which on one is a window, and none comes before it."""

FEWEST, PAIRS, MOST_PAIRS = 3, 6, 24
"""Windows of each kind that are compared where one kind is clearly faster, and where not: in the first round,
and then twice as many in each."""

TWICE, CLEAR, MARGIN = 2.0, 1.25, 1.02
"""How many times longer calls are that are so in two windows; that are so clearly; that are at all."""

ORDER = tuple(number.bit_count() % 2 == 1 for number in range(2 * MOST_PAIRS))
LENGTHS = tuple(Random(5).choices((3, 4, 5, 6), k=len(ORDER)))
"""Which windows are those of plain calls, and how many calls of each are timed: the same on all ranks."""

SURE, LIKELY = 3.0, 2.0
"""By how many of their standard errors means differ."""

FACTOR, MOST = 8, 4096
"""How many times later the next round is that says the same, and calls between two at most."""

SHARE = 0.02
"""Of the time of plain calls, what rounds may take that are lost."""

MOST_VOID = 8
"""Calls of a round that may say nothing."""


class Mark(NamedTuple):
    """What is known before a call.

    Attributes:
        calls: Those so far.
        now: The time in seconds.
        others: Calls so far that are like none to come: traced ones, steps to optimise, those of contests.
        thread: Which thread calls.
        alone_s: Seconds of a plain call by itself, where replays were compared with it; none if not.
    """

    calls: int
    now: float
    others: int
    thread: int
    alone_s: float = 0.0


class Pace:
    """The windows of one wrapper.

    Attributes:
        left: Calls from the last turn to the next one.
        plainly: Whether these run plainly.
        lost: Why they do, if it is no window.
        saved_s: Seconds that a call was shorter with rote in the last round; None before one.
    """

    def __init__(self) -> None:
        self.left = FIRST
        self.plainly = False
        self.lost = ""
        self.saved_s: float | None = None
        self._last: Mark | None = None  # before the last call of the round that is under way
        self._asked_s = 0.0  # for how long it was asked in the round
        self._times: tuple[list[float], list[float]] = ([], [])
        self._windows = self._warm = self._timed = self._void = 0
        self._most, self._gap, self._had_lost = PAIRS, FIRST, False

    @property
    def is_in_round(self) -> bool:
        """Whether it is asked before each call."""
        return self._last is not None

    def go_on(self, now: float) -> None:
        """The next call is about to be made, at a time in seconds."""
        if self._last is not None:
            self._asked_s += now - self._last.now
            self._last = self._last._replace(now=now)

    def turn(self, mark: Mark) -> None:
        """The calls that were left are made: what is with the next ones."""
        last, self._last = self._last, mark
        if last is None:
            self._times, self._windows, self._void, self._asked_s = ([], []), 0, 0, 0.0
            self.left, self.lost = 1, ""
            self._begin(0.0)
            return
        calls, seconds = mark.calls - last.calls, mark.now - last.now
        if calls <= 0 or (mark.others, mark.thread) != (last.others, last.thread):
            self._void += 1
            if self._void > MOST_VOID:
                self._end(lost=False, new=True)
            return
        self.left = min(max(int(TOGETHER_S * calls / max(seconds, 1e-9)), 1), MOST_TOGETHER)
        if self._warm:
            self._warm -= 1
            return
        self._times[self.plainly].append(seconds / calls)
        self._timed -= 1
        if self._timed:
            return
        self._windows += 1
        if self._windows == 1 and max(self._times[False]) < mark.alone_s:
            self._times[True].append(mark.alone_s)
            self._end(lost=False)
            return
        lost = self._judge() if self._windows % 2 == 0 else None
        self._begin(seconds / calls) if lost is None else self._end(lost=lost)

    def _begin(self, call_s: float) -> None:
        """Begin a window."""
        self.plainly = ORDER[self._windows]
        self._warm, self._timed = (WARM, LENGTHS[self._windows]) if call_s < LONG_S else (0, 1)
        if self.left > 1:
            self._timed = SHORT

    def _judge(self) -> bool | None:
        """Whether plain calls follow each other faster; None if that is not known yet."""
        pairs = self._windows // 2
        ours, plain = map(statistics.median, self._times)
        if self._are_apart(TWICE, rare=1):
            return ours > plain
        if pairs < FEWEST:
            return None
        mean, plain_mean = map(statistics.fmean, self._times)
        differ_s = abs(mean - plain_mean)
        error_s = math.sqrt(sum([statistics.variance(times) / len(times) for times in self._times]))
        if differ_s > SURE * error_s and max(mean, plain_mean) > CLEAR * min(mean, plain_mean):
            return mean > plain_mean
        if (mean > plain_mean) is (ours > plain) and self._are_apart(
            CLEAR, rare=len(self._times[False]) // 4
        ):
            return ours > plain
        if pairs < self._most:
            return None
        if differ_s > LIKELY * error_s:
            ours, plain = mean, plain_mean
        return ours > MARGIN * plain

    def _are_apart(self, times: float, rare: int) -> bool:
        """Whether calls of one kind take so many times as long as the others, but for a few of each."""
        one, other = map(sorted, self._times)
        rare = min(rare, len(one) - 1, len(other) - 1)
        return one[rare] > times * other[-1 - rare] or other[rare] > times * one[-1 - rare]

    def _end(self, *, lost: bool, new: bool = False) -> None:
        """Close the round; what it took is made up for before the next one."""
        same = lost is self._had_lost and not new
        self._gap = min(FACTOR * self._gap, MOST) if same else FIRST
        self._last, self.plainly, self.left = None, lost, self._gap
        if new:
            return
        self._had_lost, self._most = lost, min(2 * self._most, MOST_PAIRS)
        ours, plain = (max(statistics.fmean(times), 1e-9) for times in self._times)
        self.saved_s = plain - ours
        taken_s = self._asked_s + max(ours - plain, 0.0) * len(self._times[False])
        self.left = max(self.left, math.ceil(taken_s / (SHARE * plain)))
        if lost:
            self.lost = f"from call to call it took {told(ours)}, and {told(plain)} plainly"
