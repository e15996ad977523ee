"""Streams and events that a traced call uses besides the current stream.

A call that is recorded runs on one stream, in the order of its lines. That is an order that its
streams allow: where a stream waits, what it waits for stands in an earlier line. So nothing has to be
switched, recorded or waited for inside of such a call, and a segment may end between any two operations. Two
operations that the caller has put on streams of their own run one after the other, then. Where the host
waits, for a stream, an event or the device, it waits for the device, between two segments.

What is outside stays ordered with the call as it was. A stream that calls have used is waited for when a call
begins, and waits for it when it ends; so is an event that a call has waited for and not recorded. That orders
more than the plain call does, and never less. An event that the call has recorded must not outlive it: who
waits for it later would wait for something else, and measure another time.

Names of ``torch.cuda`` are replaced for that, and what acts on a thread that is none of the call's passes
through. Methods of ``torch.Stream`` are written in C. Such a stream becomes current, and so does that of a
node of autograd; each operation goes back to the one of the call (:meth:`.Streams.come_home`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from threading import get_ident
from typing import Any

import torch

from ....base import is_own
from ...operators import synchronize_operator
from ...pytorch import REPLACEMENTS, in_dispatch_mode
from ..protocol import OwnStreams
from .stream import Streams
from .torch_private import held_by_others


class CallStreams(OwnStreams):
    """The streams and events of one traced call.

    Args:
        leave: Called when a recorded call is over, on the stream on which it lies.
        recorded: The call runs on one stream, as a recording does, or follows one.
    """

    def __init__(self, streams: Streams, leave: Callable[[], None], *, recorded: bool) -> None:
        self._streams, self._leave = streams, leave
        self._recorded = recorded
        self._thread = get_ident()
        self._caller = streams.current()
        self._events: list[Any] = []  # that the call has recorded

    def leaves_event(self) -> bool:
        """Whether an event is still alive that the call has recorded."""
        return bool(held_by_others(self._events))

    @contextmanager
    def watched(self) -> Generator[CallStreams]:
        """The context in which the call runs."""
        with ExitStack() as stack:
            for owner, name, make in (
                (torch.cuda, "set_stream", self._switch),
                (torch.cuda.Stream, "__enter__", partial(self._switch, entering=True)),
                (torch.cuda.Stream, "__exit__", self._switch),
                (torch.cuda.Event, "record", self._record),
                (torch.cuda.Event, "wait", self._wait),
                (torch.cuda, "synchronize", self._of_device),
                (torch.accelerator, "synchronize", self._of_device),
                (torch.cuda.Stream, "synchronize", self._of_stream),
                (torch.cuda.Event, "synchronize", self._of_event),
            ):
                stack.enter_context(REPLACEMENTS.replaced(owner, name, make(getattr(owner, name))))
            try:
                yield self
            finally:
                stack.close()
                if self._recorded:
                    self._end()

    def _end(self) -> None:
        """The call is over, and lies on one stream."""
        for event in held_by_others(self._events):
            event.record()
        self._events.clear()
        self._leave()

    # ------------------------------------------------------------------ what is replaced

    def _switch(self, original: Callable[..., Any], *, entering: bool = False) -> Callable[..., Any]:
        @wraps(original)
        def switch(stream: Any, *error: Any) -> Any:
            if not self._keeps(stream):
                return original(stream, *error)
            return stream if entering else None

        return switch

    def _record(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def record(event: Any, stream: Any = None) -> Any:
            keeps = self._keeps(stream)
            if self._is_of_call() and not has(self._events, event):
                self._events.append(event)
            return None if keeps else original(event, stream)

        return record

    def _wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def wait(event: Any, stream: Any = None) -> Any:
            keeps = self._keeps(stream)
            if self._is_of_call():
                self._await(event)
            return None if keeps else original(event, stream)

        return wait

    # ------------------------------------------------------------------ what waits on the host

    def _of_device(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def synchronize(device: Any = None, *given: Any) -> Any:
            is_here = device is None or torch.device(device).index in (None, self._streams.index)
            return self._synchronize() if is_here and self._waits() else original(device, *given)

        return synchronize

    def _of_stream(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def synchronize(stream: Any) -> Any:
            is_here = stream.device_index == self._streams.index
            return self._synchronize() if is_here and self._waits() else original(stream)

        return synchronize

    def _of_event(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def synchronize(event: Any) -> Any:
            if not self._waits():
                return original(event)
            self._await(event)
            return self._synchronize()

        return synchronize

    def _waits(self) -> bool:
        """Whether it is the call that waits, and not rote, which runs an operation of it."""
        asking = sys._getframe(2).f_code.co_filename
        return in_dispatch_mode() and not is_own(asking) and self._is_of_call()

    def _synchronize(self) -> None:
        synchronize_operator().overload(self._streams.index)

    # ------------------------------------------------------------------ whose it is

    def _keeps(self, stream: Any) -> bool:
        """Note a stream; whether the thread stays on the stream of the recording."""
        if not self._is_of_call():
            return False
        is_here = stream is None or stream.device_index == self._streams.index
        if stream is not None and is_here and stream.cuda_stream != self._caller:
            self._streams.note(stream)
        return self._recorded and is_here

    def _is_of_call(self) -> bool:
        """Whether this thread runs the call, or its backward."""
        return get_ident() == self._thread or in_dispatch_mode()

    def _await(self, event: Any) -> None:
        awaited = self._streams.awaited
        if has(self._events, event) or has(awaited, event):
            return
        awaited[:] = [*held_by_others(awaited), event]
        if self._recorded:
            event.synchronize()


def has(events: list[Any], event: Any) -> bool:
    """Whether an event is among others, by identity."""
    return any([each is event for each in events])
