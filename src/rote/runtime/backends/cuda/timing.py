"""The time that a call takes the host and a CUDA device, without waiting for either."""

from __future__ import annotations

import torch

from ..protocol import HostTiming


class CudaTiming:
    """A call on the current stream, between two events.

    Where the device is idle, the first event is over at once, and the time between them is that of the whole
    call. Where work is queued, it is over when that is done, and the time is what the call adds.
    """

    __slots__ = ("_device", "_end", "_host", "_start")

    def __init__(self, device: torch.device, spent: float = 0.0) -> None:
        self._device = device
        self._start, self._end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._start.record(torch.cuda.current_stream(device))
        self._host = HostTiming(spent)

    def stop(self) -> None:
        """The call has returned."""
        self._host.stop()
        self._end.record(torch.cuda.current_stream(self._device))

    def seconds(self) -> float | None:
        """The larger of both times; None while the device is not done."""
        host = self._host.seconds()
        if host is None or not (self._start.query() and self._end.query()):
            return None
        return max(host, self._start.elapsed_time(self._end) / 1e3)
