"""What tracing may cost: one ledger for each callable, in seconds.

A traced call takes longer than a plain one, and pays if the same call comes again, which nobody knows. So the
time of tracing is bounded by the time of the calls themselves: a program that settles is recorded within its
first calls, and one that never settles is looked at as often as the bound allows. ``docs/call.md`` has what
is free, earned and spent. Why it is so:

- **Free.** A call that records takes a free trace back, unless ``FREE_RECORDINGS`` were made since a replay,
  or it met a value that no call had: where sizes are new in each call, each second one records a way that no
  further call goes. A replay makes up for one recording and one lesson, and not for all: of a detector's
  calls one in ten happens to find as many boxes as another one.
- **Waits.** Nearly all programs that settle do so before ``AT_ONCE`` calls were traced in vain. Calls that
  complete an observation wait from ``COMPLETED_AT_ONCE`` on only, as they show that calls come again.
- **Lengths.** A loop over positions comes to each of them once before it comes to one again, so
  ``FREE_AHEAD`` recordings ahead (:mod:`..other_lengths`) are free. No other call waits for them.
- **Earned.** Until a contest has measured what a replay saves, it is taken from replays that came the general
  way. No more is kept than ``MOST`` traced calls cost: a program that was replayed for a week may not trace
  for a day.
- **Spent.** A call is traced if the next one like it is paid for, so the bound holds at any time.
- **Optimising.** No step is free, or a program of short calls would be slower than plain just when it was
  recorded.
- **New keys.** Once half of what is free is spent, a key has to come twice, and once nothing is, the call
  that records it has to be paid for, too. Else keys that never come again would spend what is earned, and
  those that do would be observed, and none be recorded.
- **Rests.** To find out that a call is not to be traced takes tens of microseconds, so where nothing is
  replayed calls are left alone until they have earned the next look. What a hot path leaves to be measured is
  looked at.
- **Parts** have cost as much already, as the callable around: they get less for nothing, and nothing of it
  waits.

What does not work: to count calls instead of seconds (a traced call takes 3 times as long as a plain one, or
100 times); to wait for the device (a pipeline of calls comes to a halt). The host's time of a call that only
queues work is too short, which errs in favour of plain calls.
"""

from __future__ import annotations

import math
from collections import OrderedDict

FREE_MISSES = 2
"""Traces of one key that may record nothing, however seldom it comes."""


