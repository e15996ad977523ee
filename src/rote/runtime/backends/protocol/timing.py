"""The time that a call takes the host."""

from __future__ import annotations

from time import perf_counter


class Timing:
    """What one call costs, from its making on. This one is for a device that queues nothing."""

    __slots__ = ("_seconds", "_start")

    def __init__(self, spent: float = 0.0) -> None:
        self._seconds = 0.0
        self._start = perf_counter() - spent

    def stop(self) -> None:
        """The call has returned. Does not wait for the device."""
        self._seconds = perf_counter() - self._start

    def seconds(self) -> float | None:
        """The larger of the host's time and the device's; None while the device is not done.

        The device's is the time from the end of the work queued before the call to the end of its own.
        """
        return self._seconds
