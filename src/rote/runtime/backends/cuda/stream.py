"""Streams of the CUDA backend: two to capture on, one for work beside an open capture.

A call that is recorded runs on the stream that is captured, with all that it launches: also what no operator
does, as kernels that TorchScript has fused. What the engine of autograd does between two nodes is captured
with it then. That fails where a node was made on another stream, which has to wait for the captured one:
autograd adds gradients into a parameter by a node that lives as long as anybody has it.

So a call whose backward comes to such nodes stays on the stream of its caller, and so does what runs between
its segments and the first launch of each. Only an operation is put on the captured stream, for as long as it
takes. What else such a call launches would be missing in replays, and what it allocates without an operator
would not lie in the pool. So where it is about to run TorchScript, or to give memory to a storage, it goes
over to the captured stream.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from ...pytorch import stream_handle
from .torch_private import not_capturing, set_stream


class Streams:
    """The streams of one device.

    All captures of a pool use one stream, since the allocator reuses a block only on the stream it was made
    on. A block that was made on the forked stream is reused there alone, and a fork waits for the stream on
    which it was last read.

    Attributes:
        home: The stream of a recorded call; None outside of one.
        last: The stream of the last call, or of the one of now; None before the first.
        others: Streams of callers that traced calls have used, by handle. Each call is ordered with them.
        awaited: Events of callers that traced calls have waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self.index: int = device.index
        self.home: Any = None
        self.others: dict[int, Any] = {}
        self.awaited: list[Any] = []
        self.current = partial(stream_handle, device.index)
        self._side: Any = torch.cuda.Stream(device)
        self._beside: Any = torch.cuda.Stream(device)
        self._forked: Any = torch.cuda.Stream(device)
        self._own = frozenset(each.cuda_stream for each in (self._side, self._beside, self._forked))
        self._device = device
        self.last: Any = None
        self._last_handle: int | None = None

    @contextmanager
    def recording(self, *, operations_alone: bool) -> Generator[None]:
        """Run a call on the side stream or on the current one, with what it captures on the side stream.

        No capture may be open when this is left: waiting for a capturing stream would spoil the capture.
        """
        self.home = caller = torch.cuda.current_stream(self._device)
        try:
            if not operations_alone:
                self._side.wait_stream(caller)
                self._go_on_aside()
            with not_capturing():
                yield
        finally:
            if self.home != caller:
                caller.wait_stream(self.home)
                set_stream(caller)
            self.home = None

    def capture_all(self) -> None:
        """Go on on the side stream, behind what the call has done so far. No capture is open."""
        self.home.synchronize()  # in a call events are not recorded, so no stream waits for another
        self._go_on_aside()

    @property
    def captures_all(self) -> bool:
        """Whether a call runs on the side stream."""
        return self.home == self._side

    def _go_on_aside(self) -> None:
        set_stream(self._side)
        self.home = self._side

    def come_home(self) -> AbstractContextManager[None] | None:
        """What an operation of a recorded call runs in that comes on another stream; None if it does not.

        A node of autograd runs on the stream on which it was made, which may be another call's.
        """
        home, handle = self.home, self.current()
        if home is None or handle == home.cuda_stream or handle in self._own:
            return None
        self.note(torch.cuda.current_stream(self._device))
        return self._running_on(home)

    def at_home(self) -> AbstractContextManager[None]:
        """The stream of the recorded call, or else the current one."""
        return nullcontext() if self.home is None else self._running_on(self.home)

    def note(self, stream: Any) -> None:
        """A traced call uses a stream besides its caller's: from now on each call is ordered with it.

        A call that asks for its current stream may get one that captures. Calls are ordered with that anyhow.
        """
        if stream.cuda_stream in self.others or stream.cuda_stream in self._own:
            return
        self.others[stream.cuda_stream] = stream
        if self.home is not None:  # no call has used it before, so this one has not waited for it
            stream.synchronize()

    def switch(self) -> AbstractContextManager[None]:
        """Make the capturing stream current (to begin and end captures, and for what is captured)."""
        if self.current() == self._forked.cuda_stream:
            return nullcontext()
        return self._running_on(self._side)

    @contextmanager
    def beside(self) -> Generator[None]:
        """Run now, on a stream that is not being captured, and wait until it is done.

        Nothing else runs there, so the wait is for these operations alone.
        """
        with self._running_on(self._beside):
            yield
        # The capturing stream cannot wait for this one, and the host may read the result.
        self._beside.synchronize()

    @contextmanager
    def tried(self) -> Generator[int]:
        """That stream, by its handle, to capture on it what is only looked at."""
        with self._running_on(self._beside):
            yield self._beside.cuda_stream

    @contextmanager
    def fork(self) -> Generator[None]:
        """Capture on another stream, after what was captured so far."""
        self._forked.wait_stream(self._side)
        with self._running_on(self._forked):
            yield

    def join(self) -> None:
        """Order the capturing stream after what was captured in :meth:`fork`."""
        self._side.wait_stream(self._forked)

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
        return stream.query() and self._side.query()

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
        if self.last is not None:
            current.wait_stream(self.last)
        self.last, self._last_handle = current, handle
