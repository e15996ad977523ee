"""Which operations end a segment, and why.

A segment holds operations that a CUDA graph can hold: kernels on one device, with shapes known before. The
decision needs nothing but the operation and its operands, so it is the same on both backends.

Known gap: an operation that synchronises inside its kernel wrapper (some of ``torch.linalg``) cannot be told
from its schema. If it is not in the table either, it is found when a capture fails, and remembered by the
recording that met it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

from ...hazards import rules
from ...hazards.rules import Rule
from .facts import Facts, facts_of
from .operands import is_mask

_aten = torch.ops.aten


class Placement(Enum):
    """Where an operation of a recording runs.

    CAPTURED: in a segment. READ: between segments, its value is an edge of the tree. SHAPED: between
    segments, the shape of its result is an edge. ISLAND: between segments. EARLY: before the open segment
    (it touches host memory only). ANYWHERE: metadata only; it runs whenever Python runs.
    """

    CAPTURED = "captured"
    READ = "read"
    SHAPED = "shaped"
    ISLAND = "island"
    EARLY = "early"
    ANYWHERE = "anywhere"


def place(
    facts: Facts,
    tensors: list[torch.Tensor],
    kwargs: dict[str, Any],
    on_host: bool,
    *,
    fills: bool = False,
) -> Placement:
    """Decide where an operation runs.

    Args:
        facts: The operation.
        tensors: Its tensor operands.
        kwargs: Its keyword operands (``device`` of factories and copies).
        on_host: The recording captures operations on CPU tensors.
        fills: It stores a number that never changes through a mask, for which nothing is counted.
    """
    if facts.reads or (facts.checks and not tensors[0].is_meta):
        return Placement.READ
    target = kwargs.get("device")
    if target is not None or not tensors or tensors[0].is_meta:
        if facts.hidden or _is_meta(tensors, target):
            return Placement.ANYWHERE
    elif facts.hidden:
        return Placement.ANYWHERE
    if facts.indexed:
        if not facts.stores:
            if any(map(is_mask, tensors[1:])):
                return Placement.SHAPED
        elif any(map(is_mask, tensors[1:-1])) and not fills:
            return Placement.ISLAND  # the host counts what the mask selects, though the shape is fixed
    elif facts.dynamic:
        return Placement.SHAPED
    if not on_host:
        return _place_by_device(facts, tensors, target)
    for tensor in tensors:
        if tensor.is_cuda:
            return Placement.ISLAND
    return Placement.CAPTURED


def _place_by_device(facts: Facts, tensors: list[torch.Tensor], target: Any) -> Placement:
    """CUDA: what touches host memory runs between segments, or before them if the device does not matter."""
    on_host = len([tensor for tensor in tensors if tensor.is_cpu])
    if target is not None and torch.device(target).type == "cpu":
        return Placement.EARLY if on_host == len(tensors) else Placement.ISLAND
    if not on_host:
        return Placement.CAPTURED if tensors or target is not None else Placement.EARLY
    if on_host == len(tensors) and not facts.mutable:
        return Placement.EARLY
    return Placement.ISLAND


def rule_of(func: Any, placement: Placement, refused: bool, tensors: list[torch.Tensor]) -> Rule:
    """The rule that explains an island."""
    if refused:
        return rules.REFUSED
    if placement is Placement.READ:
        return rules.HOST_READ
    if placement is Placement.SHAPED or (facts_of(func).stores and any(map(is_mask, tensors[1:-1]))):
        return rules.DYNAMIC_SHAPE
    if placement is Placement.EARLY and all(tensor.is_cpu for tensor in tensors):
        return rules.HOST_OPERATION if func is not _aten._to_copy.default else rules.DEVICE_COPY
    return rules.DEVICE_COPY


def _is_meta(tensors: list[torch.Tensor], target: Any) -> bool:
    if target is not None:
        return torch.device(target).type == "meta"
    return bool(tensors) and all(tensor.is_meta for tensor in tensors)
