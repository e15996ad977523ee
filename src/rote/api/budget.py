"""``rote.set_budget``: the ceiling of a whole process."""

from __future__ import annotations

from typing import Any

import torch

from ..runtime.memory import BUDGETS, parse_size

PATIENCE_S = 5.0
"""Seconds to wait for another thread's call; after that its device trims itself at its next recording."""


def set_budget(limit: int | str | None, *, device: torch.device | str | None = None) -> int | None:
    """Bound the memory that all recordings of the process hold on a device.

    What counts is pool memory and static inputs. If more is held now, recordings are evicted at once; from
    then on after every recording that exceeds the limit (so it is if this is called from inside of a graphed
    call). See ``budget`` in :class:`..Options` for the
    limit of one wrapper, and for which recordings go.

    Args:
        limit: Bytes, or a string like ``"2GiB"``; None for no limit.
        device: The device it is for; None for every device, each by itself (what was set for single devices
            is forgotten).

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
                if not backend.tracing:  # called from inside a call: its own recording may be half made
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
