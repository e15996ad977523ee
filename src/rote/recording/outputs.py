"""How a recorded result is handed to the caller.

A result may be: the caller's own argument or a view of it; an external tensor or a view of it; memory of the
recording; a plain value. Only the third needs care, since the next replay writes there: the caller gets a
copy, one per storage, so that results that share memory go on sharing it.

A result whose autograd graph was consumed inside the call (the loss of a training step) comes back requiring
grad, as in eager, and raises when ``backward`` is called on it again, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..base.location import Site
from ..hazards.rules import Reason
from ..signature.bound import Bound
from ..signature.compat import is_lazy_zero, is_wrapped
from ..signature.handed import GivenBranch
from ..signature.leaves import filled, flatten, paths, repeated, unflatten
from .compat import history_of
from .events import comparable
from .ledger import EXTERNAL, INPUT, Ledger
from .opaque import opaque_object, opaque_tensor
from .taken_views import external_view, input_view, looked_at, opaque_view
from .template import (
    AGAIN,
    EXTERNAL_SAME,
    EXTERNAL_VIEW,
    GIVEN,
    INPUT_VIEW,
    META,
    OWN,
    PASSED,
    VALUE,
    VIEW,
    OutputLeaf,
    Template,
    spend,
)
from .views import copied_together, related, view_of

Attach = Callable[[dict[int, torch.Tensor]], None]
"""Hangs results into the caller's autograd graph; see :meth:`.backward.Backward.attach`."""


class Own(NamedTuple):
    """What a callable that has just run has returned itself.

    Attributes:
        value: It. What keeps one of its containers knows that very one.
    """

    value: Any


_VALUES = (int, float, bool, str, bytes, complex, type(None), torch.dtype, torch.device, torch.Size)


def make_template(
    value: Any,
    ledger: Ledger,
    inputs: dict[int, int],
    spent: set[int],
    site: Site,
    given: Sequence[Any] = (),
) -> tuple[Template, list[Reason]]:
    """Take a result apart.

    Args:
        value: What the callable returned.
        ledger: The storages of the call.
        inputs: Argument leaf by identity of the tensor passed to the callable, or of the object that is not
            taken apart.
        spent: Identities of tensors whose graph was consumed inside the call.
        site: The user's line for reasons.
        given: The argument leaves as the callable has them.

    Returns:
        The template, and the reasons why the result cannot be handed out from a recording.
    """
    leaves: list[Any] = []
    spec = flatten(value, leaves)
    found: list[OutputLeaf] = []
    blockers: list[Reason] = []
    first: dict[int, int] = {}
    for position, (name, leaf) in enumerate(zip(paths(spec, "result"), leaves, strict=True)):
        if isinstance(leaf, torch.Tensor) and id(leaf) in first:
            found.append(OutputLeaf(AGAIN, (AGAIN, first[id(leaf)]), index=first[id(leaf)]))
        elif isinstance(leaf, torch.Tensor):
            first[id(leaf)] = position
            made = _tensor_leaf(leaf, ledger, inputs, id(leaf) in spent)
            if made.kind in (INPUT_VIEW, EXTERNAL_VIEW):
                made = looked_at(made, leaf, _seen_in(made, ledger, given))
            found.append(made)
            why = opaque_tensor(name, leaf, made, site) or opaque_view(name, leaf, made, given, site)
            blockers.extend([why] if why is not None else [])
        elif type(leaf) is GivenBranch:
            found.append(OutputLeaf(GIVEN, (GIVEN, leaf.number), index=leaf.number))
        elif id(leaf) in inputs:
            found.append(OutputLeaf(PASSED, (PASSED, inputs[id(leaf)]), index=inputs[id(leaf)]))
        else:
            if not isinstance(leaf, _VALUES) and not callable(leaf):
                blockers.append(opaque_object(name, leaf, site))
            found.append(OutputLeaf(VALUE, _value_token(leaf, ledger), value=leaf))
    return related(Template(spec, tuple(found), repeated(spec, value)), value), blockers


def _seen_in(made: OutputLeaf, ledger: Ledger, given: Sequence[Any]) -> torch.Tensor | None:
    """The tensor that a view looks at, if it is at hand."""
    if made.kind == EXTERNAL_VIEW:
        return ledger.externals[made.token.origin[1]]
    return given[made.index] if made.index < len(given) else None


def _value_token(leaf: Any, ledger: Ledger) -> Any:
    if isinstance(leaf, _VALUES):
        return (type(leaf), comparable(leaf, ledger))
    return (type(leaf), id(leaf))


