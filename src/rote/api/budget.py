"""``rote.set_budget``: the ceiling of a whole process."""

from __future__ import annotations

from typing import Any

import torch

from ..runtime.memory import BUDGETS, parse_size

PATIENCE_S = 5.0
"""Seconds to wait for another thread's call; its device trims itself at its next recording otherwise."""


def set_budget(limit: int | str | None, *, device: torch.device | str | None = None) -> int | None:
    """Bound the memory that all recordings of the process hold on a device.

    The limit is for pool memory and static inputs. If more is held now, recordings are evicted at once, but
    from inside a graphed call only after the next recording; later ones that exceed the limit evict others.
    See ``budget`` in :class:`..Options` for the limit of one wrapper, and for the order of eviction.

    Args:
        limit: Bytes, or a string like ``"2GiB"``; None for no limit.
        device: The device; None for every device, each by itself (limits of single devices are forgotten).

    Returns:
        The limit before, in bytes, or None. Pass it back to restore it.

    Raises:
        OptionError: ``limit`` is no size.
    """
    nbytes = parse_size(limit, "limit")
    before = BUDGETS.limit(nbytes, _indexed(device) if device is not None else None)
    for backend, budget in BUDGETS.all():
        if budget.limit is not None and backend.lock.acquire(timeout=PATIENCE_S):
            try:
                if not backend.tracing:  # inside a call, whose recording may be half made
                    budget.trim()
            finally:
                backend.lock.release()
    return before


def _indexed(device: torch.device | str) -> torch.device:
    found = torch.device(device)
    index: Any = found.index  # None where none was given
    if found.type == "cuda" and index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found
