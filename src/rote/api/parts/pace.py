"""How fast calls follow each other with the parts that train, and without them.

A recording is timed against plain calls, but not with what happens around it. ``DistributedDataParallel``
sends gradients while a plain backward makes others; those of a replay come all at once. Where little is
launched and much is sent, that is slower, although the replay itself is faster. So, once, some calls of the
callable are made without these parts, in windows that take turns: what counts is the time from one call to
the next, with all that their caller does between. The shortest window of each kind counts.

The windows go by the number of the call, so that they are the same ones on all ranks.
"""

from __future__ import annotations

FIRST = 256
"""Calls of the callable before the first window; by then recordings are as they stay."""

WINDOW = 16
WARM = 4
"""Calls of a window that are not timed: they have caches and an allocator as the other kind left them."""

ROUNDS = 3
"""Windows of each kind."""

MARGIN = 1.03


class Pace:
    """The windows of one callable."""

    def __init__(self) -> None:
        self.rests = False
        self._calls = -FIRST
        self._since = 0.0
        self._times: tuple[list[float], list[float]] = ([], [])

    def begin(self, now: float) -> None:
        """A call of the callable begins, at a time in seconds."""
        window, place = divmod(self._calls, WINDOW)
        self._calls += 1
        if window < 0 or self.is_over:
            return
        if place == 0 and window > 0:
            self._times[(window - 1) % 2].append(now - self._since)
        if place == WARM:
            self._since = now
        self.rests = window % 2 == 1 and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether all windows are over."""
        return len(self._times[1]) == ROUNDS

    def lost(self) -> tuple[float, float] | None:
        """Seconds of a call with the parts and without them, if it is shorter without; None if not."""
        if not self.is_over:
            return None
        with_parts, without = [min(times) / (WINDOW - WARM) for times in self._times]
        return (with_parts, without) if with_parts > MARGIN * without else None
