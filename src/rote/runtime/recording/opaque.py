"""Results that a replay cannot hand out, and what to return instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch.distributions import Distribution

from ...base import Site, is_instance
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..objects import said_module
from ..program import EXTERNAL_SAME, EXTERNAL_VIEW, INPUT_VIEW, META, PASSED, VALUE, OutputLeaf, history_of
from ..pytorch import is_wrapped, stands_for_others

_COPY = "Return a copy (clone()), or take the view outside."


def opaque_object(name: str, leaf: Any, site: Site) -> Reason:
    """Why an object that is no container cannot be a result; ``name`` is its part of the result."""
    return reason(rules.OPAQUE_OUTPUT, f"{name} is a {type(leaf).__name__}", site, _instead_of(leaf))


def _instead_of(leaf: Any) -> str:
    kind = type(leaf)
    if said_module(kind).startswith("transformers.") and kind.__name__.endswith("Cache"):
        return "Call the model with use_cache=False (training needs no cache), or return its logits."
    if is_instance(leaf, Distribution):
        names = ", ".join(leaf.arg_constraints) or "parameters"
        return f"Return what it is made of ({names}), and make the {kind.__name__} outside."
    if issubclass(kind, (numpy.ndarray, numpy.generic)):
        return "Return the tensor, and call .numpy() on it outside."
    if issubclass(kind, Iterator):
        return "Return a list: a generator runs when the call is over."
    if issubclass(kind, (set, frozenset)):
        return "Return a list or a tuple."
    if dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return f"Give {kind.__name__} no attributes besides its fields."
    return f"Return its tensors in a tuple, list, dict or dataclass, and make the {kind.__name__} outside."


def opaque_tensor(name: str, leaf: torch.Tensor, made: OutputLeaf, site: Site) -> Reason | None:
    """Why a copy or a view would not be like a tensor of the result; None if it would."""
    found = _unlike(leaf, made)
    if found is None:
        return None
    return reason(rules.OPAQUE_OUTPUT, f"{name} {found[0]}", site, found[1])


def _unlike(leaf: torch.Tensor, made: OutputLeaf) -> tuple[str, str] | None:
    if made.kind in (PASSED, EXTERNAL_SAME, META):
        return None
    if made.kind == VALUE and is_wrapped(leaf):
        remedy = "Return it from the transformed function (has_aux=True), not through a variable outside."
        return "is left over from a torch.func transform", remedy
    if made.kind == VALUE and stands_for_others(leaf):
        return f"is a {type(leaf).__name__}", "Return the tensors that it stands for."
    if made.kind == VALUE:
        layout = str(leaf.layout).removeprefix("torch.")
        return f"has layout {layout}", "Return it as a dense tensor (to_dense()), or its indices and values."
    if type(leaf) is not torch.Tensor:
        return f"is a {type(leaf).__name__}", "Return a plain tensor: detach().as_subclass(torch.Tensor)."
    if leaf.requires_grad and history_of(leaf) is None and not _is_view_of_leaf(leaf, made):
        return "is a leaf that requires grad", "Return it without, and call requires_grad_() on it outside."
    if leaf.is_conj() or leaf.is_neg():
        return "is a lazy conjugate or negative", "Return result.resolve_conj().resolve_neg()."
    if made.kind == INPUT_VIEW and made.value is not leaf.dtype:
        return "is a view of an argument with another dtype", _COPY
    if made.kind == EXTERNAL_VIEW and made.tracked and (made.base is None or made.base.dtype != leaf.dtype):
        what = "is a differentiable view of a tensor made outside, with another dtype"
        return what, _COPY
    return None


def _is_view_of_leaf(leaf: torch.Tensor, made: OutputLeaf) -> bool:
    """Whether a tensor without history is a view of a parameter, made under ``no_grad``."""
    base = made.base
    return made.kind == EXTERNAL_VIEW and base is not None and base.requires_grad and base.dtype == leaf.dtype
