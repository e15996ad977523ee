"""From a captured operation to the cheapest call that repeats it into the same memory.

In order of preference: fill or copy in place (factories and clones), the operation itself if it writes in
place, its native ``out=`` overload, or the operation followed by a copy of each result. Hot operations are
bound to their ``torch.`` function or tensor method, whose argument parser is up to 1 us cheaper than the
overload's; the parser is only trusted with overloads where it can pick no other, so the lists below name
overloads, not operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch

from .compat import Call, raw_call
from .operations import COPIES, FILLS, FILLS_WITH, Facts
from .tape import Entry, Place, Product, may_overlap

HOT_FUNCTIONS = frozenset(
    f"aten::{name}"
    for name in [
        "abs.out",
        "add.out",
        "addmm.out",
        "addmv.out",
        "amax.out",
        "baddbmm.out",
        "bmm.out",
        "cat.out",
        "clamp_min.out",
        "cos.out",
        "div.out",
        "exp.out",
        "gather.out",
        "index_select.out",
        "log.out",
        "maximum.out",
        "mean.out",
        "minimum.out",
        "mm.out",
        "mul.out",
        "mv.out",
        "neg.out",
        "pow.Tensor_Scalar_out",
        "reciprocal.out",
        "rsqrt.out",
        "sigmoid.out",
        "sin.out",
        "sqrt.out",
        "sub.out",
        "sum.IntList_out",
        "tanh.out",
        "where.self_out",
    ]
)
HOT_METHODS = frozenset(
    f"aten::{name}"
    for name in [
        "add_.Tensor",
        "addcdiv_",
        "addcmul_",
        "copy_",
        "div_.Tensor",
        "fill_.Scalar",
        "mul_.Tensor",
        "neg_",
        "relu_",
        "sigmoid_",
        "sqrt_",
        "sub_.Tensor",
        "tanh_",
        "zero_",
    ]
)


class Store(NamedTuple):
    """A result to copy where it belongs.

    Attributes:
        path: Which result.
        target: Where to.
        span: For results whose elements overlap: copy this many elements of their memory, as it lies, from
            this offset in the result's storage.
    """

    path: tuple[int, ...]
    target: torch.Tensor
    span: tuple[int, int] | None


class Statement(NamedTuple):
    """One call of the replay: everything bound, and what to copy from its result."""

    call: Call
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    stores: tuple[Store, ...] = ()


class Lowering:
    """Turns entries into statements, given the tensors at their places."""

    def __init__(self, tensor: Callable[[Place], torch.Tensor]) -> None:
        self._tensor = tensor

    def lower(self, entry: Entry) -> Statement:
        """The statement that repeats an entry."""
        facts = entry.facts
        args = tuple([self._thaw(each) for each in entry.args])
        kwargs = {name: self._thaw(each) for name, each in entry.kwargs.items()}
        if entry.literal is not None:
            return Statement(self._target(entry).copy_, (entry.literal,), {})
        if facts.writes or facts.silent or not entry.plain:
            return self._call(entry, args, kwargs)
        simple = self._in_place(facts, entry, args)
        return simple or self._into(entry, args, kwargs) or self._call(entry, args, kwargs)

    def _in_place(self, facts: Facts, entry: Entry, args: tuple[Any, ...]) -> Statement | None:
        if len(entry.products) != 1:
            return None
        if facts.name in FILLS:
            return Statement(self._target(entry).fill_, (FILLS[facts.name],), {})
        at = FILLS_WITH.get(facts.name)
        if at is not None and at < len(args):
            return Statement(self._target(entry).fill_, (args[at],), {})
        if facts.name in COPIES and args:
            return Statement(self._target(entry).copy_, (args[0],), {})
        return None

    def _into(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Statement | None:
        variant = entry.variant
        if variant is None:
            return None
        args, kwargs = variant.operands(args, kwargs)
        outs = [self._tensor(product.place) for product in entry.products]
        kwargs = {**kwargs, **dict(zip(variant.outs, outs, strict=True))}
        name = variant.op.name()
        if name in HOT_FUNCTIONS:
            return Statement(getattr(torch, name.removeprefix("aten::").partition(".")[0]), args, kwargs)
        return Statement(raw_call(variant.op), args, kwargs)

    def _call(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Statement:
        facts = entry.facts
        if args and not entry.products and facts.op.name() in HOT_METHODS:
            return Statement(getattr(args[0], facts.name), args[1:], kwargs)
        stores = tuple([self._store(product) for product in entry.products])
        return Statement(raw_call(facts.op), args, kwargs, stores)

    def _store(self, product: Product) -> Store:
        place, target = product.place, self._tensor(product.place)
        if not may_overlap(place):
            return Store(product.path, target, None)
        count = 1 + sum((n - 1) * step for n, step in zip(place.size, place.stride, strict=True))
        flat = target.as_strided((count,), (1,), target.storage_offset())
        return Store(product.path, flat, (count, place.offset))

    def _target(self, entry: Entry) -> torch.Tensor:
        return self._tensor(entry.products[0].place)

    def _thaw(self, value: Any) -> Any:
        if isinstance(value, Place):
            return self._tensor(value)
        if isinstance(value, list):
            return [self._thaw(each) for each in cast("list[Any]", value)]
        return value
