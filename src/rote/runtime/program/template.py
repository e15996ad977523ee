"""A result, taken apart: where its leaves come from, and how two observations of it are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch

from ..arguments import BOUND, GivenTarget, Spec, Target, paths
from ..numbers import TrackedNumbers, array_token
from ..objects import exact
from .operations import are_like, number_of

PASSED, INPUT_VIEW, EXTERNAL_SAME, EXTERNAL_VIEW, OWN, VIEW, VALUE, META, AGAIN, GIVEN, FOUND, COPIED = (
    "passed", "input view", "external", "external view", "own", "view", "value", "meta", "again",
    "given", "found", "copied",
)  # fmt: skip
COMPUTED = "computed"
"""A number that each replay computes."""


@dataclass(frozen=True)
class OutputLeaf:
    """One leaf of a result.

    Attributes:
        kind: Where it comes from, one of the names above.
        token: Its form for comparison.
        index: Branch of the arguments (given), argument leaf (passed, input view), storage number (own),
            earlier leaf of the result (again) or the leaf that it is a view of (view).
        value: The tensor in the recording, the external tensor, the plain value, the array of which each
            replay hands out a copy, or what leads to an object.
        spent: It requires grad, and its graph is not kept: it was consumed inside the call, or leads nowhere.
        idle: It leads nowhere: a backward through it runs, and nobody sees what it does.
        tracked: It requires grad, and backward may be called on it.
        base: The base of an external view with a graph.
        part: One of several views that one operation gave; see :mod:`..autograd.graph.views`.
        hidden: No part of the result, but parts of the result are views of it.
        follows: A view that gets a history where its base does (it was not made under ``no_grad``).
        creation: How a view of a tensor from outside was made, as autograd says.
        apart: Such a view counts its own versions (``.data``).
        is_view: Such a tensor is a view to autograd, too.
        lent: No part of the result, but parts are computed from an array over its memory: which of those.
    """

    kind: str
    token: Any
    index: int = -1
    value: Any = None
    spent: bool = False
    idle: bool = False
    tracked: bool = False
    base: torch.Tensor | None = None
    part: bool = False
    hidden: bool = False
    follows: bool = True
    creation: Any = None
    apart: bool = False
    is_view: bool = True
    lent: int = -1

    @property
    def itself(self) -> int:
        """Which tensor from outside it is; one that each call makes over such memory is another in each."""
        return id(self.value) if self.kind == EXTERNAL_SAME else 0


@dataclass(frozen=True)
class Template:
    """A result, taken apart so that it can be made again from the recording's memory.

    Attributes:
        leaves: Its leaves, then tensors outside of it of which its parts are views.
        again: Containers and objects in it that are the same as an earlier one.
    """

    spec: Spec
    leaves: tuple[OutputLeaf, ...]
    again: tuple[tuple[int, int], ...] = ()

    @property
    def tracked(self) -> bool:
        """Whether backward may be called on a part of the result that the call makes."""
        return any(leaf.tracked and leaf.kind == OWN for leaf in self.leaves)

    def by_storage(self) -> list[list[int]]:
        """The positions of the leaves in memory of the recording, those of one storage together."""
        found: dict[int, list[int]] = {}
        for position, leaf in enumerate(self.leaves):
            if leaf.kind == OWN:
                found.setdefault(leaf.index, []).append(position)
        return list(found.values())

    @property
    def targets(self) -> tuple[Target, ...]:
        """The slots outside that are bound with the result."""
        return self.spec.names if self.spec is not None and self.spec.kind == BOUND else ()

    @property
    def gives(self) -> bool:
        """Whether a slot of an argument is bound with the result."""
        return any([isinstance(target, GivenTarget) for target in self.targets])

    @property
    def needs_given(self) -> bool:
        """Whether containers or objects among the arguments are bound, or part of the result."""
        return self.gives or any([leaf.kind == GIVEN for leaf in self.leaves])

    @property
    def key(self) -> Any:
        """The form in which two observations of the result are compared."""
        return (
            self.spec,
            tuple((leaf.token, leaf.tracked, leaf.creation, leaf.apart, leaf.itself) for leaf in self.leaves),
            self.again,
        )

    @property
    def orders(self) -> frozenset[int]:
        """The arrays of tensors from which parts of the result are computed, by their order."""
        found = [leaf.value.orders for leaf in self.leaves if leaf.kind == COMPUTED]
        return frozenset[int]().union(*found)

    def computed(self, numbers: TrackedNumbers) -> Template:
        """The template, where the numbers in it that are followed are computed by replays."""
        return replace(self, leaves=tuple([_computed(leaf, numbers) for leaf in self.leaves]))

    def at_times_of(self, other: Template) -> Template:
        """The template, with the other's times in the places of its own: no two calls have the same."""
        if len(self.leaves) != len(other.leaves) or not any(map(_is_time, other.leaves)):
            return self
        pairs = zip(self.leaves, other.leaves, strict=True)
        return replace(self, leaves=tuple([was if _is_same_time(was, now) else now for now, was in pairs]))

    def resolved(self) -> Template:
        """The template, with the numbers that it computes in the present call."""
        return replace(self, leaves=tuple([_resolved(leaf) for leaf in self.leaves]))

    def prepared(self) -> Template:
        """For a recording: results without their graph get a stand-in, if one operation copies it."""
        leaves = tuple(
            replace(leaf, value=spend(leaf.value, idle=leaf.idle))
            if leaf.kind == OWN and leaf.spent and leaf.value.is_contiguous()
            else leaf
            for leaf in self.leaves
        )
        return replace(self, leaves=leaves)

    def released(self, parts: Sequence[Any]) -> Template:
        """For a call of which no recording is left: parts that it has made are the caller's as they are.

        So are views of tensors outside: they may be what it has left there.
        """
        leaves = list(self.leaves)
        for number, (leaf, part) in enumerate(zip(leaves, parts, strict=False)):
            if leaf.kind in (OWN, VIEW, EXTERNAL_VIEW) and not leaf.spent:
                value = leaf.value if type(part) is numpy.ndarray else part
                leaves[number] = replace(leaf, kind=EXTERNAL_SAME, value=value)
        return self if self.tracked else replace(self, leaves=tuple(leaves))

    def bare(self) -> Template:
        """The template without memory of a recording, enough for comparison."""
        leaves = tuple(
            replace(leaf, value=None) if leaf.kind in (OWN, VIEW) else leaf for leaf in self.leaves
        )
        return replace(self, leaves=leaves)

    def is_like(self, other: Template) -> bool:
        """Whether it is that of a call which does the same at another length."""
        if self.spec != other.spec or self.again != other.again or len(self.leaves) != len(other.leaves):
            return False
        return all(map(_is_like, self.leaves, other.leaves))

    def difference(self, other: Template) -> str:
        """Say which part of the result differs from another observation of it."""
        if self.spec != other.spec:
            return "the structure of the result differs"
        for name, was, now in zip(paths(self.spec, "result"), self.leaves, other.leaves, strict=False):
            if was.tracked != now.tracked:
                return f"{name} {'required' if was.tracked else 'did not require'} grad before"
            if (was.creation, was.apart) != (now.creation, now.apart):
                return f"{name} was another kind of view before"
            if was.itself != now.itself:
                return f"{name} is another tensor over memory from outside"
            if was.token != now.token:
                return f"{name} was {was.value!r:.60} and is {now.value!r:.60}"
        return "nothing differs"


