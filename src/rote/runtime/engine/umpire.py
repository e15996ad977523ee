"""Makes the calls that are timed; see :mod:`..recording.contest`.

Replays are timed against plain calls, and replays of one tier against those of the other: the same rounds,
the same clock, the same verdict.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from ...base import user_site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import NOT_MINE, Admission, Call
from ..backends.protocol import Backend
from ..program import REPLAYED, Homes, Result, Tally, saving_is_hooked
from ..recording import FIRST_TIER, Recording
from ..recording.contest import FIRST_ROUND, NEVER, WAIT, Contest, RoundTrip, Turn, Upstream, told
from ..replay import Counts, TimedPath
from .choice import is_tracked
from .specialization import Specialization
from .states import LifeEvent, State

EARLY_ROUND = 1
"""Replays before the first comparison where another key has lost."""

SEVERAL, SOON_ROUND = 2, 8
"""From so many recordings on the first one is compared after so few replays, as they share the calls."""

MANY = 4
"""Keys that replay as many operations from which on they are compared together, as each comes rarely."""

MOST_CALLS = 0.9
"""Share of all calls from which a key that runs plainly is left alone, and not looked for each time."""

WARMING = object()
"""Stands for the value of a call that runs plainly before one that is timed.

Calls that run plainly for want of a recording are followed by some that are not looked at; this one is not.
"""


class Timed:
    """Stands for the value of a call that has not run, as PLAINLY does; :meth:`run` runs and times it.

    Args:
        contest: Where its time goes; None if it is not asked for.
        spent: Seconds that rote has taken for the call already.
        homes: Where the tensors lie to which it gives other memory.
    """

    __slots__ = ("_backend", "_contest", "_homes", "_spent", "_upstream")

    def __init__(
        self, contest: Contest | None, backend: Backend, upstream: Upstream, spent: float, homes: Homes
    ) -> None:
        self._contest = contest
        self._backend = backend
        self._upstream = upstream
        self._spent = spent
        self._homes = homes

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function. What it raises goes to the caller; such a call is no sample."""
        timing = self._backend.start_timing(self._spent)
        value = function(*args, **kwargs)
        timing.stop()
        if self._contest is not None:
            self._contest.add(Turn.PLAIN, RoundTrip(timing, self._backend, value, self._upstream))
        self._homes.bring_back()
        return value


class _Alike:
    """Many keys that replay as many operations, as those of states of other lengths: one contest for all.

    Each of them comes rarely, such as once for each prompt: it would be compared when sixty prompts are over.

    Attributes:
        lost: Why all of them run plainly.
    """

    def __init__(self) -> None:
        self.contest = Contest()
        self.entries = weakref.WeakSet[Specialization]()
        self.lost: Reason | None = None
        self._due = FIRST_ROUND

    def _recordings(self) -> list[Recording]:
        found = [recording for entry in self.entries for recording in entry.recordings]
        return [recording for recording in found if recording.recorded]

    @property
    def replays(self) -> int:
        """Replays of all of them."""
        return sum([recording.replays for recording in self._recordings()])

    def replaying(self) -> list[Specialization]:
        """Those that do not run plainly."""
        return [each for each in self.entries if each.life.state is not State.EAGER]

    def join(self, entry: Specialization) -> None:
        """A key belongs to them; so do recordings that it has got since."""
        self.entries.add(entry)
        fresh = [each for each in entry.recordings if each.recorded and each.contest is not self.contest]
        for recording in fresh:
            recording.join(self.contest)
        if fresh:
            self.compare_at(self._due)

    def compare_at(self, replays: int) -> None:
        """After so many replays of all of them the contest goes on, with whichever comes."""
        self._due, recordings = replays, self._recordings()
        share = max(replays - self.replays, 0) // max(len(recordings), 1)
        for recording in recordings:
            recording.compare_at(NEVER if replays == NEVER else recording.replays + share)


