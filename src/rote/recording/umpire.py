"""Makes the calls that are timed for a recording's contest with plain calls; see :mod:`.contest`."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from ..backends.base import Backend
from ..base.location import user_site
from ..hazards import rules
from ..hazards.rules import reason
from ..signature.admission import Admission
from ..signature.key import Call
from ..signature.source import NOT_MINE
from .compat import saving_is_hooked, tells_passes
from .contest import FIRST, NEVER, Contest, Turn
from .counts import Counts
from .entry import Entry
from .log import Tally
from .result import PLAINLY, REPLAYED, Result
from .roundtrip import RoundTrip, Upstream
from .states import Event, State
from .variant import Variant


class Timed:
    """Stands for the value of a call that has not run, as PLAINLY does; :meth:`run` runs and times it.

    Args:
        contest: Gets the time.
        backend: Has the clock.
        upstream: Where a walk back leaves the call.
        spent: Seconds that rote has taken for the call already.
    """

    __slots__ = ("_backend", "_contest", "_spent", "_upstream")

    def __init__(self, contest: Contest, backend: Backend, upstream: Upstream, spent: float) -> None:
        self._contest = contest
        self._backend = backend
        self._upstream = upstream
        self._spent = spent

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function. What it raises goes to the caller; such a call is no sample."""
        timing = self._backend.start_timing(self._spent)
        value = function(*args, **kwargs)
        timing.stop()
        self._contest.add(Turn.PLAIN, RoundTrip(timing, self._backend, value, self._upstream))
        return value


class Umpire:
    """Makes those calls of one wrapper that are timed.

    Args:
        counts: Of the wrapper's calls.
        tally: Counts reasons.
        finish: Takes the result of a call that came the general way.
    """

    def __init__(self, counts: Counts, tally: Tally, finish: Callable[[Entry, Result], Any]) -> None:
        self._counts = counts
        self._tally = tally
        self._finish = finish

    def run(
        self,
        entry: Entry,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
        since: float,
    ) -> Any:
        """Make a call whose turn it is to be timed; the locks are held, and the call is counted.

        Args:
            entry: The key of the call.
            call: The arguments.
            args: The same, as they were given.
            kwargs: The same.
            caller: The caller's frame.
            since: When the call came, by ``perf_counter``.

        Returns:
            The value, or a :class:`Timed`. NOT_MINE if this is a call like any other.
        """
        if not any([variant.replays >= variant.due for variant in entry.variants]):
            return NOT_MINE
        spent = perf_counter() - since
        variant = _due(entry, call)
        if variant is None:
            return NOT_MINE
        contest = variant.contest = variant.contest or Contest()
        turn, variant.due = contest.turn(variant.replays, walks=_is_walked(entry))
        if turn is Turn.LOST:
            text = f"{contest.figures}, so the key runs plainly"
            entry.give_up(Event.LOST, reason(rules.SLOWER, text, user_site(caller)))
        elif turn is Turn.REPLAY:
            return self._replay(entry, variant, contest, call, args, kwargs, caller, spent)
        elif turn in (Turn.WARM, Turn.PLAIN):
            entry.calls += 1
            text = "a plain call was made, to compare replays with"
            self._tally.add([reason(rules.SLOWER, text, user_site(caller))])
            if turn is Turn.WARM:
                return PLAINLY
            backend = entry.prepare(call)
            upstream = Upstream.of(call, backend.device)
            return Timed(contest, backend, upstream, 0.0 if Admission.possible(call) else spent)
        return NOT_MINE

    def _replay(
        self,
        entry: Entry,
        variant: Variant,
        contest: Contest,
        call: Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        caller: FrameType,
        spent: float,
    ) -> Any:
        """Replay as any other call would, by the hot path if there is one."""
        counts, backend, path = self._counts, entry.prepare(call), variant.hot
        upstream = Upstream.of(call, backend.device)
        before, variant.due = counts.replayed, NEVER  # or the hot path would leave the call to us
        following = variant.replays + 1
        try:
            if path is None:
                timing = backend.start_timing(spent)
                result = entry.run(call, caller)
                timing.stop()
                if result.how == REPLAYED and result.variant is variant:
                    contest.add(Turn.REPLAY, RoundTrip(timing, backend, result.value, upstream))
                return self._finish(entry, result)
            counts.calls -= 1  # it counts for itself
            timing = backend.start_timing()
            value = path.call(args, kwargs)
            if value is not NOT_MINE:
                timing.stop()
                if counts.replayed > before:
                    contest.add(Turn.REPLAY, RoundTrip(timing, backend, value, upstream))
                return value
            counts.calls += 1
            following = contest.retract(variant.replays)
            return NOT_MINE
        finally:
            variant.due = following


def _is_walked(entry: Entry) -> bool:
    """Whether somebody has walked back through results of the key: then half of the cost lies there."""
    return any(backward.asked for variant in entry.variants for backward in variant.backwards())


def _due(entry: Entry, call: Call) -> Variant | None:
    """The recording that would answer the call, if its contest is to go on with it."""
    if entry.life.state is State.EAGER:
        return None
    variant = entry.choice.find(call)
    if variant is None or not variant.recorded or variant.replays < variant.due:
        return None
    if entry.limits.keep or (_is_walked(entry) and not tells_passes()):
        variant.due = NEVER
        return None
    if _is_apart(entry.prepare(call), variant):
        variant.due = variant.replays + FIRST
        return None
    return variant


def _is_apart(backend: Backend, variant: Variant) -> bool:
    """Whether a plain call, here and now, would not only be slower than a replay."""
    if backend.is_capturing() or (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return True
    if torch.is_grad_enabled():
        casts = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
        if casts or saving_is_hooked():
            return True
    free = backend.free_memory()
    return free is not None and free < variant.estimate
