"""Numbers that are stored into tensors of a GPU, in a form that a capture can hold.

``t[i, j] = 5.0`` makes a tensor of the number on the host and copies it. ``t[rows] = 5.0`` moves such a
tensor to the device first, as ``torch.where(c, t, number)`` does with a tensor of one element. All wait for
the device, and no capture holds them. A kernel that fills, or one that reads what another kernel has filled,
does the same without a copy. This is right for constants of the recording, and only those come here.
``t[mask] = 5.0`` is one kernel as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..operators import Facts, is_mask

_aten = torch.ops.aten
_INDICES = 1

Captures = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Puts one operation into the open segment: the overload, its operands by position and by name."""


def without_copies(
    facts: Facts, args: tuple[Any, ...], device: torch.device, capture: Captures
) -> tuple[Any, tuple[Any, ...]]:
    """The operation and operands that store a number of the host without copying it."""
    func = facts.op
    if "fills" not in facts.row or (facts.stores and any(map(is_mask, args[_INDICES]))):
        return func, args
    if func is _aten.copy_.default:
        return (_aten.fill_.Scalar, (args[0], args[1].item())) if args[1].is_cpu else (func, args)
    return func, tuple([_filled(each, device, capture) for each in args])


def _filled(value: Any, device: torch.device, capture: Captures) -> Any:
    """A number of the host on the device; anything else as it is."""
    if not isinstance(value, torch.Tensor) or not value.is_cpu:
        return value
    kept = {"dtype": value.dtype, "device": device}
    return capture(_aten.full.default, ([], value.item()), kept)
