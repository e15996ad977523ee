"""Streams of the CUDA backend: two to capture on, one for work beside an open capture."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from .torch_private import handle_reader, not_capturing, set_stream


class Streams:
    """The streams of one device.

    All captures of a pool use one stream, since the allocator reuses a block only on the stream it was made
    on. A block that was made on the forked stream is reused there alone, and a fork waits for the stream on
    which it was last read.

    Attributes:
        others: Streams of callers that traced calls have used, by handle. Each call is ordered with them.
        awaited: Events of callers that traced calls have waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self.index: int = device.index
        self.side: Any = torch.cuda.Stream(device)
        self.aux: Any = torch.cuda.Stream(device)
        self.forked: Any = torch.cuda.Stream(device)
        self.others: dict[int, Any] = {}
        self.awaited: list[Any] = []
        self._device = device
        self.current = handle_reader(device)
        self._last: Any = None
        self._last_handle: int | None = None

    @contextmanager
    def capturing(self) -> Generator[None]:
        """Run on the side stream, ordered after and before the current one.

        No capture may be open when this is left: waiting for a capturing stream would spoil the capture.
        """
        current = torch.cuda.current_stream(self._device)
        if current == self.side:
            yield
            return
        self.side.wait_stream(current)
        try:
            with self._running_on(self.side), not_capturing():
                yield
        finally:
            current.wait_stream(self.side)

    def is_captured(self) -> bool:
        """Whether what runs now is captured, if a capture is open."""
        return self.current() in (self.side.cuda_stream, self.forked.cuda_stream)

    def switch(self) -> Any:
        """Make the side stream current, without ordering it (to begin, end and repair captures)."""
        return self._running_on(self.side)

    @contextmanager
    def beside(self) -> Generator[None]:
        """Run now, on a stream that is not being captured, and wait until it is done.

        Nothing else runs there, so the wait is for these operations alone.
        """
        with self._running_on(self.aux):
            yield
        # The capturing stream cannot wait for this one, and the host may read the result.
        self.aux.synchronize()

    @contextmanager
    def fork(self) -> Generator[None]:
        """Run on another stream, after what was started on the current one so far."""
        self.forked.wait_stream(torch.cuda.current_stream(self._device))
        with self._running_on(self.forked):
            yield

    def join(self) -> None:
        """Order the current stream after what was started in :meth:`fork`."""
        torch.cuda.current_stream(self._device).wait_stream(self.forked)

    def enter_call(self) -> int:
        """Order the current stream after what a call may need; returns its handle."""
        handle = self.current()
        if handle != self._last_handle:
            self._follow(handle)
        if self.is_ordered:
            current = torch.cuda.current_stream(self._device)
            for other in self.others.values():
                current.wait_stream(other)
            for event in self.awaited:
                current.wait_event(event)
        return handle

    @property
    def is_ordered(self) -> bool:
        """Whether there is more to order than the stream that replayed last."""
        return bool(self.others or self.awaited)

    def leave_call(self) -> None:
        """Order the streams that calls have used after the current one."""
        if self.others:
            event = torch.cuda.current_stream(self._device).record_event()
            for other in self.others.values():
                other.wait_event(event)

    def are_idle(self, handle: int) -> bool:
        """Whether a stream, by its handle, and that of recordings have nothing left to do."""
        default = torch.cuda.default_stream(self._device)
        stream = torch.cuda.ExternalStream(handle, self._device) if handle else default
        return stream.query() and self.side.query()

    @contextmanager
    def _running_on(self, stream: Any) -> Generator[None]:
        """As ``torch.cuda.stream``, also where that has been replaced."""
        before = torch.cuda.current_stream(self._device)
        set_stream(stream)
        try:
            yield
        finally:
            set_stream(before)

    def _follow(self, handle: int) -> None:
        current = torch.cuda.current_stream(self._device)
        if self._last is not None:
            current.wait_stream(self._last)
        self._last, self._last_handle = current, handle
