"""Counts of writes to tensors."""

from __future__ import annotations

from typing import Any


def count_writes(tensor: Any) -> int:
    """The writes to a tensor that autograd has counted, 0 where it does not count.

    Two counts in one call tell whether the tensor was written between them, which is the same in each call.
    So a count becomes no condition.
    """
    return 0 if tensor.is_inference() else tensor._version
