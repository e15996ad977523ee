"""What a callable returned, taken apart: the template of a result, and what of it cannot be handed out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy
import torch

from ...base import Site, is_instance
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import GivenBranch, UnderArray, flatten, paths, repeated
from ..autograd.graph import related
from ..numbers import array_token
from ..objects import base_of, exact, pointer_of
from ..program import (
    AGAIN,
    EXTERNAL,
    EXTERNAL_SAME,
    EXTERNAL_VIEW,
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
from .opaque import opaque_object, opaque_tensor
from .taken_views import looked_at, opaque_view

_SCALARS = (numpy.number, numpy.bool_)
_VALUES = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size)


def make_template(
    value: Any,
    storages: StorageTable,
    inputs: dict[int, int],
    spent: set[int],
    site: Site,
    given: Sequence[Any] = (),
    lent: UnderArray | None = None,
    is_held: Callable[[torch.Tensor], bool] = lambda tensor: False,
    computes: Callable[[Any], bool] | None = None,
) -> tuple[Template, list[Reason]]:
    """Take a result apart.

    Args:
        inputs: Argument leaf by identity of the tensor passed to the callable, or of the object kept whole.
        spent: Identities of tensors whose graph was consumed inside the call.
        given: The argument leaves as the callable has them.
        lent: Gives a tensor over the memory of an array that the call has made of a tensor.
        is_held: Whether a tensor is one that lies outside, where the call has found it.
        computes: Says of an array whether replays compute it.

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
        if (computed or is_instance(leaf, torch.Tensor)) and id(leaf) in first:
            found.append(OutputLeaf(AGAIN, (AGAIN, first[id(leaf)]), index=first[id(leaf)]))
        elif is_instance(leaf, torch.Tensor):
            first[id(leaf)] = position
            made = _tensor_leaf(leaf, storages, inputs, id(leaf) in spent, given, is_held)
            if made.kind in (INPUT_VIEW, EXTERNAL_VIEW):
                made = looked_at(made, leaf, _seen_in(made, storages, given))
            found.append(made)
            why = opaque_tensor(name, leaf, made, site) or opaque_view(name, leaf, made, given, site)
            if made.kind == PASSED and is_held(leaf):
                why = reason(rules.OPAQUE_OUTPUT, f"{name} is an argument, and lies in state as well", site)
            blockers.extend([why] if why is not None else [])
        elif type(leaf) is GivenBranch:
            found.append(_given_leaf(leaf))
        elif id(leaf) in inputs:
            found.append(OutputLeaf(PASSED, (PASSED, inputs[id(leaf)]), index=inputs[id(leaf)]))
        elif computed:
            first[id(leaf)] = position
            found.append(OutputLeaf(VALUE, array_token(leaf), value=leaf))
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


def _given_leaf(branch: GivenBranch) -> OutputLeaf:
    if branch.number is None:
        return OutputLeaf(VALUE, (GIVEN, id(branch.value)), value=branch.value)
    return OutputLeaf(GIVEN, (GIVEN, branch.number), index=branch.number)


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
