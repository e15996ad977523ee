"""Memory: nothing is left over, and whatever was freed reads as NaN."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import torch

from ..runtime.backends import PROCESS
from ..runtime.backends.host import HostBackend

PATIENCE = 10
"""How often to look again."""

PAUSE_S = 0.02
"""Between two looks."""


def assert_pool_empty() -> None:
    """Check that no recording holds memory on any device.

    Recordings go away with ``g.reset()`` or with the last reference to the graphed callable.

    Raises:
        AssertionError: A backend holds memory; the message names the bytes and the backend.
    """
    left = _held()
    for _ in range(PATIENCE):
        if not left:
            return
        gc.collect()
        left = _held()
        if left:
            time.sleep(PAUSE_S)  # a thread of autograd's may not have let go yet of what it raised
    if left:
        listed = ", ".join(f"{nbytes} bytes on {name}" for name, nbytes in left.items())
        raise AssertionError(
            f"recordings still hold {listed}: call reset() on every graphed callable, or let it die"
        )


def _held() -> dict[str, int]:
    """Bytes by backend and device, for the backends that hold any."""
    found: dict[str, int] = {}
    for backend in PROCESS.made():
        with backend.lock:
            backend.enter_call()  # what garbage collection could not release at once is released now
            nbytes = backend.bytes_held()
        if nbytes:
            found[f"{backend.name} ({backend.device})"] = nbytes
    return found


@contextmanager
def poisoned() -> Generator[None, None, None]:
    """Fill shared host memory with NaN after every call, so that a read of freed memory shows.

    A value that survives its call by accident would otherwise look right until another recording
    overwrites it.
    The CUDA pool is not poisoned.
    """
    pool = cast(HostBackend, PROCESS.of(torch.device("cpu"))).pool
    before, pool.poison_after_replay = pool.poison_after_replay, True
    try:
        yield
    finally:
        pool.poison_after_replay = before