def _is_like(was: OutputLeaf, now: OutputLeaf) -> bool:
    if (was.kind, was.tracked, was.creation, was.apart) != (now.kind, now.tracked, now.creation, now.apart):
        return False
    whole = was.kind == VALUE and type(was.value) is type(now.value) is int
    return whole or are_like(was.token, now.token)


def _is_time(leaf: OutputLeaf) -> bool:
    return leaf.kind == COMPUTED and leaf.value.is_time


def _is_same_time(was: OutputLeaf, now: OutputLeaf) -> bool:
    """Whether a number stands where one did that was computed from a time."""
    return _is_time(was) and now.kind == VALUE and type(now.value) is type(was.value.value)


def _computed(leaf: OutputLeaf, numbers: TrackedNumbers) -> OutputLeaf:
    found = numbers.computed(leaf.value) if leaf.kind == VALUE else None
    return OutputLeaf(COMPUTED, (COMPUTED, found), value=found) if found is not None else leaf


def _resolved(leaf: OutputLeaf) -> OutputLeaf:
    if leaf.kind != COMPUTED or leaf.value.is_time:
        return leaf
    number = leaf.value.value
    if type(number) is numpy.ndarray:
        return OutputLeaf(VALUE, array_token(number), value=number)
    if isinstance(number, numpy.number):
        token = exact(number)
    else:
        token = (type(number), number if type(number) is str else number_of(number))
    return OutputLeaf(VALUE, token, value=number)


class _Spent(torch.autograd.Function):
    """Stands for a graph that was consumed inside the call."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()  # no view, as no result of an operation is one

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            "Trying to backward through the graph a second time: the graphed callable has gone back through "
            "this result. Call backward() or autograd.grad() once, inside the callable."
        )


class _Idle(torch.autograd.Function):
    """Stands for a graph that ends in leaves which nobody has."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None


def spend(tensor: torch.Tensor, *, idle: bool = False) -> torch.Tensor:
    """A tensor over the same memory that requires grad, with a graph that raises, or leads nowhere."""
    with torch.enable_grad():
        return (_Idle if idle else _Spent).apply(tensor.detach(), torch.empty(0, requires_grad=True))
