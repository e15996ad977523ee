"""From a captured operation to the cheapest call that repeats it into the same memory.

In order of preference: fill or copy in place (factories and clones), the operation itself if it writes in
place, its native ``out=`` overload, or the operation followed by a copy of each result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch

from .compat import Call
from .operations import COPIES, FILLS, FILLS_WITH, Facts
from .tape import Entry, Place, Product
from .trial import PLAIN_VALUES
from .variants import Variant

_tuple = tuple.__new__


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
        facts, operands, options, _, _, _, plain, variant, literal = entry
        tensor, thaw = self._tensor, self._thaw
        args = tuple([tensor(each) if type(each) is Place else thaw(each) for each in operands])
        kwargs = {name: thaw(each) for name, each in options.items()} if options else {}
        if variant is not None:
            return self._into(entry, variant, args, kwargs)
        if literal is not None:
            return Statement(self._target(entry).copy_, (literal,), {})
        if facts.writes or facts.silent or not plain:
            return self._call(entry, args, kwargs)
        return self._in_place(facts, entry, args) or self._call(entry, args, kwargs)

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

    def _into(
        self, entry: Entry, variant: Variant, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Statement:
        if variant.adapt is not None:
            args, kwargs = variant.adapt(args, kwargs)
        for name, (_, place) in zip(variant.outs, entry.products, strict=True):
            kwargs[name] = self._tensor(place)
        return _tuple(Statement, (variant.call, args, kwargs, ()))

    def _call(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Statement:
        facts = entry.facts
        if facts.method is not None and args and not entry.products:
            return Statement(getattr(args[0], facts.method), args[1:], kwargs)
        stores = tuple([self._store(product) for product in entry.products])
        return Statement(facts.call, args, kwargs, stores)

    def _store(self, product: Product) -> Store:
        place, target = product.place, self._tensor(product.place)
        form = place.form
        if not form.overlaps:
            return Store(product.path, target, None)
        count = 1 + sum((n - 1) * step for n, step in zip(form.size, form.stride, strict=True))
        flat = target.as_strided((count,), (1,), target.storage_offset())
        return Store(product.path, flat, (count, place.offset))

    def _target(self, entry: Entry) -> torch.Tensor:
        return self._tensor(entry.products[0].place)

    def _thaw(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN_VALUES:
            return value
        if kind is Place:
            return self._tensor(value)
        return [self._thaw(each) for each in cast("list[Any]", value)] if kind is list else value
