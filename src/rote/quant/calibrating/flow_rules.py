"""Operations that leave features apart, and the place of each feature in their result.

A *map* belongs to a tensor and has its shape. It names the feature that each element is a multiple of: if
that feature were divided by a positive number, so would be the element, and nothing else of it would change.
``NOTHING`` marks an element that is no multiple of a feature. All features in a rule's arguments are those of
one source.

A rule returns the map of a call's first result, or None for a call that it does not know. Then, and for an
operation without a rule, the features count as read. So do features in arguments outside the rule, such as
the queries and keys of attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

NOTHING = -1


@dataclass(frozen=True)
class OpCall:
    """A called operation and its first result; ``map_of`` gives the map of a tensor, if it has one."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Tensor
    map_of: Callable[[object], Tensor | None]

    def maps(self, count: int) -> list[Tensor | None]:
        """The maps of the first arguments."""
        found = [self.map_of(arg) for arg in self.args[:count]]
        return found + [None] * (count - len(found))


@dataclass(frozen=True)
class FlowRule:
    """The way of features through an operation.

    ``map_result`` gives the map of the first result. Features of the arguments from ``first`` to before
    ``last`` go on; the operation reads those of the others.
    """

    map_result: Callable[[OpCall], Tensor | None]
    first: int
    last: int | None

    def carried(self, call: OpCall) -> tuple[Any, ...]:
        """The arguments whose features go on."""
        return call.args[self.first : self.last]

    def read(self, call: OpCall) -> tuple[Any, ...]:
        """The other arguments."""
        last = len(call.args) if self.last is None else self.last
        return (*call.args[: self.first], *call.args[last:], call.kwargs)


def rule_for(name: str) -> FlowRule | None:
    """The rule of an ATen operation, by its name; one in place has that of the operation without ``_``."""
    if name.startswith("_scaled_dot_product_") and not name.endswith("_backward"):
        return FlowRule(_attention, 2, 3)
    return _RULES.get(name) or _RULES.get(name.removesuffix("_"))


def _elementwise(call: OpCall) -> Tensor | None:
    """Each element times a number that depends only on its sign or on chance."""
    (features,) = call.maps(1)
    fine = call.result.is_floating_point() and call.result.dtype.itemsize > 1
    return features if fine else None


def _product(call: OpCall) -> Tensor | None:
    left, right = call.maps(2)
    if left is not None and right is not None:
        return None
    features = right if left is None else left
    return None if features is None else features.expand(call.result.shape)


def _quotient(call: OpCall) -> Tensor | None:
    return None if call.maps(2)[1] is not None or call.kwargs else _product(call)


def _sum(call: OpCall) -> Tensor | None:
    """A sum of multiples of one feature is a multiple of it."""
    left, right = call.maps(2)
    if left is None or right is None:
        return None
    left, right = left.expand(call.result.shape), right.to(left.device).expand(call.result.shape)
    return left if torch.equal(left, right) and not bool((left == NOTHING).any()) else None


def _moved(call: OpCall) -> Tensor | None:
    """An operation that only moves elements moves those of maps in the same way."""

    def mapped(value: object) -> object:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        features = call.map_of(value)
        return torch.full_like(value, NOTHING, dtype=torch.int32) if features is None else features

    return call.func(*tree_map(mapped, call.args), **tree_map(mapped, call.kwargs))


def _padded(call: OpCall) -> Tensor | None:
    """Padding adds a constant."""
    (features,) = call.maps(1)
    return None if features is None else call.func(features, call.args[1], NOTHING)


def _matrices(call: OpCall) -> Tensor | None:
    """Sums along one dimension of multiples of one feature."""
    left, right = call.maps(2)
    features = None
    if left is None and right is not None:
        features = _constant(right, -2)
    if right is None and left is not None:
        features = _constant(left, -1)
    return None if features is None else features.expand(call.result.shape)


def _attention(call: OpCall) -> Tensor | None:
    """Weighted sums of values over tokens; neighbouring query heads share the values of one head."""
    value = call.maps(3)[2]
    features, shape = None if value is None else _constant(value, -2), call.result.shape
    if features is None or features.dim() != 4 or len(shape) != 4:
        return None
    heads = features.shape[1]
    if shape[3] != features.shape[3] or shape[1] % heads:
        return None
    return features.repeat_interleave(shape[1] // heads, 1).expand(shape)


def _constant(features: Tensor, dim: int) -> Tensor | None:
    """The first along a dimension, kept with size 1, if the others are equal to it."""
    if not features.shape[dim]:
        return None
    first = features.narrow(dim, 0, 1)
    return first if bool((features == first).all()) else None


_RULES: dict[str, FlowRule] = {
    **dict.fromkeys(
        ("relu", "leaky_relu", "neg", "abs", "clone", "_to_copy", "native_dropout"),
        FlowRule(_elementwise, 0, 1),
    ),
    **dict.fromkeys(
        ("cat", "stack", "index_select", "index", "repeat", "flip", "roll"), FlowRule(_moved, 0, None)
    ),
    "constant_pad_nd": FlowRule(_padded, 0, 1),
    "mul": FlowRule(_product, 0, 2),
    "div": FlowRule(_quotient, 0, 2),
    **dict.fromkeys(("add", "sub"), FlowRule(_sum, 0, 2)),
    **dict.fromkeys(("mm", "bmm"), FlowRule(_matrices, 0, 2)),
}

SHAPES_ONLY = frozenset(
    (
        "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
        "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided",
    )
)  # fmt: skip
"""Operations that look at no value of their argument."""