class Misses:
    """Calls of one key that none of its recordings answers."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._met = self._in_vain = self._left = 0

    def admit(self) -> bool:
        """A call is one of them: whether it may be traced."""
        self._met += 1
        if self._left == 0:
            return True
        self._left -= 1
        return False

    def add_vain(self) -> None:
        """One was traced, and recorded nothing."""
        self._in_vain += 1
        further = self._in_vain - FREE_MISSES - int(FREE_TRACES * self._ledger.share_of(self._met))
        if further >= 0 and self._ledger.bounded:
            self._left = min(1 << further, LONGEST_REST)

    def forget(self) -> None:
        """A call has recorded something."""
        self._in_vain = self._left = 0

    def __str__(self) -> str:
        return f"{self._in_vain} calls that no recording answers were traced, and nothing came of it"


FREE_CALLS = 50
FREE_TRACES = 16
"""Traced calls that record nothing, while they are free."""
FREE_IN_PARTS = FREE_TRACES // 2
"""The same in all parts of a callable, which comes to them once its own have recorded nothing."""


class Means:
    """What several ledgers may spend together.

    Attributes:
        earned_s: Seconds that were earned and not spent; less than none where too much was spent.
        taken_s: Seconds that were taken in all, what was free among them.
        lessons: Traced calls, and steps to optimise.
    """

    def __init__(self) -> None:
        self.earned_s = self.taken_s = 0.0
        self.lessons = 0
        self._in_vain = 0
        self._calls = 0

    def earn(self, seconds: float, most: float) -> None:
        """Seconds were earned, of which no more than ``most`` are kept."""
        self.earned_s = min(self.earned_s + seconds, max(most, self.earned_s))

    def spend(self, seconds: float, *, free: bool = False) -> None:
        """Seconds were taken, and spent unless they were free."""
        self.taken_s += seconds
        if not free:
            self.earned_s -= seconds

    def add_vain(self, traces: int) -> None:
        """So many more traces have recorded nothing; fewer, if it is negative: one was completed."""
        self._in_vain += traces

    def add_call(self) -> None:
        """The callable around was called."""
        self._calls += 1

    @property
    def has_free(self) -> bool:
        """Whether a trace of a part is free."""
        return self._calls < FREE_CALLS and self._in_vain < FREE_IN_PARTS


FREE_KEYS = FREE_TRACES // 2
"""How many of these are for keys that come for the first time."""

AT_ONCE = FREE_TRACES // 2
"""How many of these do not wait."""

COMPLETED_AT_ONCE = FREE_TRACES * 3 // 4
"""After how many calls do not wait that complete what was observed."""

WAIT = 0.25
"""How long the next one waits, in traced calls; each further one waits twice as long."""

FREE_RECORDINGS = FREE_TRACES // 4
"""How many recordings without a replay take back what their observation took."""

FREE_LESSONS = FREE_TRACES // 2
"""The same for calls that have only learned something, without a recording or a replay."""

FREE_AHEAD = 2 * FREE_TRACES
"""How many may be those of calls that are recorded ahead, with all others."""

AHEAD_AT_ONCE = FREE_AHEAD * 3 // 4
"""How many of these do not wait."""

FREE_WRAPPERS = 64
"""Wrappers that share a ledger, and add to what is free."""

FREE_PART_TRACES = 4
"""The same for one part of a callable."""

SHARE = 0.03
"""Of the time of plain calls, what tracing may take. All that rote takes is more: benchmarks/unsettled.py."""

EARLY_CALLS = 500
LATE_SHARE = 0.015
"""The same after so many calls."""

REINVESTED = 0.75
"""Of the time that replays save, what tracing may take."""

FOR_WORK = 0.25
"""Of the time that replays save, what optimising may take."""

FIRST_WORK_S = 0.25
"""What the first step to optimise is taken for at least: compilers are started in it. Short calls earn that
first: the last of 200 calls of the zoo's Mamba take a quarter of plain ones (``nvidia-h200/zoo.json``)."""

INVESTED = 0.05
"""Of the time of replays, what optimising may take besides."""

MOST = 32
"""Traced calls that may be paid for in advance."""

FREE_SEARCHES = 2
"""Questions to the garbage collector that are not paid for."""

PATH_S = 75e-6
"""What a plain path takes for a call that it answers, with what the next ones lose by it: 30 to 75 us between
calls of 4 to 70 us, whose caches it empties (``benchmarks/slower.py``, host); 4 us in a row."""

PATH_SHARE = 0.005
"""Of the time of plain calls, what plain paths may take in the long run."""

LONGEST_REST = 4096
"""Calls that are left alone at most, before one is looked at; replays, before work on them is thought of."""

USUAL_PRICE = 10.0
"""A traced call in plain calls, where nothing was timed yet."""

REMEMBERED = 256
"""Keys that came once."""


