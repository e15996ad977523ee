"""Recordings and their memory: how many there are, none left over, and NaN in freed memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import torch

from ..api import Graphed
from ..runtime.backends import PROCESS
from ..runtime.backends.host import HostBackend

LOOKS, PAUSE_S = 10, 0.02
"""How often to look for memory that is left over, and the seconds between two looks."""


def count_recordings(graphed: Graphed) -> int:
    """Count the recordings that are alive: one for each key and each set of external tensors.

    Args:
        graphed: The result of :func:`..graph`.
    """
    return len(graphed.report().recordings)


def assert_pool_empty() -> None:
    """Check that no recording holds memory on any device.

    Recordings go away with ``g.reset()`` or with the last reference to the graphed callable.

    Raises:
        AssertionError: A backend holds memory; the message names the bytes and the backend.
    """
    left = _held()
    for _ in range(LOOKS):
        if not left:
            return
        gc.collect()
        left = _held()
        if left:
            time.sleep(PAUSE_S)  # a thread of autograd may still hold what it raised
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
            backend.enter_call()  # releases what garbage collection could not release at once
            nbytes = backend.bytes_held()
        if nbytes:
            found[f"{backend.name} ({backend.device})"] = nbytes
    return found


@contextmanager
def poisoned() -> Generator[None, None, None]:
    """Fill shared host memory with NaN after every call, so that a read of freed memory shows.

    Without it, a value that survives its call by accident looks right until another recording overwrites it.
    The CUDA pool is not poisoned.
    """
    pool = cast(HostBackend, PROCESS.of(torch.device("cpu"))).pool
    before, pool.poison_after_replay = pool.poison_after_replay, True
    try:
        yield
    finally:
        pool.poison_after_replay = before
