"""Who waits for a device while a callable runs on it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from .base import Backend


@contextmanager
def unwaited(backend: Backend) -> Generator[None]:
    """While the callable runs, other threads do not wait for the backend's lock."""
    before, backend.tracing = backend.tracing, True
    try:
        yield
    finally:
        backend.tracing = before
