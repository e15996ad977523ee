"""Plain calls of a callable whose wrapper's locks are held."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from ..arguments import tracing
from ..backends.protocol import Backend, unwaited


@contextmanager
def plainly(backend: Backend) -> Generator[None]:
    """A context for a plain call of a callable.

    Wrappers inside are plain calls too, and other threads do not wait for the backend's lock. Autocast begins
    and ends without cast weights, as in a traced call: they would outlive the call, and hide weights that are
    put back.
    """
    token = tracing.set(True)
    torch.clear_autocast_cache()
    try:
        with unwaited(backend):
            yield
    finally:
        torch.clear_autocast_cache()
        tracing.reset(token)
