"""Results that are views of arguments or of tensors made outside: each call takes its own views anew.

Autograd treats such a view as it does the callable's: it refuses the same writes, and writes count versions
of the same tensors (``.data`` has a counter of its own). The graph between a tensor and a view that is taken
anew is that of one operation. It stands for a chain of PyTorch's own views, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import torch

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..program import (
    EXTERNAL_VIEW,
    INPUT_VIEW,
    OutputLeaf,
    counts_apart,
    creation_kind,
    history_of,
    set_creation_kind,
)
from ..pytorch import negative_view

_VIEWS = frozenset({
    "AliasBackward0", "AsStridedBackward0", "DiagonalBackward0", "ExpandBackward0", "PermuteBackward0",
    "ReshapeAliasBackward0", "SelectBackward0", "SliceBackward0", "SplitBackward0", "SplitWithSizesBackward0",
    "SqueezeBackward0", "SqueezeBackward1", "SqueezeBackward2", "TBackward0", "TransposeBackward0",
    "UnbindBackward0", "UnfoldBackward0", "UnsafeViewBackward0", "UnsqueezeBackward0", "ViewBackward0",
})  # fmt: skip
"""Nodes that give a gradient the places that its elements have in the tensor, and do nothing else."""


def looked_at(made: OutputLeaf, leaf: torch.Tensor, seen_in: torch.Tensor | None) -> OutputLeaf:
    """A view's leaf, with how autograd treats it; ``seen_in`` is the tensor that it looks at, if at hand."""
    alone = leaf is seen_in  # the call has made it over the memory of an array
    apart = not made.tracked and seen_in is not None and (alone or counts_apart(leaf, seen_in))
    return replace(made, creation=creation_kind(leaf), apart=apart, is_view=leaf._base is not None)


def opaque_view(
    name: str, leaf: torch.Tensor, made: OutputLeaf, given: Sequence[Any], site: Site
) -> Reason | None:
    """Why a view that is taken anew would not be like a tensor of the result; None if it would."""
    if made.kind not in (INPUT_VIEW, EXTERNAL_VIEW):
        return None
    what = "an argument" if made.kind == INPUT_VIEW else "a tensor made outside"
    remedy = "Return a copy (clone()), or take the view outside."
    if made.tracked and not _is_of_views(leaf, made, given):
        text = f"{name} is a view of {what} whose gradient is not that of a view"
        return reason(rules.OPAQUE_OUTPUT, text, site, remedy)
    return None


def _is_of_views(leaf: torch.Tensor, made: OutputLeaf, given: Sequence[Any]) -> bool:
    """Whether nothing but views lies between a tensor and the one that it is taken of anew."""
    base = made.base if made.kind == EXTERNAL_VIEW else given[made.index] if given else None
    if base is None:
        return False
    node, end = history_of(leaf), history_of(base)
    while node is not None and node is not end:
        if node.name() == "torch::autograd::AccumulateGrad":
            return end is None and node.variable is base
        if node.name() not in _VIEWS or len(node.next_functions) != 1:
            return False
        node = node.next_functions[0][0]
    return node is not None


def _as_made(leaf: OutputLeaf) -> AbstractContextManager[Any]:
    """A view with a history gets one even where gradients are off around the call, which turned them on."""
    if not leaf.tracked or torch.is_grad_enabled():
        return nullcontext()
    modes = ExitStack()
    if torch.is_inference_mode_enabled():
        modes.enter_context(torch.inference_mode(False))
    modes.enter_context(torch.enable_grad())
    return modes


def input_view(leaf: OutputLeaf, base: torch.Tensor, start: int) -> torch.Tensor:
    """A view of an argument's memory as it lies there; ``start`` is that of its group in the storage."""
    if base.requires_grad and not leaf.tracked:
        base = base.detach()
    with _as_made(leaf):
        return _alike(leaf, _input_view(leaf.token, base, start))


def _input_view(token: Any, base: torch.Tensor, start: int) -> torch.Tensor:
    if base.is_conj():
        base = base.conj()
    if base.is_neg():
        base = negative_view(base)
    if token.dtype != base.dtype:
        base = base.view(token.dtype)
    return base.as_strided(token.shape, token.stride, token.offset + start)


def external_view(leaf: OutputLeaf) -> torch.Tensor:
    """A view of a tensor made outside, with a graph of its own where it has one.

    The graph of the recorded view is that of the recording, and ends in leaves that are not the caller's.
    """
    with _as_made(leaf):
        return _alike(leaf, _external_view(leaf))


def _alike(leaf: OutputLeaf, view: torch.Tensor) -> torch.Tensor:
    """A view that autograd treats as it does the recorded one."""
    if leaf.apart:
        return view.data
    if not leaf.is_view and not view.requires_grad:
        return view.detach()
    set_creation_kind(view, leaf.creation)
    return view


def _external_view(leaf: OutputLeaf) -> torch.Tensor:
    view = leaf.value
    if leaf.base is None or not (leaf.tracked or view.requires_grad):
        return view.view_as(view)
    if not leaf.tracked:  # made under no_grad, it requires grad as its base does, and has no history
        with torch.no_grad():
            return leaf.base.as_strided(view.shape, view.stride(), view.storage_offset())
    return leaf.base.as_strided(view.shape, view.stride(), view.storage_offset())
