"""What a callable returned, taken apart: the template of a result, and what of it cannot be handed out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch
from torch.distributions import Distribution

from ...base import Site, is_instance
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import FoundObject, GivenBranch, UnderArray, flatten, paths, repeated
from ..autograd.graph import related
from ..numbers import array_token, copied
from ..objects import base_of, exact, pointer_of, said_module
from ..program import (
    AGAIN,
    COPIED,
    EXTERNAL,
    EXTERNAL_SAME,
    EXTERNAL_VIEW,
    FOUND,
    GIVEN,
    INPUT,
    INPUT_VIEW,
    META,
    OWN,
    PASSED,
    VALUE,
    OutputLeaf,
    StorageTable,
    Template,
    history_of,
    operand_of,
)
from ..pytorch import has_memory, is_lazy_zero, is_wrapped, stands_for_others
from .taken_views import looked_at, opaque_view

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


_SCALARS = (numpy.number, numpy.bool_)
_VALUES = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size)


def make_template(
    value: Any,
    storages: StorageTable,
    inputs: dict[int, int],
    spent: Mapping[int, bool],
    site: Site,
    given: Sequence[Any] = (),
    lent: UnderArray | None = None,
    is_held: Callable[[torch.Tensor], bool] = lambda tensor: False,
    computes: Callable[[Any], bool] | None = None,
    has_filled: Callable[[Any], bool] = lambda array: False,
) -> tuple[Template, list[Reason]]:
    """Take a result apart.

    Args:
        inputs: Argument leaf by identity of the tensor passed to the callable, or of the object kept whole.
        spent: Tensors whose graph is not kept, by identity, and whether that leads nowhere.
        given: The argument leaves as the callable has them.
        lent: Gives a tensor over the memory of an array that the call has made of a tensor.
        is_held: Whether a tensor is one that lies outside, where the call has found it.
        computes: Says of an array whether replays compute it.
        has_filled: Says of an array whether all its numbers follow from what the call has read.

    Returns:
        The template, and the reasons why the result cannot be handed out from a recording.
    """
    leaves: list[Any] = []
    spec = flatten(value, leaves, cuts=True, lent=lent)
    found: list[OutputLeaf] = []
    blockers: list[Reason] = []
    first: dict[int, int] = {}
    for position, (name, leaf) in enumerate(zip(paths(spec, "result"), leaves, strict=True)):
        computed = computes is not None and computes(leaf)
        filled = not computed and type(leaf) is numpy.ndarray and has_filled(leaf)
        if (computed or filled or is_instance(leaf, torch.Tensor)) and id(leaf) in first:
            found.append(OutputLeaf(AGAIN, (AGAIN, first[id(leaf)]), index=first[id(leaf)]))
        elif is_instance(leaf, torch.Tensor):
            first[id(leaf)] = position
            made = _tensor_leaf(leaf, storages, inputs, id(leaf) in spent, given, is_held)
            made = replace(made, idle=spent.get(id(leaf), False))
            if made.kind in (INPUT_VIEW, EXTERNAL_VIEW):
                made = looked_at(made, leaf, _seen_in(made, storages, given))
            found.append(made)
            why = opaque_tensor(name, leaf, made, site) or opaque_view(name, leaf, made, given, site)
            if made.kind == PASSED and is_held(leaf):
                why = reason(rules.OPAQUE_OUTPUT, f"{name} is an argument, and lies in state as well", site)
            blockers.extend([why] if why is not None else [])
        elif type(leaf) is GivenBranch:
            found.append(OutputLeaf(GIVEN, (GIVEN, leaf.number), index=leaf.number))
        elif type(leaf) is FoundObject:
            found.append(OutputLeaf(FOUND, (FOUND, leaf.token), value=leaf))
        elif id(leaf) in inputs:
            found.append(OutputLeaf(PASSED, (PASSED, inputs[id(leaf)]), index=inputs[id(leaf)]))
        elif computed or filled:
            first[id(leaf)] = position
            held = copied(leaf) if filled else leaf
            found.append(OutputLeaf(COPIED if filled else VALUE, array_token(leaf), value=held))
            if lies_in_another(leaf, [each for each in leaves if each is not leaf]):
                blockers.append(opaque_object(name, leaf, site))
        else:
            if not is_instance(leaf, (*_VALUES, *_SCALARS)) and not callable(leaf):
                blockers.append(opaque_object(name, leaf, site))
            found.append(OutputLeaf(VALUE, _value_token(leaf, storages), value=leaf))
    return related(Template(spec, tuple(found), repeated(spec, value, tuples=True)), leaves), blockers


def lies_in_another(array: Any, others: Iterable[Any]) -> bool:
    """Whether an array shares its memory with something else in a result, as a replay would not have it."""
    start = pointer_of(base := base_of(array))
    arrays = [each for each in others if isinstance(each, numpy.ndarray)]
    tensors = [each for each in others if is_instance(each, torch.Tensor) and each.is_cpu]
    pointers = [each.untyped_storage().data_ptr() for each in tensors if has_memory(each)]
    within = [start <= each < start + max(base.nbytes, 1) for each in pointers]
    return any(within) or any([base_of(each) is base for each in arrays])


_AT_HAND = frozenset({OWN, PASSED, INPUT_VIEW})


def with_lent(template: Template, lent: Sequence[torch.Tensor], storages: StorageTable) -> Template:
    """A result, and behind it the tensors over whose memory the call has made arrays.

    These are its own, or arguments, which replays have at hand.
    """
    made = [_tensor_leaf(each, storages, {}, False, ()) for each in lent]
    kept = [
        replace(leaf, hidden=True, lent=order) for order, leaf in enumerate(made) if leaf.kind in _AT_HAND
    ]
    return replace(template, leaves=(*template.leaves, *kept))


def _seen_in(made: OutputLeaf, storages: StorageTable, given: Sequence[Any]) -> torch.Tensor | None:
    """The tensor that a view looks at, if it is at hand."""
    if made.kind == EXTERNAL_VIEW:
        return storages.externals[made.token.origin[1]]
    return given[made.index] if made.index < len(given) else None


def _value_token(leaf: Any, storages: StorageTable) -> Any:
    if is_instance(leaf, _SCALARS):
        return exact(leaf)
    if is_instance(leaf, _VALUES) and not type(leaf).__dictoffset__:  # one with attributes is what it is
        return (type(leaf), operand_of(leaf, storages.token))
    return (type(leaf), id(leaf))


def _tensor_leaf(
    leaf: torch.Tensor,
    storages: StorageTable,
    inputs: dict[int, int],
    spent: bool,
    given: Sequence[Any],
    is_held: Callable[[torch.Tensor], bool] = lambda tensor: False,
) -> OutputLeaf:
    if leaf.layout is not torch.strided or is_wrapped(leaf) or stands_for_others(leaf):
        return OutputLeaf(VALUE, (leaf.layout, leaf.dtype, tuple(leaf.shape)))
    if leaf.device.type == "meta" or is_lazy_zero(leaf):
        token = (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device)
        return OutputLeaf(META, token, value=leaf.detach())
    if id(leaf) in inputs:
        return OutputLeaf(PASSED, inputs[id(leaf)], index=inputs[id(leaf)])
    tracked = leaf.requires_grad and history_of(leaf) is not None and not spent
    same = any(leaf is external for external in storages.externals)
    token = storages.token(leaf)
    kind, number = token.origin
    if kind == INPUT and number < len(given) and (given[number]._base is leaf or is_held(leaf)):
        return OutputLeaf(EXTERNAL_SAME, token, value=leaf)  # it has the argument in it, or looks there
    if kind == INPUT:
        return OutputLeaf(INPUT_VIEW, token, number, storages.input_dtype(number), tracked=tracked)
    if kind == EXTERNAL:
        seen_now = storages.externals[-1] is leaf  # no operation read it: it is the object itself
        made = any(storages.externals[number] is leaf for number in storages.host_memory)
        if made and not is_held(leaf):  # the call has made it over the memory of an array
            return OutputLeaf(EXTERNAL_VIEW, token, value=leaf, base=leaf._base)
        if same or seen_now or is_held(leaf):
            return OutputLeaf(EXTERNAL_SAME, token, value=leaf)
        return OutputLeaf(EXTERNAL_VIEW, token, value=leaf, tracked=tracked, base=leaf._base)
    return OutputLeaf(OWN, token, number, leaf.detach(), spent=spent, tracked=tracked)
