"""Calls of one recording, timed in the form that they would have for good, by turns.

The general path before each of them would empty the processor's caches: a plain call of some microseconds
takes twice as long behind it, and a replay hardly longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...hazards.rules import Reason
from ..arguments import NOT_MINE, Shapes, shapes_of, tracing
from ..backends.protocol import Backend
from ..program import Tally
from ..pytorch import function_modes
from ..recording import Recording
from ..recording.contest import BLOCK, NEVER, TimedCall, Turn
from .generated import Counts, HotPath, KeyCounts


class TimedPath:
    """Answers in the place of a hot path, with replays and with plain calls, until it is to be judged.

    A plain call is made where the hot path would have replayed: it is asked by a recording that is to be
    measured, and does all but the replay. Where the calls before have come in a row, or one looks like the
    last one that it has answered for, it is not asked, since even that makes a short plain call longer.
    Nobody can walk back through the results of these calls.

    Args:
        why: The reasons of a plain call.
    """

    __slots__ = (
        "_backend", "_counts", "_function", "_in_a_row", "_key", "_last", "_path", "_recording", "_shapes",
        "_tally", "_why",
    )  # fmt: skip

    def __init__(
        self,
        path: HotPath,
        recording: Recording,
        backend: Backend,
        function: Callable[..., Any],
        counts: Counts,
        key: KeyCounts,
        tally: Tally,
        why: list[Reason],
    ) -> None:
        self._path = path
        self._recording = recording
        self._backend = backend
        self._function = function
        self._counts, self._key = counts, key
        self._tally, self._why = tally, why
        self._in_a_row, self._last = 0, counts.calls
        self._shapes: Shapes | None = None
        path.call = self.call

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a call; NOT_MINE for one of others, and where it is to be judged."""
        recording, counts = self._recording, self._counts
        if recording.contest.rests:
            self._path.call = self._path.answers
            recording.compare_at(recording.replays)
            return self._path.call(args, kwargs)
        turn = recording.contest.next
        replays = turn is Turn.AGAIN or turn is Turn.REPLAY
        if turn is Turn.PLAIN and self._is_likely(args, kwargs):
            return self._call_plainly(turn, args, kwargs)
        following = recording.compared
        recording.compare_at(NEVER if replays else recording.replays)
        counts.due = False
        try:
            if replays:
                return self._replay(turn, args, kwargs)
            value = self._path.answers(args, kwargs)
        finally:
            recording.compare_at(following)
        if not counts.due:
            return value
        counts.due = False
        self._shapes = shapes_of(args, kwargs)
        return self._call_plainly(turn, args, kwargs)

    def _is_likely(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call is likely to be one that the hot path would have replayed."""
        if tracing.get() or function_modes():
            return False
        return self._in_a_row >= BLOCK or shapes_of(args, kwargs) == self._shapes

    def _replay(self, turn: Turn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recording, counts = self._recording, self._counts
        before, others = recording.replays, counts.calls - self._last
        timing = self._backend.start_timing() if turn is Turn.REPLAY else None
        value = self._path.answers(args, kwargs)
        if timing is not None:
            timing.stop()
        if value is not NOT_MINE and recording.replays > before:
            self._in_a_row, self._last = 0 if others else self._in_a_row + 1, counts.calls
            recording.contest.advance()
            if timing is not None:
                recording.contest.add(turn, TimedCall(timing))
        return value

    def _call_plainly(self, turn: Turn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        contest, counts = self._recording.contest, self._counts
        contest.advance()
        counts.calls += 1
        counts.compared += 1
        self._last = counts.calls
        self._key.calls += 1
        self._tally.add(self._why)
        if turn is Turn.WARM:
            return self._function(*args, **kwargs)
        timing = self._backend.start_timing()
        value = self._function(*args, **kwargs)
        timing.stop()
        contest.add(turn, TimedCall(timing))
        return value
