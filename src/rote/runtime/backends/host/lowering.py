"""From a captured operation to the call that repeats it into the same memory.

One that is known to write into memory given to it is given it. Any other is called again, and
each of its results is copied; one that writes in place has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from ...operators import PLAIN_VALUES
from .program import ReplayStep, Store
from .tape import Product, TapeEntry, TapePlace


class Lowering:
    """Turns entries into steps, given the tensors at their places."""

    def __init__(self, tensor: Callable[[TapePlace], torch.Tensor]) -> None:
        self._tensor = tensor

    def lower(self, entry: TapeEntry) -> ReplayStep:
        """The step that repeats an entry."""
        operation, products = entry.operation, entry.products
        if entry.literal is not None:
            return ReplayStep(self._tensor(products[0].place).copy_, (entry.literal,), {})
        args = tuple([self._thaw(each) for each in entry.args])
        kwargs = {name: self._thaw(each) for name, each in entry.kwargs.items()}
        if operation.writer is not None and products[0].place.form.plain:
            return ReplayStep(operation.writer, args, {**kwargs, "out": self._tensor(products[0].place)})
        return ReplayStep(operation.call, args, kwargs, tuple([self._store(product) for product in products]))

    def _store(self, product: Product) -> Store:
        place, target = product.place, self._tensor(product.place)
        form = place.form
        if not form.overlaps:
            return Store(product.path, target, None)
        count = 1 + sum((n - 1) * step for n, step in zip(form.size, form.stride, strict=True))
        flat = target.as_strided((count,), (1,), target.storage_offset())
        return Store(product.path, flat, (count, place.offset))

    def _thaw(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN_VALUES:
            return value
        if kind is TapePlace:
            return self._tensor(value)
        return [self._thaw(each) for each in cast("list[Any]", value)] if kind is list else value
