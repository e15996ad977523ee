# pyright: reportPrivateUsage=false
"""Private PyTorch calls that both backends need, each with a probe and a fallback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...operators import call_of_region, is_region

OpOverload = torch._ops.OpOverload
"""The class of ATen operations as a dispatch mode sees them. Seen in torch 2.11 and 2.13."""

_from_pointer: Any = getattr(torch._C, "_construct_storage_from_data_pointer", None)
"""Seen in torch 2.11 and 2.13."""


def raw_call(op: Any) -> Callable[..., Any]:
    """What calling an overload comes down to, 0.5 us cheaper. Seen in torch 2.11 and 2.13."""
    if type(op) is not OpOverload:
        return op
    return (call_of_region(op) if is_region(op) else None) or getattr(op, "_op", op)


def storage_over(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Another storage over the same memory that does not keep it alive.

    Where PyTorch offers none it is the storage itself: right as well, but a recording then keeps memory that
    it reads in place until the recording is released.
    """
    if _from_pointer is None:
        return storage
    return _from_pointer(storage.data_ptr(), storage.device, storage.nbytes())
