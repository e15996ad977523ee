"""The time that a call takes the host and a CUDA device, without waiting for either."""

from __future__ import annotations

import torch

from ..protocol import Timing


class CudaTiming(Timing):
    """A call on the current stream, between two events.

    Where the device is idle, the first event is over at once, and the time between them is that of the whole
    call. Where work is queued, it is over when that is done, and the time is what the call adds.
    """

    __slots__ = ("_begin", "_device", "_end")

    def __init__(self, device: torch.device, spent: float = 0.0) -> None:
        self._device = device
        self._begin, self._end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._begin.record(torch.cuda.current_stream(device))
        super().__init__(spent)

    def stop(self) -> None:
        """The call has returned."""
        super().stop()
        self._end.record(torch.cuda.current_stream(self._device))

    def seconds(self) -> float | None:
        """The larger of both times; None while the device is not done."""
        if not (self._begin.query() and self._end.query()):
            return None
        return max(self._seconds, self._begin.elapsed_time(self._end) / 1e3)
