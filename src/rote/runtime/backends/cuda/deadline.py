"""The time limit of replays with captured collectives.

PyTorch watches each collective that it begins, and ends the process where one takes too long. Of collectives
in a graph it knows nothing: if another rank has stopped, their kernels wait for ever, and so does whoever
waits for the device. So a thread looks after the replays of a device, as PyTorch's does after collectives.

It is told when a call ends, by an event behind it. If that has come the device has done all. If it has not,
the next call leaves another event, the *mark*, which stays until it has come: so the thread sees that the
device goes on although there is always something queued. It is told when a call begins, too: one that reads a
value on the host may wait for the device and never end, while its stream has something left to do.

Where nothing comes for the time limit of a group, the process ends, as it does with PyTorch's own: what the
other rank was to give is missing, and nobody may go on without it.

What does not work: to say which of the collectives it is. The device does not tell; the text names them all.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from time import monotonic
from typing import Any

import torch

from ..protocol import CapturedCollective
from .graphs import driver

PAUSE_S = 1.0
"""Between two looks."""
_SHOWN = 8
"""Lines that are named."""
_log = logging.getLogger("rote")


class Deadline:
    """The time limit of one device.

    Args:
        is_idle: Whether a stream, by its handle, and that of recordings have nothing left to do.
        clock: Seconds that have passed.
        end: Called with a text where nothing has come for too long.
    """

    def __init__(
        self,
        make_event: Callable[[], Any],
        is_idle: Callable[[int], bool],
        clock: Callable[[], float] = monotonic,
        end: Callable[[str], None] | None = None,
    ) -> None:
        self._is_idle, self._clock, self._end = is_idle, clock, end or end_process
        self._call: tuple[int, float] | None = None  # the stream of the call of now, and when it began
        self._last, self._mark = make_event(), make_event()
        self._called = self._marked = self._wanted = False
        self._came = clock()
        self._expected: weakref.WeakKeyDictionary[Any, list[CapturedCollective]] = weakref.WeakKeyDictionary()

    @property
    def active(self) -> bool:
        """Whether there are recordings with captured collectives."""
        return bool(self._expected)

    def expect(self, recording: Any, collective: CapturedCollective) -> None:
        """A recording has a collective, for as long as it lives."""
        self._expected.setdefault(recording, []).append(collective)

    def forget(self, recording: Any) -> None:
        """A recording is released."""
        self._expected.pop(recording, None)

    def began(self, stream: int) -> None:
        """A call begins."""
        self._call = stream, self._clock()

    def passed(self, stream: Any) -> None:
        """The work of a call has been queued on a stream."""
        self._call = None
        self._last.record(stream)  # to ask which is the current one takes longer than all else here
        self._called = True
        if self._wanted:
            self._wanted = False
            self._mark.record(stream)
            self._marked = True

    def look(self) -> None:
        """Whether the device goes on."""
        self._look_inside()
        if not self._called or self._last.query() or (self._marked and self._mark.query()):
            self._came = self._clock()
            self._marked = self._wanted = False
            return
        self._wanted = not self._marked
        if self._is_late(self._came):
            self._end(told(self._all_expected()))

    def _look_inside(self) -> None:
        call = self._call
        if call is not None and self._is_late(call[1]) and not self._is_idle(call[0]):
            self._end(told(self._all_expected()))

    def _is_late(self, since: float) -> bool:
        limits = [each.limit_s for each in self._all_expected()]
        return bool(limits) and self._clock() - since > min(limits)

    def _all_expected(self) -> list[CapturedCollective]:
        return [each for those in list(self._expected.values()) for each in those]


def told(expected: list[CapturedCollective]) -> str:
    """What is said before the process ends."""
    limit_s = min([each.limit_s for each in expected])
    counts = Counter([f"{each.name} at {each.site}" for each in expected])
    shown = [f"{line} ({times} times)" if times > 1 else line for line, times in counts.items()]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return (
        f"rank {expected[0].rank}: replays have waited for another rank for {limit_s:.0f} s, in one of these "
        f"captured collectives: {', '.join(shown[:_SHOWN])}{more}. The other rank has stopped, or made other "
        "calls. This process ends, since what that rank was to give is missing."
    )


def end_process(text: str) -> None:
    """End the process as PyTorch does where a collective takes too long."""
    _log.critical(text)
    print(f"rote: {text}", file=sys.stderr, flush=True)
    os.abort()


def watch(deadline: Deadline, device: torch.device) -> None:
    """Start the thread that looks, up to the end of the interpreter."""
    stop = threading.Event()

    def run() -> None:
        torch.cuda.set_device(device)
        found = driver()
        with found.relaxed() if found is not None else nullcontext():
            while not stop.wait(PAUSE_S):
                deadline.look()

    thread = threading.Thread(target=run, name=f"rote deadline {device}", daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    atexit.register(end)