class Ledger:
    """What the traced calls of one callable have cost, and what its other calls have earned.

    The wrappers of one method on all its instances share one. An unbounded ledger allows every trace.

    Args:
        bounded: Whether anything is bounded.
        of: The ledger of the callable around, if this is that of a part.
        means: What all parts of that callable may spend.
    """

    def __init__(self, *, bounded: bool = True, of: Ledger | None = None, means: Means | None = None) -> None:
        self.bounded = bounded
        self._means = means or Means()
        self._is_part = means is not None
        self._whole = self._taken = 1.0 if of is None else of.left_to_parts
        self._in_vain = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        if self._is_part:
            self._means.add_vain(-self._in_vain)
        else:
            self._means = Means()
        self._calls = self._traced = self._in_vain = self._replayed = self._unpriced = 0
        self._wrappers = 1
        self._trace_s = self._look_s = self._plain_s = self._search_s = 0.0
        self._replay_s = self._price = self._work_s = self._for_work_s = 0.0
        self._searches = self._used = self._ahead = 0
        self._most_saved_s = math.inf
        self._since = 0  # the last traced call
        self._unused = self._lessons = 0  # recordings, and calls that learned something, less the replays
        self._compared = False
        self._met: OrderedDict[int, None] = OrderedDict()

    # ------------------------------------------------------------------ what happened

    def add_plain(self, seconds: float) -> None:
        """A call ran plainly."""
        self._add_calls(1)
        self._plain_s = seconds if not self._plain_s else (self._plain_s + seconds) / 2
        self._earn(self._share() * seconds)
        self._earn_by_replays()

    def add_rest(self, calls: int) -> None:
        """Calls ran plainly, untimed."""
        self._add_calls(calls)
        self._earn(self._share() * self._plain_s * calls)

    def _add_calls(self, count: int) -> None:
        self._calls += count
        self._since += count

    def add_look(self, seconds: float) -> None:
        """A call was looked at, and then left to run plainly."""
        self._look_s = seconds
        self._means.spend(seconds, free=self.is_free)

    def add_wrapper(self) -> None:
        """One more wrapper has its first call."""
        self._wrappers = min(self._wrappers + 1, FREE_WRAPPERS)

    def add_trace(
        self,
        seconds: float,
        *,
        recorded: bool,
        learned: bool = False,
        ahead: bool = False,
        closed: bool = False,
    ) -> None:
        """A call was traced.

        Args:
            recorded: It has completed what an earlier call has observed, or is ``ahead``.
            learned: It has found a number to change, or done what an earlier call has done.
            ahead: It was recorded by what calls at other lengths do.
            closed: Those are few lengths that come again.
        """
        free = self._is_free_ahead(closed=closed) if ahead else self._is_free(completes=recorded)
        surplus = max(seconds - self._plain_s, 0.0)
        self._price, self._since = 0.0, 0
        self._trace_s = surplus if not self._traced else (self._trace_s + surplus) / 2
        self._calls += 1
        self._traced += 1
        self._means.lessons += 1
        if recorded:
            comes_again = not ahead and self._unused < self._of_all(FREE_RECORDINGS)
        else:
            comes_again = learned and self._lessons < self._of_all(FREE_LESSONS)
        self._add_vain(-1 if comes_again else 1)
        self._ahead += recorded and ahead
        self._unused += recorded
        self._lessons = max(self._lessons - 1, 0) if recorded else self._lessons + learned
        self._means.spend(surplus, free=free)

    def add_use(self) -> None:
        """What was recorded ahead has been replayed."""
        self._used += 1
        self._ahead -= 1
        self._add_vain(-1)

    def add_dropped(self, ways: int) -> None:
        """A recording of so many ways was dropped, as further ones came: they were recorded in vain."""
        self._add_vain(ways)

    def _add_vain(self, traces: int) -> None:
        traces = max(traces, -self._in_vain)
        self._in_vain += traces
        self._means.add_vain(traces)

    def add_work(self, seconds: float) -> None:
        """A step was made to optimise a recording."""
        self._means.lessons += 1
        self._work_s = seconds
        self._for_work_s -= seconds
        self._means.spend(seconds, free=True)

    def add_search(self, seconds: float) -> None:
        """It was asked who holds what was replaced."""
        self._searches += 1
        self._search_s = seconds
        self._means.spend(seconds, free=self._searches <= FREE_SEARCHES)

    def add_replays(self, count: int) -> None:
        """Calls were replayed."""
        self._add_calls(count)
        self._replayed += count
        self._unpriced += count
        self._unused, self._lessons = max(self._unused - count, 0), max(self._lessons - count, 0)
        self._earn_by_replays()

    def time_replay(self, seconds: float) -> None:
        """A replay took this long, with all that was done for it."""
        if not self._compared:
            self._replay_s = seconds if not self._replay_s else (self._replay_s + seconds) / 2

    def compare(self, replay_s: float, plain_s: float) -> None:
        """A contest has measured a replay and a plain call."""
        self._compared = True
        self._plain_s, self._replay_s = min(self._plain_s or plain_s, plain_s), replay_s

    def note_saved(self, seconds: float) -> None:
        """As far as the time from one call to the next tells, a replay saves no more than this."""
        self._most_saved_s = max(seconds, 0.0)

    def _earn_by_replays(self) -> None:
        """Replays earn once it is known what a plain call takes."""
        if self._plain_s:
            self._earn(REINVESTED * self._saved_s * self._unpriced)
            self._for_work_s += self._replay_earns_for_work_s * self._unpriced
            self._unpriced = 0

    @property
    def _saved_s(self) -> float:
        """What a replay saves."""
        return min(max(self._plain_s - self._replay_s, 0.0), self._most_saved_s)

    @property
    def _replay_earns_for_work_s(self) -> float:
        return FOR_WORK * self._saved_s + INVESTED * self._replay_s

    def _earn(self, seconds: float) -> None:
        most = max(MOST * self._trace_s, self._price * self._plain_s, self._search_s)
        self._means.earn(seconds, most)

    # ------------------------------------------------------------------ what follows

    def allows(self, *, completes: bool = False) -> bool:
        """Whether a call may be traced. Where no plain call was timed yet, the next one is to be.

        With ``completes`` the call would record what an earlier one has observed.
        """
        if self._is_free(completes=completes):
            return True
        return self._plain_s > 0.0 and self._means.earned_s >= self._trace_s

    @property
    def allows_search(self) -> bool:
        """Whether it may be asked who holds what was replaced."""
        free = not self.bounded or self._searches < FREE_SEARCHES
        return free or self._means.earned_s >= self._search_s

    @property
    def allows_work(self) -> bool:
        """Whether the next step to optimise a recording may be made."""
        return not self.bounded or self._for_work_s >= self._next_work_s

    def replays_for_work(self, unknown: int) -> int:
        """How many more replays pay for that step, ``LONGEST_REST`` at most; so many if that is unknown."""
        missing_s, each_s = self._next_work_s - self._for_work_s, self._replay_earns_for_work_s
        return min(math.ceil(missing_s / each_s), LONGEST_REST) if self._plain_s and each_s else unknown

    @property
    def _next_work_s(self) -> float:
        """What the next such step takes, as far as is known."""
        return self._work_s or max(self._trace_s, FIRST_WORK_S)

    @property
    def replays_for_trace(self) -> int:
        """How many replays pay for a traced call, as far as is known; ``LONGEST_REST`` at most."""
        each_s = REINVESTED * self._saved_s if self._plain_s else 0.0
        return min(math.ceil(self._trace_s / each_s), LONGEST_REST) if each_s else LONGEST_REST

    def replays_in(self, seconds: float, most: int) -> int:
        """How many replays there are in some time, as far as is known: one at least, ``most`` at most."""
        return max(1, min(int(seconds / self._replay_s), most)) if self._replay_s else most

    def admits(self, key: int, *, ahead: bool = False, closed: bool = False) -> bool:
        """Whether the first traced call of a key may be made.

        Args:
            key: Its hash. If two keys have the same one, one is traced too soon.
            ahead: The call would be recorded, by what calls at other lengths do.
            closed: They are few lengths that come again.
        """
        few = self._is_part or not self.bounded or self._in_vain < FREE_KEYS + self._wrappers - 1
        if (few and self._is_free()) or (ahead and self._is_free(ahead=True)):
            return True
        if key not in self._met:
            self._met[key] = None
            if len(self._met) > REMEMBERED:
                self._met.popitem(last=False)
            return False
        free = self._is_free_ahead(closed=closed) if ahead else self._is_free()
        traces = 1 if ahead else 2  # until it is replayed
        if not (free or (self.allows() and self._means.earned_s >= traces * self._trace_s)):
            return False
        del self._met[key]
        return True

    @property
    def price(self) -> float:
        """What a traced call has cost, in plain calls; a guess if that is not known."""
        return self._trace_s / self._plain_s if self.is_priced else USUAL_PRICE

    @property
    def is_priced(self) -> bool:
        """Whether both were timed."""
        return self._plain_s > 0.0 and self._traced > 0

    def pays(self, price: float) -> bool:
        """Whether plain calls have earned a traced call that costs as much as so many of them.

        Until a call is traced, as much is kept of what they earn.
        """
        self._price = max(self._price, price)
        return not self.bounded or (self._plain_s > 0.0 and self._means.earned_s >= price * self._plain_s)

    def share_of(self, calls: int) -> float:
        """What share of all calls so many are."""
        return min(calls / max(self._calls, 1), 1.0)

    @property
    def is_free(self) -> bool:
        """Whether tracing costs nothing yet, at once or in a while."""
        return self._is_free(waits=False)

    @property
    def completes(self) -> bool:
        """Whether it costs nothing to record what was observed."""
        return self._is_free(completes=True)

    @property
    def is_vain(self) -> bool:
        """Whether as many traced calls as are free for a part have recorded nothing."""
        return self._in_vain >= FREE_PART_TRACES

    @property
    def left_to_parts(self) -> float:
        """What parts may take of the share of this ledger."""
        return self._whole / 2

    def share_with_parts(self, *, shares: bool) -> None:
        """Leave half of the share to parts, or take it back."""
        self._taken = self._whole - self.left_to_parts if shares else self._whole

    @property
    def is_paced(self) -> bool:
        """Whether it is asked if calls follow each other faster plainly: parts go with what they are in."""
        return self.bounded and not self._is_part

    @property
    def alone_s(self) -> float:
        """Seconds of a plain call by itself, where replays were compared with it; none if not."""
        return self._plain_s if self._compared else 0.0

    @property
    def lessons(self) -> int:
        """Traced calls, and steps to optimise."""
        return self._means.lessons

    @property
    def owes(self) -> bool:
        """Whether more was spent than earned, so that even a look is too dear."""
        return self._means.earned_s < 0.0

    def rest(self) -> int:
        """Calls that need no look where nothing is replayed, since nothing more could come of it.

        While tracing is free, those take as long as the look.
        """
        trace_s = 0.0 if self.is_free else self._trace_s - self._means.earned_s
        return self._calls_that_earn(max(trace_s, self._look_s))

    def rest_from_looks(self) -> int:
        """Calls that pay for the look, where something may be replayed."""
        return self._calls_that_earn(self._look_s)

    def rest_from_paths(self) -> int:
        """Calls that pay for one that a plain path answers, in the long run."""
        return min(int(PATH_S / (PATH_SHARE * self._plain_s)), LONGEST_REST) if self._plain_s else 0

    def _calls_that_earn(self, seconds: float) -> int:
        if not (self.bounded and self._plain_s):
            return 0
        share = 1.0 if self.is_free else self._share()
        return min(int(seconds / (share * self._plain_s)), LONGEST_REST)

    def __str__(self) -> str:
        return f"tracing may take {100 * self._share():g} % of the time of plain calls, and has taken that"

    def _is_free_ahead(self, *, closed: bool) -> bool:
        return self._is_free(ahead=True) or (closed and self._is_free_late(FREE_TRACES + self._used))

    def _is_free(self, *, completes: bool = False, ahead: bool = False, waits: bool = True) -> bool:
        if not self.bounded:
            return True
        if self._is_part:
            return self._means.has_free and self._in_vain < FREE_PART_TRACES
        if self._calls - self._replayed >= FREE_CALLS * self._wrappers:
            return completes and self._is_free_late(AT_ONCE + 1)
        if self._in_vain >= self._of_all(FREE_AHEAD if ahead else FREE_TRACES):
            return False
        return not waits or self._wait_s(completes=completes, ahead=ahead) <= 0.0

    def _is_free_late(self, most: int) -> bool:
        """Whether it is free to record what is known, with less than so many traces in vain."""
        early = self._calls - self._replayed < max(FREE_CALLS * self._wrappers, EARLY_CALLS)
        return early and not self._is_part and self._in_vain < self._of_all(most)

    def _wait_s(self, *, completes: bool = False, ahead: bool = False) -> float:
        """How long plain calls still have to take before the next trace is free; none if that is over."""
        at_once = AHEAD_AT_ONCE if ahead else COMPLETED_AT_ONCE if completes else AT_ONCE
        further = self._in_vain - (0 if ahead else self._ahead) - self._of_all(at_once)
        return WAIT * self._trace_s * 2**further - self._plain_s * self._since if further >= 0 else 0.0

    def _of_all(self, traces: int) -> int:
        """So many for one instance, and one more for each further one."""
        return traces + self._wrappers - 1

    def _share(self) -> float:
        return self._taken * (SHARE if self._calls < EARLY_CALLS else LATE_SHARE)
