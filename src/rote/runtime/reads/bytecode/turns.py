"""Traced calls and compilations on other threads take turns.

Dynamo reads the code of the functions that it compiles into a frame. While a call is traced, functions have
other code, which Dynamo could make nothing of. So a compilation on another thread waits until the traced
calls are over, and a traced call does not begin during a compilation. Neither waits for ever, since a traced
call may wait for what another thread compiles: then it is over for the trace (``interrupt``).

What does not work: PyTorch's own lock around compilations, since whoever waits for it waits for ever. What is
left open: a function that is being traced on one thread, was never compiled, and begins a compiled frame on
another one at that moment. It runs there as it is written.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import get_ident

from ...pytorch import is_worker, watching_compilations

PATIENCE_S = 10.0
"""How long one waits for the other; a traced call takes seconds at most."""


class Turns:
    """Who traces and who compiles.

    Args:
        interrupt: Called where a compilation has waited long enough: functions get their own code back, and
            nothing of the traced calls is recorded.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._changed = threading.Condition()
        self._tracing = Counter[int]()  # traced calls by thread, without those that stand aside
        self._compiling = 0  # compilations at work
        self._begun = 0  # the same, with those that wait
        self._stop: Callable[[], None] | None = None
        self._calls = 0

    def begin(self) -> None:
        """A traced call begins on this thread."""
        with self._changed:
            self._calls += 1
            if self._stop is None:
                self._stop = watching_compilations(self._compilation_begins, self._compilation_ends)
        self._go_on()

    def end(self) -> None:
        """A traced call of this thread is over."""
        self._stand_aside()
        with self._changed:
            self._calls -= 1
            self._stop_watching()

    @contextmanager
    def aside(self) -> Generator[None]:
        """A context in which the traced call of this thread lets others compile, or compiles itself."""
        self._stand_aside()
        try:
            yield
        finally:
            self._go_on()

    def _stop_watching(self) -> None:
        """A compilation that has begun is watched to its end."""
        if not self._calls and not self._begun and self._stop is not None:
            self._stop()
            self._stop = None

    def _go_on(self) -> None:
        thread = get_ident()
        with self._changed:
            if not self._tracing[thread]:
                self._changed.wait_for(lambda: not self._compiling, PATIENCE_S)
            self._tracing[thread] += 1

    def _stand_aside(self) -> None:
        thread = get_ident()
        with self._changed:
            self._tracing[thread] -= 1
            if not self._tracing[thread]:
                del self._tracing[thread]
            self._changed.notify_all()

    def _compilation_begins(self) -> None:
        with self._changed:
            self._begun += 1
            foreign = get_ident() not in self._tracing and not is_worker()
            if foreign and not self._changed.wait_for(lambda: not self._tracing, PATIENCE_S):
                self._interrupt()
            self._compiling += 1

    def _compilation_ends(self) -> None:
        with self._changed:
            if not self._begun:
                return  # it had begun before anybody listened
            self._begun -= 1
            self._compiling -= 1
            self._changed.notify_all()
            self._stop_watching()
