"""Stores through a mask: which of them fill, so that no host has to know how many elements it selects.

``t[mask] = 5.0``, and so ``t[mask] = torch.tensor(5.0)``, is one kernel: PyTorch takes a number from the host
by value where a mask is all that selects. Anything else that is stored through a mask is counted first.
"""

from __future__ import annotations

from typing import Any

import torch

from .facts import Facts

_INDICES, _VALUE, _ACCUMULATE = 1, 2, 3


def is_mask(index: Any) -> bool:
    """Whether an index selects elements by a mask."""
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def filled_in(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The number that an operation fills in through a mask, if that lies on the host; None for others.

    Args:
        facts: Of the operation.
        args: Its operands.
        kwargs: Those that are named.
    """
    if not facts.stores or len(args) <= _VALUE:
        return None
    if args[_ACCUMULATE] if len(args) > _ACCUMULATE else kwargs.get("accumulate"):
        return None
    indices = [index for index in args[_INDICES] if index is not None]
    value: torch.Tensor = args[_VALUE]
    return value if len(indices) == 1 and is_mask(indices[0]) and value.numel() == 1 else None
