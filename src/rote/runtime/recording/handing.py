"""How a recorded result is handed to the caller: now, and in the lines of a generated function.

A result may be the caller's own argument or a view of it, an external tensor or a view of it, memory of the
recording, or a plain value. Only memory of the recording needs care, since the next replay writes there: the
caller gets a copy, one per storage, so that results that share memory go on sharing it.

A result whose autograd graph was consumed inside the call (the loss of a training step) comes back requiring
grad, as in eager, and raises when ``backward`` is called on it again, as in eager.

Each kind of leaf has one row in ``PARTS``: what makes it, and what writes the expression that makes it. A
leaf without an expression is made by the general path, and so is the result that contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from ..arguments import ARRAY, BOUND, Bound, LeftGradient, Source, Spec, Target, filled, unflatten
from ..autograd.graph import copied_together, view_of
from ..numbers import copied
from ..objects import array_over
from ..program import (
    AGAIN,
    COMPUTED,
    COPIED,
    EXTERNAL_SAME,
    EXTERNAL_VIEW,
    FOUND,
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
from ..pytorch import is_lazy_zero
from .taken_views import external_view, input_view

Attach = Callable[[dict[int, torch.Tensor]], None]
"""Hangs results into the caller's autograd graph; see :meth:`..autograd.backward.Backward.attach`."""


class Own(NamedTuple):
    """The value that a callable which has just run returned itself; its containers are the caller's."""

    value: Any


@dataclass(frozen=True)
class Making:
    """What leaves of a result are made of.

    Attributes:
        copies: Copies of what lies in the recording's memory, by position.
        starts: For each argument with a view in the result, where its group starts in the caller's storage.
        given: The containers and objects among the arguments.
        parts: The leaves that are made already.
    """

    template: Template
    copies: Mapping[int, torch.Tensor]
    leaves: tuple[Any, ...]
    starts: Mapping[int, int]
    given: list[Any]
    parts: list[Any] = field(default_factory=list[Any])

    @cached_property
    def lent(self) -> Mapping[int, Any]:
        """Arrays over the tensors of which the call has made arrays: over copies, if those are its own."""
        places = [(place, leaf) for place, leaf in enumerate(self.template.leaves) if leaf.lent >= 0]
        return {
            leaf.lent: PARTS[leaf.kind].make(self, place, leaf).detach().numpy() for place, leaf in places
        }


@dataclass(frozen=True)
class Writing:
    """What the expressions of leaves are made of.

    Attributes:
        leaves: The variables of the argument leaves.
        copied: Gives the variable of a copy that a segment makes itself; None if none does.
    """

    source: Source
    leaves: Sequence[str]
    copied: Callable[[torch.Tensor], str | None]

    def number(self, leaf: OutputLeaf) -> str:
        """A number that was computed when the replay began."""
        return f"{self.source.constant(leaf.value.cell)}.value"

    def copy(self, leaf: OutputLeaf) -> str:
        """A copy of what lies in the recording's memory."""
        constant, made = self.source.constant, self.copied(leaf.value)
        if made is None and leaf.value.is_contiguous():
            return f"{constant(leaf.value.clone)}()"
        return made if made is not None else f"{constant(copy_of)}({constant(leaf.value)})"


class Part(NamedTuple):
    """How one kind of leaf is made now, of its position and itself; and the expression for it, if any."""

    make: Callable[[Making, int, OutputLeaf], Any]
    write: Callable[[Writing, OutputLeaf], str] | None = None


def _empty(making: Making, position: int, leaf: OutputLeaf) -> torch.Tensor:
    zero = is_lazy_zero(leaf.value)  # it cannot be written
    return leaf.value.detach() if zero else torch.empty_like(leaf.value)


_ITSELF = Part(
    lambda making, position, leaf: leaf.value, lambda writing, leaf: writing.source.constant(leaf.value)
)

PARTS: Mapping[str, Part] = {
    OWN: Part(lambda making, position, leaf: making.copies[position], Writing.copy),
    PASSED: Part(
        lambda making, position, leaf: making.leaves[leaf.index],
        lambda writing, leaf: writing.leaves[leaf.index],
    ),
    EXTERNAL_SAME: _ITSELF,
    VALUE: _ITSELF,
    COPIED: Part(
        lambda making, position, leaf: copied(leaf.value),
        lambda writing, leaf: f"{writing.source.constant(copied)}({writing.source.constant(leaf.value)})",
    ),
    FOUND: Part(
        lambda making, position, leaf: leaf.value(),
        lambda writing, leaf: f"{writing.source.constant(leaf.value)}()",
    ),
    COMPUTED: Part(
        lambda making, position, leaf: leaf.value.made(making.lent if leaf.value.orders else {}),
        Writing.number,
    ),
    GIVEN: Part(lambda making, position, leaf: making.given[leaf.index]),
    AGAIN: Part(lambda making, position, leaf: making.parts[leaf.index]),
    VIEW: Part(lambda making, position, leaf: view_of(leaf, making.template, making.copies)),
    INPUT_VIEW: Part(
        lambda making, position, leaf: input_view(leaf, making.leaves[leaf.index], making.starts[leaf.index])
    ),
    EXTERNAL_VIEW: Part(lambda making, position, leaf: external_view(leaf)),
    META: Part(_empty),
}


