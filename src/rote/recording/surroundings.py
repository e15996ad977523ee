"""What holds for the process while the callable itself runs."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

from ..backends.base import Backend


@contextmanager
def uncollected() -> Generator[None]:
    """No automatic garbage collection inside.

    Observing and recording make some twenty objects for each operation and keep them, so collections come
    again and again and find nothing: with a million objects alive they take longer than all the rest. The
    switch is the process's: other threads make garbage meanwhile, which is collected afterwards, since
    whoever comes in first turns it on again. ``gc.freeze()`` would spare later collections too, but
    ``gc.unfreeze()`` gives back what the program had frozen itself; so it is left alone.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def unwaited(backend: Backend) -> Generator[None]:
    """While the callable runs, other threads do not wait for the backend's lock."""
    before, backend.tracing = backend.tracing, True
    try:
        yield
    finally:
        backend.tracing = before
