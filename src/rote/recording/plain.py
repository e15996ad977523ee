"""Running a callable plainly while its wrapper's locks are held."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from ..backends.base import Backend
from .run import tracing


@contextmanager
def plainly(backend: Backend) -> Generator[None]:
    """A context for a plain call of a callable.

    Wrappers inside are plain calls too, other threads do not wait for the backend's lock, and autocast keeps
    no cast weights (they would outlive the call, and hide weights that are put back).
    """
    token = tracing.set(True)
    before, backend.tracing = backend.tracing, True
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cache)
        backend.tracing = before
        tracing.reset(token)
