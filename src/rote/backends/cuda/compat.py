"""Private PyTorch calls of the CUDA backend, each with a probe and a fallback."""

from __future__ import annotations

from typing import Any

import torch

PoolId = tuple[int, int]

_end_allocate: Any = getattr(torch._C, "_cuda_endAllocateToPool", None)
_release_pool: Any = getattr(torch._C, "_cuda_releasePool", None)
"""Both seen in torch 2.11 and 2.13 (CUDA builds only)."""


def stop_routing(device: int, pool: PoolId) -> bool:
    """After a failed capture: stop the allocator from serving the pool, and drop the capture's reference.

    Through torch 2.13 a capture that fails to end does neither. Returns whether the pool can be used again;
    without the private calls it cannot, and the caller takes a new one.
    """
    if _end_allocate is None or _release_pool is None:
        return False
    try:
        _end_allocate(device, pool)
        _release_pool(device, pool)
    except RuntimeError:
        return False
    return True
