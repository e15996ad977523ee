# pyright: reportPrivateUsage=false
"""Private PyTorch calls that both backends need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...operators import call_of_region, is_region

OpOverload = torch._ops.OpOverload
"""The class of ATen operations as a dispatch mode sees them. Seen in torch 2.11 and 2.13."""


def raw_call(op: Any) -> Callable[..., Any]:
    """What calling an overload comes down to, 0.5 us cheaper. Seen in torch 2.11 and 2.13."""
    if type(op) is not OpOverload:
        return op
    return (call_of_region(op) if is_region(op) else None) or getattr(op, "_op", op)


def storage_over(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Another storage over the same memory that does not keep it alive. Seen in torch 2.11 and 2.13."""
    over: Any = torch._C._construct_storage_from_data_pointer
    return over(storage.data_ptr(), storage.device, storage.nbytes())
