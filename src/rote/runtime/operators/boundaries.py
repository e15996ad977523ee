"""Which operations end a segment, and why.

A segment holds what a CUDA graph can hold: kernels on one device, with shapes known before. The operation and
its operands alone decide, so the decision is the same on both backends.

An operation of a library that runs in a graph gives the same sizes each time. Where it runs between segments,
or in a tape on the host, and its library does not say what sizes its results have, these are an edge: a
replay may not learn of another size behind draws and host reads that nothing takes back.

Known gap: the schema does not show that an operation synchronises inside its kernel wrapper, as some of
``torch.linalg`` do. If the table does not say so either, a capture fails, and the recording remembers it.
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
    sized: bool,
    fills: bool = False,
) -> Placement:
    """Decide where an operation runs.

    Args:
        kwargs: Its keyword operands (``device`` of factories and copies).
        on_host: The recording captures operations on CPU tensors.
        sized: The sizes of its results are known to follow from those of its operands, unless ``facts`` say
            that they do not.
        fills: It stores a number that never changes through a mask, and counts nothing for it.
    """
    if facts.reads or (facts.checks and not tensors[0].is_meta):
        return Placement.READ
    target = kwargs.get("device")
    if facts.hidden or _is_meta(tensors, target):
        return Placement.ANYWHERE
    if facts.indexed:
        if not facts.stores:
            if any(map(is_mask, tensors[1:])):
                return Placement.SHAPED
        elif any(map(is_mask, tensors[1:-1])) and not fills:
            return Placement.ISLAND  # the host counts what the mask selects, though the shape is fixed
    elif facts.dynamic:
        return Placement.SHAPED
    if on_host:
        captured = sized and not any([tensor.is_cuda for tensor in tensors])
        return Placement.CAPTURED if captured else between(sized)
    placement = _place_by_device(facts, tensors, target)
    return placement if placement is Placement.CAPTURED or sized else Placement.SHAPED


def between(sized: bool) -> Placement:
    """Where an operation runs that cannot be captured.

    Args:
        sized: As of :func:`place`.
    """
    return Placement.ISLAND if sized else Placement.SHAPED


def _place_by_device(facts: Facts, tensors: list[torch.Tensor], target: Any) -> Placement:
    """CUDA: an operation on host memory runs between segments, or before the open one if it only reads it."""
    only_host = all([tensor.is_cpu for tensor in tensors])
    if target is not None and torch.device(target).type == "cpu":
        return Placement.EARLY if only_host else Placement.ISLAND
    if not any([tensor.is_cpu for tensor in tensors]):
        return Placement.CAPTURED if tensors or target is not None else Placement.EARLY
    return Placement.EARLY if only_host and not facts.mutable else Placement.ISLAND


def rule_of(func: Any, placement: Placement, refused: bool, tensors: list[torch.Tensor]) -> Rule:
    """The rule that explains an island."""
    if refused:
        return rules.REFUSED
    if facts_of(func).stores and any(map(is_mask, tensors[1:-1])):
        return rules.DYNAMIC_SHAPE
    early = placement is Placement.EARLY and all(tensor.is_cpu for tensor in tensors)
    return rules.HOST_OPERATION if early and func is not _aten._to_copy.default else rules.DEVICE_COPY


def _is_meta(tensors: list[torch.Tensor], target: Any) -> bool:
    if target is not None:
        return torch.device(target).type == "meta"
    return bool(tensors) and tensors[0].is_meta and all(tensor.is_meta for tensor in tensors)
