"""Private PyTorch calls of the CUDA backend, each with a probe and a fallback."""

from __future__ import annotations

from typing import Any

import torch

PoolId = tuple[int, int]

_end_allocate: Any = getattr(torch._C, "_cuda_endAllocateToPool", None)
_release_pool: Any = getattr(torch._C, "_cuda_releasePool", None)
"""Both seen in torch 2.11 and 2.13 (CUDA builds only)."""


def stop_routing(device: int, pool: PoolId) -> None:
    """After a failed capture: stop the allocator from serving the pool, and drop the capture's reference.

    Through torch 2.13 a capture that fails to end does neither, so the pool's memory would never be given back.
    The pinned-memory allocator keeps a note of its own that cannot be undone from Python: the pool's handle must
    not be captured into again. Without the private calls the memory of the failed segment stays reserved.
    """
    if _end_allocate is None or _release_pool is None:
        return
    _end_allocate(device, pool)
    _release_pool(device, pool)
