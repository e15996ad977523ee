"""How early a recording's first segment may be launched: before all is known that decides whether it may.

A launch too early does no harm where the segment writes nothing but the recording's memory, on a device that
goes on by itself. So the device is at work while the rest is asked: modes and switches, and where the guard
is long the values in it. What must be known before is that the tensors which are read are there.

The segment may meet arguments that were never meant for it: whoever sets ``model.first = 0`` calls with other
numbers from then on. It calculates nonsense with them, which nobody sees. But a kernel that is given an index
out of range stops all work of the process on the device for good. So nothing is launched early that takes
integers for more than their values: not by a list of what has indices, but unless an operation is known not
to (:func:`is_harmless`). What that cannot see is a kernel launched past PyTorch's dispatcher.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

import torch

from .events import CAPTURED, Event, tokens_in
from .tree import Node

LONG_GUARD = 500
"""Slots from which checking the guard takes longer (about 20 us) than it takes to launch a segment early."""

VAIN = 3
"""Launches in vain that are put up with."""

_NUMBERS_ONLY = frozenset({
    "_to_copy", "all", "amax", "amin", "aminmax", "any", "arange", "argmax", "argmin", "bmm", "bucketize",
    "cat", "clone", "constant_pad_nd", "copy", "copy_", "count_nonzero", "cummax", "cummin", "cumprod",
    "cumsum", "diag_embed", "dot", "empty", "empty_like", "eye", "fill", "fill_", "flip", "full",
    "full_like", "lift_fresh", "lift_fresh_copy", "max", "mean", "min", "mm", "new_empty", "new_full",
    "new_ones", "new_zeros", "ones", "ones_like", "prod", "repeat", "roll", "scalar_tensor", "searchsorted",
    "sort", "stack", "sum", "topk", "tril", "triu", "zero_", "zeros", "zeros_like",
})  # fmt: skip
"""Operations, not by elements, that take integers as numbers."""

_PARTICULAR = frozenset(
    {"_assert_async", "binary_cross_entropy", "binary_cross_entropy_backward", "masked_scatter"}
)
"""Operations that stop the device because of numbers that are no integers."""


class Early:
    """What of a replay may come after its launch.

    Attributes:
        switches: Modes and switches.
        values: The values under guard as well.
    """

    __slots__ = ("_vain", "switches", "values")

    def __init__(self) -> None:
        self.switches = self.values = False
        self._vain = 0

    def decide(self, harmless: bool, size: int) -> None:
        """After a recording.

        Args:
            harmless: The first segment may be launched in vain, and the device goes on by itself.
            size: Of the guard; 0 where it is to come first in any case.
        """
        self.switches, self.values = harmless, harmless and size >= LONG_GUARD
        self._vain = 0

    def was_vain(self, replays: int) -> bool:
        """A launch was in vain; whether that is too often, and everything is asked before from now on.

        Two recordings of the same arguments in two modes are called in turn, for example.

        Args:
            replays: How often the recording was replayed.
        """
        self._vain += 1
        if self._vain < VAIN or self._vain * 16 <= replays:
            return False
        self.switches = self.values = False
        return True


class _Takes(Enum):
    """What an operation may be given without harm."""

    ANYTHING = "any numbers"
    FLOATS = "floats"
    NOTHING = "nobody knows, or only some numbers"


def is_harmless(root: Node) -> bool:
    """Whether a recording's first segment does no harm, whatever is in its arguments."""
    return root.pure and bool(root.steps) and all([_goes_on(event) for event in root.events])


def _goes_on(event: Event) -> bool:
    takes = _takes(event.operation) if event.kind == CAPTURED else _Takes.ANYTHING
    if takes is not _Takes.FLOATS:
        return takes is _Takes.ANYTHING
    kinds = [token.dtype for token in tokens_in(event.operands)]
    return all([kind.is_floating_point or kind.is_complex for kind in kinds])


@cache
def _takes(operation: str) -> _Takes:
    namespace, _, name = operation.partition("::")
    base, _, overload = name.partition(".")
    if namespace != "aten" or base in _PARTICULAR:
        return _Takes.NOTHING
    found = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
    by_elements = torch.Tag.pointwise in getattr(found, "tags", ())
    return _Takes.ANYTHING if by_elements or base in _NUMBERS_ONLY else _Takes.FLOATS