# ---------------------------------------------------------------------- now


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
        starts: As in :class:`Making`.
        attach: Hangs the copies, by position, into the caller's autograd graph.
        branches: Gives the containers and objects among the arguments.
        own: The callable's own result, if it has just run.
    """
    if attach is None and template.spec is None and template.leaves[0].kind == OWN:
        return _copies(template)[0]
    copies = _copies(template)
    if attach is not None:
        for target in template.targets:
            if isinstance(target, LeftGradient) and target.key:  # a result may be computed from it
                target.look(leaves)[0].requires_grad_()
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                attach(copies)
        else:
            attach(copies)
    making = Making(template, copies, leaves, starts, branches() if template.needs_given else [])
    for position, leaf in enumerate(template.leaves):
        making.parts.append(PARTS[leaf.kind].make(making, position, leaf))
    return put_together(template, making.parts, making.given, own)


def put_together(template: Template, parts: list[Any], given: list[Any], own: Own | None) -> Any:
    """The caller's result and what is bound with it, made of its leaves; ``own`` if the callable just ran."""
    if own is None:
        value = unflatten(template.spec, iter(parts), template.again)
    else:
        value = filled(template.spec, own.value, iter(parts), template.again)
    return value.put(given, ran=own is not None) if type(value) is Bound else value


# ---------------------------------------------------------------------- in a generated function


def can_be_written(template: Template) -> bool:
    """Whether an expression makes the result and binds what the call binds, all of plain containers.

    Copies are made one by one, so no two of them may share memory.
    """
    spec, own = template.spec, [leaf for leaf in template.leaves if leaf.kind == OWN]
    storages = {leaf.value.untyped_storage()._cdata for leaf in own}
    return (
        all(PARTS[leaf.kind].write is not None for leaf in template.leaves)
        and len(storages) == len(own)
        and not any(leaf.spent for leaf in own)
        and all(leaf.value.lies_in_cell for leaf in template.leaves if leaf.kind == COMPUTED)
        and not any(leaf.value.is_inference() != torch.is_inference_mode_enabled() for leaf in own)
        and all(map(_is_plain, spec.children if spec is not None and spec.kind == BOUND else [spec]))
        and all([type(target) is Target for target in template.targets])  # others look at the arguments
        and not template.again
    )


def _is_plain(spec: Spec) -> bool:
    if spec is None:
        return True
    kind, cls, _, children = spec
    return (kind in ("tuple", "list", ARRAY) or cls is dict) and all(_is_plain(child) for child in children)


def write_parts(template: Template, writing: Writing) -> list[str]:
    """The expressions of the leaves of a result that can be written."""
    rows = [(leaf, PARTS[leaf.kind].write) for leaf in template.leaves]
    return [write(writing, leaf) for leaf, write in rows if write is not None]


def write_together(source: Source, spec: Spec, parts: Iterator[str]) -> str:
    """The expression of a result, made of the expressions of its leaves."""
    if spec is None:
        return next(parts)
    kind, _, names, children = spec
    members = [write_together(source, child, parts) for child in children]
    if kind == BOUND:
        rest = "".join([f"{each}, " for each in members[1:]])
        return f"{source.constant(Bound)}({members[0]}, {source.constant(names)}, ({rest})).put()"
    if kind == ARRAY:
        return f"{source.constant(array_over)}({members[0]}, {source.constant(names[0])})"
    if kind == "dict":
        keys = [source.constant(name) for name in names]
        return "{" + ", ".join([f"{key}: {member}" for key, member in zip(keys, members, strict=True)]) + "}"
    listed = ", ".join(members)
    return f"[{listed}]" if kind == "list" else f"({listed}{',' if members else ''})"


# ---------------------------------------------------------------------- copies


def _copy_leaf(leaf: OutputLeaf) -> torch.Tensor:
    """A copy of a result that shares memory with no other one."""
    prepared = leaf.value.requires_grad and torch.is_grad_enabled()  # Template.prepared(): one operation
    if prepared or not leaf.spent:
        return copy_of(leaf.value)
    return spend(copy_of(leaf.value.detach()), idle=leaf.idle)


def _copies(template: Template) -> dict[int, torch.Tensor]:
    """A copy of every tensor in the recording's memory, one memory per storage.

    A copy is an inference tensor if the recorded one is: the callable may have set the mode itself.
    """
    found: dict[int, torch.Tensor] = {}
    inference = torch.is_inference_mode_enabled()
    for positions in template.by_storage():
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