class Umpire:
    """Makes the timed calls of one wrapper."""

    def __init__(self, counts: Counts, tally: Tally, finish: Callable[[Specialization, Result], Any]) -> None:
        self._counts = counts
        self._tally = tally
        self._finish = finish
        self._has_lost = False  # a key runs plainly since it is faster
        self._has_compared = False  # a comparison has come to its end
        self._alike: dict[int, _Alike] = {}  # by how many operations they replay
        self._met = weakref.WeakKeyDictionary[Specialization, _Alike | None]()

    def run(
        self,
        entry: Specialization,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
        since: float,
    ) -> Any:
        """Make a call whose turn it is to be timed; the locks are held, and the call is counted.

        Args:
            since: When the call came, by ``perf_counter``.

        Returns:
            The value, or a :class:`Timed` or WARMING. NOT_MINE if this is a call like any other.
        """
        alike = self._alike_of(entry)
        if alike is not None and alike.lost is not None and entry.life.state is not State.EAGER:
            entry.give_up(LifeEvent.LOST, alike.lost)
        if self._has_lost:  # another key is likely to lose as well
            self._hurry([entry], EARLY_ROUND)
        elif not self._has_compared:
            recorded = [one for each in self._met for one in each.recordings if one.recorded]
            for one in recorded[:1] if len(recorded) >= SEVERAL else ():  # for all
                one.hurry(SOON_ROUND)
        if not any([recording.replays >= recording.due for recording in entry.recordings]):
            return NOT_MINE
        spent = perf_counter() - since
        recording = _due(entry, call)
        if recording is None:
            return NOT_MINE
        if recording.tiers.open and recording.replays >= recording.compared:
            recording.contest.restart()  # first it is to be known which tier is compared
            recording.compare_at(recording.replays + FIRST_TIER)
            if recording.replays < recording.due:
                return NOT_MINE
        if recording.replays < recording.compared:
            return self._compare_tiers(entry, recording, call, caller, spent)
        contest, replays = recording.contest, recording.replays if alike is None else alike.replays
        turn, due = contest.turn(replays, walks=_is_walked(entry))
        (recording if alike is None else alike).compare_at(due)
        if contest.figures is not None:
            self._has_compared = True
            entry.subject.ledger.compare(contest.figures.replay_s, contest.figures.plain_s)
        if turn is Turn.LOST and alike is None and self._waits_for_tiers(entry, recording):
            return NOT_MINE
        if turn is Turn.LOST:
            why = reason(rules.SLOWER, f"{contest.figures}, so the key runs plainly", user_site(caller))
            self._has_lost = True
            self._hurry(self._met, EARLY_ROUND)
            if alike is not None:
                alike.lost = why
            for each in (entry,) if alike is None else alike.replaying():
                each.give_up(LifeEvent.LOST, why)
        if turn in (Turn.LOST, Turn.NOTHING):
            return NOT_MINE
        text = "a plain call was made, to compare replays with"
        plainly = [reason(rules.SLOWER, text, user_site(caller))]
        begins = alike is None and turn in (Turn.AGAIN, Turn.REPLAY)
        if begins and self._time_path(entry, recording, call, plainly):
            if turn is Turn.REPLAY:
                contest.retract()
            return NOT_MINE
        if turn is Turn.AGAIN:
            return NOT_MINE
        if turn is Turn.REPLAY:
            return self._replay(entry, recording, call, args, kwargs, caller, spent)
        entry.counts.calls += 1
        self._counts.compared += 1
        self._tally.add(plainly)
        rebound = recording.accesses.alone()
        if turn is Turn.WARM and not rebound:
            return WARMING
        backend = entry.prepare(call)
        upstream = Upstream.of(call, backend.device)
        told_apart = Admission.possible(call) or entry.counts.calls >= MOST_CALLS * self._counts.calls
        asks = contest if turn is Turn.PLAIN else None
        return Timed(asks, backend, upstream, 0.0 if told_apart else spent, Homes(rebound))

    def _time_path(
        self, entry: Specialization, recording: Recording, call: Call, plainly: list[Reason]
    ) -> bool:
        """Have the next calls timed by the hot path itself, where there is one; this one is a replay."""
        path = entry.generated(recording)
        if path is None or recording.accesses.rebound or (torch.is_grad_enabled() and is_tracked(recording)):
            return False
        TimedPath(
            path, recording, entry.prepare(call), entry.function, self._counts, entry.counts, self._tally,
            plainly,
        )  # fmt: skip
        recording.compare_at(recording.replays + FIRST_ROUND)  # if the path goes meanwhile
        return True

    def _hurry(self, entries: Iterable[Specialization], replays: int) -> None:
        for entry in entries:
            for recording in entry.recordings:
                recording.hurry(replays)

    def _waits_for_tiers(self, entry: Specialization, recording: Recording) -> bool:
        """Whether tiers may make up for what was lost, and can be paid for meanwhile."""
        ledger = entry.subject.ledger
        paid = entry.earlier.exact or ledger.allows_work or ledger.replays_for_work(FIRST_TIER) < FIRST_TIER
        return paid and recording.waits_for_tiers()

    def clear(self) -> None:
        """What was found of keys that are alike is forgotten."""
        self._alike.clear()
        self._met.clear()

    def _alike_of(self, entry: Specialization) -> _Alike | None:
        """The keys that one is compared with, if there are many that replay as many operations."""
        found = self._met.setdefault(entry, None)
        count = _operations(entry) if found is None and not entry.limits.keep else None
        if count is not None and count in self._alike:
            found = self._met[entry] = self._alike[count]
        elif count is not None:
            alike = [
                each for each, known in self._met.items() if known is None and _operations(each) == count
            ]
            if len(alike) >= MANY:
                found = self._alike[count] = _Alike()
                self._met.update(dict.fromkeys(alike, found))
                for each in alike:
                    found.join(each)
        if found is not None:
            found.join(entry)
        return found

    def _compare_tiers(
        self, entry: Specialization, recording: Recording, call: Call, caller: FrameType, spent: float
    ) -> Any:
        """Replay by the tier whose turn it is; both by the general path, which is the same for both."""
        tiers, contest = recording.tiers, recording.tiers.contest
        if not tiers.open:
            return NOT_MINE  # the replay is followed by a look at what could be optimised
        turn, due = contest.turn(recording.replays)
        if turn is Turn.LOST:
            recording.drop_tiers(_lost(contest))
        elif turn is Turn.NOTHING and contest.figures is not None and not contest.figures.lost:
            entry.settle_tiers(recording)
        if turn in (Turn.LOST, Turn.NOTHING):
            if tiers.open:
                recording.improve_at(due)
            else:
                entry.look_again(recording)
            return NOT_MINE
        recording.improve_at(NEVER)
        tiers.use(exact=turn is Turn.REPLAY or turn is Turn.AGAIN)
        try:
            return self._run(entry, recording, call, caller, spent, contest, turn)
        finally:
            tiers.use(exact=True)
            if recording.recorded:
                recording.improve_at(due)

    def _run(
        self, entry: Specialization, recording: Recording, call: Call, caller: FrameType, spent: float,
        contest: Contest, turn: Turn,
    ) -> Any:  # fmt: skip
        """Answer a call by the general path, and note its time if it was a replay of the recording."""
        backend = entry.prepare(call)
        upstream = Upstream.of(call, backend.device)
        timing = backend.start_timing(spent)
        result = entry.run(call, caller)
        timing.stop()
        if turn in (Turn.REPLAY, Turn.PLAIN) and result.how == REPLAYED and result.recording is recording:
            contest.add(turn, RoundTrip(timing, backend, result.value, upstream))
        return self._finish(entry, result)

    def _replay(
        self,
        entry: Specialization,
        recording: Recording,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
        spent: float,
    ) -> Any:
        """Replay as any other call would, by the hot path if there is one."""
        counts, contest = self._counts, recording.contest
        path, before = entry.generated(recording), counts.replayed
        recording.compare_at(NEVER)  # or the hot path would leave the call to us
        following = recording.replays
        try:
            if path is None:
                return self._run(entry, recording, call, caller, spent, contest, Turn.REPLAY)
            backend = entry.prepare(call)
            upstream = Upstream.of(call, backend.device)
            counts.calls -= 1  # it counts for itself
            timing = backend.start_timing()
            value = path.call(args, kwargs)
            if value is not NOT_MINE:
                timing.stop()
                if counts.replayed > before:
                    contest.add(Turn.REPLAY, RoundTrip(timing, backend, value, upstream))
                return value
            counts.calls += 1
            contest.retract()
            following = recording.replays + WAIT
            return NOT_MINE
        finally:
            recording.compare_at(following)


