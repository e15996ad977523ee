"""The one thread on which a policy is called.

All calls of a policy, those of the warm-up included, are made on one thread, one after the other: a device
has one current stream for each thread, PyTorch's modes belong to threads, and two calls at once would wait
for each other on the device anyway. Gradients are off there; a policy that needs them switches them on.

A call that has begun cannot be ended from outside. Who no longer wants it drops its result; what has not
begun is never made.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from ..base import MisuseError


class OverfullError(MisuseError):
    """As many calls wait as may."""


@dataclass(frozen=True)
class _Wanted:
    """A call that waits, and where its result goes."""

    function: Callable[[], Any]
    future: Future[Any]


class InferenceThread:
    """Makes calls one after the other, and holds a bounded number of those that wait.

    The thread does not keep the program alive: a call that hangs would.
    """

    def __init__(self, most: int) -> None:
        """Start the thread; ``most`` calls may wait."""
        self._most = most
        self._waiting: deque[_Wanted | None] = deque()
        self._changed = threading.Condition()
        self._since: float | None = None
        self._thread = threading.Thread(target=self._work, name="rote serve: inference", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Any], *, bounded: bool = True) -> Future[Any]:
        """Have a call made; cancelling the future leaves it out if it has not begun.

        Args:
            bounded: Whether the bound holds for it.

        Raises:
            OverfullError: As many calls wait as may.
        """
        wanted = _Wanted(function, Future())
        with self._changed:
            kept = [each for each in self._waiting if each is None or not each.future.cancelled()]
            self._waiting = deque(kept)  # what was cancelled does not hold its observation
            if bounded and len(kept) + (self._since is not None) > self._most:
                raise OverfullError(
                    f"the server is busy: {len(kept)} requests wait, and {self._most} may; try again later"
                )
            self._waiting.append(wanted)
            self._changed.notify()
        return wanted.future

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        with self._changed:
            return sum(each is not None and not each.future.cancelled() for each in self._waiting)

    @property
    def busy_s(self) -> float:
        """For how long the call that runs has been running; 0 if none does."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def stop(self, timeout_s: float) -> bool:
        """End the thread once it has made what was submitted; whether it has within that time."""
        with self._changed:
            self._waiting.append(None)
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        with torch.no_grad():
            while (wanted := self._next()) is not None:
                self._make(wanted)
                del wanted  # while it waits for the next one, it holds nothing

    def _next(self) -> _Wanted | None:
        with self._changed:
            while not self._waiting:
                self._changed.wait()
            self._since = time.monotonic()
            return self._waiting.popleft()

    def _make(self, wanted: _Wanted) -> None:
        future = wanted.future
        if not future.set_running_or_notify_cancel():
            self._rest()
            return
        try:
            result = wanted.function()
        except Exception as error:
            self._rest()
            future.set_exception(error)
        except BaseException as error:  # SystemExit would end the event loop, where it is raised again
            self._rest()
            contained = MisuseError(f"the policy raised {type(error).__name__}: {error}")
            contained.__cause__ = error
            future.set_exception(contained)
        else:
            self._rest()  # first, or whoever gets the result finds the thread busy
            future.set_result(result)

    def _rest(self) -> None:
        with self._changed:
            self._since = None
