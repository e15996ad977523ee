"""Whether calls follow each other faster with rote or without it, whatever it is that takes the time.

Tracing is paid for by the ledger, and a contest compares a replay with a plain call. Neither sees what a
call costs besides: looks that find no recording, a recording for each result that is kept, a walk back
through many calls at once, gradients that others send meanwhile. So calls are made in windows of both kinds
by turns, and what counts is the time from one call to the next, with all that the caller does between.

- A round ends as soon as one kind is clearly faster: two windows of each. So those that win lose few replays.
  Else there are ``PAIRS``, which cost little, as both kinds are about as fast.
- Where plain calls follow each other faster, the next ones are all plain, until these have made up for what
  the round has lost. Then there is another round: a program may have come to what replays.
- A window in which a call was traced says nothing, nor does one with plain calls of a contest, or one that
  ends on another thread.
- Windows go by the number of the call, so they are the same ones on all ranks, and of all wrappers that are
  called by turns.

Without a device and other ranks the time of the thread counts: others may have the processor meanwhile, and
a loop that sleeps until its next step is no faster for what it saves.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from ...recording.contest import told

FIRST = 48
"""Calls before the first round, and between two that do not say the same."""

WINDOW, WARM = 4, 1
"""Calls of a window that are timed, and those before them: caches are as the others left them."""

LONGEST, LONG_S = 32, 10e-3
"""Calls of a window at most, and seconds from which on a window is not made longer."""

FEWEST, PAIRS = 2, 6
"""Windows of each kind that are compared, where all of one kind are shorter and where they are not."""

CLEAR, MARGIN, AGREE = 1.25, 1.02, 0.6
"""How many times longer windows are that are so clearly; that are at all, in this share of comparisons."""

FACTOR, MOST = 8, 4096
"""How many times later the next round is that says the same, and calls between two at most."""

SHARE = 0.02
"""Of the time of plain calls, what rounds may take that are lost."""

MOST_VOID = 4
"""Windows of a round that may say nothing."""


class Mark(NamedTuple):
    """What is known where a window begins or ends.

    Attributes:
        calls: Those so far.
        now: The time in seconds.
        others: Calls so far that are like none to come: traced ones, steps to optimise, those of contests.
        thread: Which thread calls.
    """

    calls: int
    now: float
    others: int
    thread: int


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
        self._begun: Mark | None = None  # where the window that is under way began
        self._timed: Mark | None = None  # and where its calls began that are timed
        self._times: tuple[list[float], list[float]] = ([], [])
        self._calls, self._taken_s = 0, 0.0  # of all windows that have said something
        self._window, self._gap, self._void, self._had_lost = WINDOW, FIRST, 0, False

    def turn(self, mark: Mark) -> None:
        """The calls that were left are made: what is with the next ones."""
        begun, timed = self._begun, self._timed
        if begun is None:
            self._times, self._calls, self._taken_s, self._void, self.lost = ([], []), 0, 0.0, 0, ""
            self._begin(mark, plainly=False)
        elif timed is None:
            self._timed, self.left = mark, self._window
        elif mark.calls <= timed.calls or (mark.others, mark.thread) != (begun.others, begun.thread):
            self._void += 1
            again = self._void <= MOST_VOID
            self._begin(mark, plainly=self.plainly) if again else self._end(lost=False, new=True)
        else:
            self._times[self.plainly].append((mark.now - timed.now) / (mark.calls - timed.calls))
            self._calls += mark.calls - begun.calls
            self._taken_s += mark.now - begun.now
            lost = self._judge() if self.plainly else None
            self._begin(mark, plainly=not self.plainly) if lost is None else self._end(lost=lost)

    def _begin(self, mark: Mark, *, plainly: bool) -> None:
        self._begun, self._timed = mark, None
        self.plainly, self.left = plainly, WARM

    def _judge(self) -> bool | None:
        """Whether plain calls follow each other faster; None if that is not known yet."""
        ours, plain = self._times
        if len(plain) < FEWEST:
            return None
        if min(ours) > CLEAR * max(plain):
            return True
        if min(plain) > CLEAR * max(ours):
            return False
        if len(plain) < PAIRS:
            return None
        longer = sum([one > other for one in ours for other in plain])
        return longer >= AGREE * len(ours) * len(plain) and self._median(ours) > MARGIN * self._median(plain)

    def _end(self, *, lost: bool, new: bool = False) -> None:
        """Close the round; what it took is made up for before the next one."""
        same = lost is self._had_lost and not new
        self._gap = min(FACTOR * self._gap, MOST) if same else FIRST
        self._begun, self.plainly, self.left = None, lost, self._gap
        if new or not self._times[True]:
            return
        self._had_lost = lost
        ours, plain = map(self._median, self._times)
        self.saved_s = plain - ours
        if lost:
            taken_s = self._taken_s - plain * self._calls
            self.left = max(self.left, math.ceil(taken_s / (SHARE * plain)))
            self.lost = f"from call to call it took {told(ours)}, and {told(plain)} plainly"
        if plain * self._window < LONG_S:
            self._window = min(2 * self._window, LONGEST)

    @staticmethod
    def _median(seconds: list[float]) -> float:
        return max(statistics.median(seconds), 1e-9)
