"""How often a tensor was written to."""

from __future__ import annotations

from typing import Any


def count_writes(tensor: Any) -> int:
    """How often autograd has counted a write to a tensor, 0 where it does not count.

    Two counts in one call tell whether the tensor was written between them, which is the same in each call.
    So no condition is made of a count; it is for that comparison alone.
    """
    return 0 if tensor.is_inference() else tensor._version