def _lost(contest: Contest) -> str:
    """Why an exact tier is dropped."""
    figures = contest.figures
    if figures is None:
        return "its replays took longer"
    return f"its replays took {told(figures.replay_s)}, and {told(figures.plain_s)} before"


def _operations(entry: Specialization) -> int | None:
    """How many operations the recordings of a key have, if it replays and was never compared."""
    counts = {each.operations() for each in entry.recordings if each.recorded}
    known = any([each.contest.figures is not None for each in entry.recordings])
    return counts.pop() if len(counts) == 1 and not known else None


def _is_walked(entry: Specialization) -> bool:
    """Whether somebody has walked back through results of the key: then half of the cost lies there."""
    return any(backward.asked for recording in entry.recordings for backward in recording.backwards())


def _due(entry: Specialization, call: Call) -> Recording | None:
    """The recording that would answer the call, if its contest is to go on with it."""
    if entry.life.state is State.EAGER:
        return None
    recording = entry.choice.find(call)
    if recording is None or not recording.recorded or recording.replays < recording.due:
        return None
    if recording.replays >= recording.compared:
        if entry.limits.keep:
            recording.compare_at(NEVER)
        elif _is_apart(entry.prepare(call), recording):
            recording.compare_at(recording.replays + FIRST_ROUND)
    return recording if recording.replays >= recording.due else None


def _is_apart(backend: Backend, recording: Recording) -> bool:
    """Whether a plain call, here and now, would not only be slower than a replay."""
    if backend.is_capturing() or recording.acts:  # collectives take as long as the slowest rank
        return True
    if torch.is_grad_enabled():
        casts = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
        if casts or saving_is_hooked():
            return True
    free = backend.free_memory()
    return free is not None and free < recording.estimate