def _tensor_leaf(leaf: torch.Tensor, ledger: Ledger, inputs: dict[int, int], spent: bool) -> OutputLeaf:
    if leaf.layout is not torch.strided or is_wrapped(leaf):
        return OutputLeaf(VALUE, (leaf.layout, leaf.dtype, tuple(leaf.shape)))
    if leaf.device.type == "meta" or is_lazy_zero(leaf):
        token = (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device)
        return OutputLeaf(META, token, value=leaf.detach())
    if id(leaf) in inputs:
        return OutputLeaf(PASSED, inputs[id(leaf)], index=inputs[id(leaf)])
    tracked = leaf.requires_grad and history_of(leaf) is not None and not spent
    same = any(leaf is external for external in ledger.externals)
    token = ledger.token(leaf)
    kind, number = token.origin
    if kind == INPUT:
        return OutputLeaf(INPUT_VIEW, token, number, ledger.input_dtype(number), tracked=tracked)
    if kind == EXTERNAL:
        seen_now = ledger.externals[-1] is leaf  # no operation read it: it is the object itself
        if same or seen_now:
            return OutputLeaf(EXTERNAL_SAME, token, value=leaf)
        return OutputLeaf(EXTERNAL_VIEW, token, value=leaf, tracked=tracked, base=leaf._base)
    return OutputLeaf(OWN, token, number, leaf.detach(), spent=spent, tracked=tracked)


def hand_out(
    template: Template,
    leaves: tuple[Any, ...],
    starts: dict[int, int],
    attach: Attach | None = None,
    branches: Callable[[], list[Any]] = list,
    own: Own | None = None,
) -> Any:
    """Make the caller's result: copies of what lies in the recording's memory, everything else as it is.

    Args:
        template: The recorded result.
        leaves: The call's argument leaves.
        starts: For each input leaf a view is taken of, where its group starts in the caller's storage.
        attach: Hangs the copies, by position, into the caller's autograd graph.
        branches: Gives the containers and objects among the arguments.
        own: What the callable has returned, if it has just run: its containers are the caller's.
    """
    if attach is None and template.spec is None and template.leaves[0].kind == OWN:
        return _copies(template)[0]
    copies = _copies(template)
    if attach is not None:
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                attach(copies)
        else:
            attach(copies)
    parts: list[Any] = []
    given = branches() if template.needs_given else []
    for position, leaf in enumerate(template.leaves):
        if leaf.kind == OWN:
            parts.append(copies[position])
        elif leaf.kind == PASSED:
            parts.append(leaves[leaf.index])
        elif leaf.kind == GIVEN:
            parts.append(given[leaf.index])
        elif leaf.kind == INPUT_VIEW:
            parts.append(input_view(leaf, leaves[leaf.index], starts[leaf.index]))
        elif leaf.kind == EXTERNAL_VIEW:
            parts.append(external_view(leaf))
        elif leaf.kind == VIEW:
            parts.append(view_of(leaf, template, copies))
        elif leaf.kind == META:
            zero = is_lazy_zero(leaf.value)  # it cannot be written
            parts.append(leaf.value.detach() if zero else torch.empty_like(leaf.value))
        elif leaf.kind == AGAIN:
            parts.append(parts[leaf.index])
        else:
            parts.append(leaf.value)
    return put_together(template, parts, given, own)


def put_together(template: Template, parts: list[Any], given: list[Any], own: Own | None) -> Any:
    """The caller's result, and what is bound with it, of its leaves.

    Args:
        template: The result, taken apart.
        parts: Its leaves.
        given: The containers and objects among the arguments.
        own: What the callable has returned, if it has just run.
    """
    if own is None:
        value = unflatten(template.spec, iter(parts), template.again)
    else:
        value = filled(template.spec, own.value, iter(parts), template.again)
    return value.put(given, ran=own is not None) if type(value) is Bound else value


def _copy_leaf(leaf: OutputLeaf) -> torch.Tensor:
    """A copy of a result that shares memory with no other one."""
    if not leaf.spent:
        return copy_of(leaf.value)
    # See Template.prepared(): one operation, not two.
    if leaf.value.requires_grad and torch.is_grad_enabled():
        return copy_of(leaf.value)
    return spend(copy_of(leaf.value.detach()))


def _copies(template: Template) -> dict[int, torch.Tensor]:
    """A copy of every tensor in the recording's memory, one memory per storage.

    They are inference tensors, or none, as the callable makes them: it may have set the mode itself.
    """
    by_storage: dict[int, list[int]] = {}
    for position, leaf in enumerate(template.leaves):
        if leaf.kind == OWN:
            by_storage.setdefault(leaf.index, []).append(position)
    found: dict[int, torch.Tensor] = {}
    inference = torch.is_inference_mode_enabled()
    for positions in by_storage.values():
        first = template.leaves[positions[0]]
        if first.value.is_inference() is not inference:
            with torch.inference_mode(not inference):
                found.update(_copied(template, positions))
        elif len(positions) == 1:
            found[positions[0]] = _copy_leaf(first)
        else:
            found.update(_copied(template, positions))
    return found


def _copied(template: Template, positions: list[int]) -> dict[int, torch.Tensor]:
    """Copies of results that share memory, or of one that does not."""
    if len(positions) > 1:
        return copied_together({place: template.leaves[place] for place in positions})
    return {positions[0]: _copy_leaf(template.leaves[positions[0]])}


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into memory of its own, strides kept."""
    if tensor.is_contiguous():
        return tensor.clone()
    fresh = tensor.clone()
    if fresh.stride() == tensor.stride():
        return fresh
    storage = tensor.untyped_storage().clone()
    fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return fresh.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
