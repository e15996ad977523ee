"""Python's collector of cycles: it rests while a call is observed or recorded."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


class Collector:
    """Lets the collector rest by a threshold of 0; ``gc.isenabled()`` still says what the program has set.

    Observing and recording make some twenty objects for each operation and keep them: with a million objects
    alive, collections that find nothing take longer than all the rest. ``gc.freeze()`` would spare later
    collections too, but ``gc.unfreeze()`` would release objects that the program has frozen itself.

    The settings are the process's: the garbage of other threads is collected afterwards. A setting that the
    program makes meanwhile stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = self._resting = gc.get_threshold()

    @contextmanager
    def rests(self) -> Generator[None]:
        """No automatic collection inside."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = gc.get_threshold()
                self._resting = (0, *self._before[1:])
                gc.set_threshold(*self._resting)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users and gc.get_threshold() == self._resting:
                    gc.set_threshold(*self._before)

    def wakes(self) -> None:
        """The program asks for the threshold: it is its own from now on."""
        with self._lock:
            if self._users and gc.get_threshold() == self._resting:
                gc.set_threshold(*self._before)

    def settings(self) -> tuple[Any, ...]:
        """The program's settings: whether it is on, the thresholds, flags, how many callbacks."""
        with self._lock:
            threshold = gc.get_threshold()
            if self._users and threshold == self._resting:
                threshold = self._before
        return gc.isenabled(), threshold, gc.get_debug(), len(gc.callbacks)


COLLECTOR = Collector()
"""One for the process, as the settings are."""
