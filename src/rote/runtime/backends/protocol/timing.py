"""The time that a call takes the host."""

from __future__ import annotations

from time import perf_counter


class HostTiming:
    """A call on a device that queues nothing."""

    __slots__ = ("_seconds", "_start")

    def __init__(self, spent: float = 0.0) -> None:
        self._seconds = 0.0
        self._start = perf_counter() - spent

    def stop(self) -> None:
        """The call has returned."""
        self._seconds = perf_counter() - self._start

    def seconds(self) -> float | None:
        """Of the host."""
        return self._seconds
