"""From a captured operation to the call that repeats it into the same memory.

An operation that is known to write into memory given to it is given it. Any other is called again, and each
of its results is copied; one that writes in place has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from ...operators import PLAIN_VALUES
from ..protocol import has_cells, without_cells
from .program import ReplayStep, Store
from .tape import Entry, LaunchEntry, Product, TapePlace
from .torch_private import Call

Bound = Callable[[TapePlace], torch.Tensor]
"""The tensor at a place."""


def lower(entry: Entry, tensor: Bound) -> ReplayStep:
    """The step that repeats an entry."""
    if isinstance(entry, LaunchEntry):
        tensors = [_thaw(each, tensor) for each in entry.tensors]
        return ReplayStep(entry.kernel.bound(tensors, entry.reals, entry.integers), (), {})
    operation, products = entry.operation, entry.products
    if entry.literal is not None:
        return ReplayStep(tensor(products[0].place).copy_, (entry.literal,), {})
    args = tuple([_thaw(each, tensor) for each in entry.args])
    kwargs = {name: _thaw(each, tensor) for name, each in entry.kwargs.items()}
    if has_cells(args, kwargs):
        operation = operation._replace(
            call=_with_numbers(operation.call),
            writer=_with_numbers(operation.writer) if operation.writer is not None else None,
        )
    if operation.writer is not None and products[0].place.form.plain:
        return ReplayStep(operation.writer, args, {**kwargs, "out": tensor(products[0].place)})
    return ReplayStep(operation.call, args, kwargs, tuple([_store(product, tensor) for product in products]))


def _with_numbers(call: Call) -> Call:
    """The call, with the numbers that lie in cells when it runs."""

    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = without_cells(args, kwargs)
        return call(*args, **kwargs)

    return run


def _store(product: Product, tensor: Bound) -> Store:
    place, target = product.place, tensor(product.place)
    form = place.form
    if not form.overlaps:
        return Store(product.path, target, None)
    count = 1 + sum((n - 1) * step for n, step in zip(form.size, form.stride, strict=True))
    flat = target.as_strided((count,), (1,), target.storage_offset())
    return Store(product.path, flat, (count, place.offset))


def _thaw(value: Any, tensor: Bound) -> Any:
    kind = type(value)
    if kind in PLAIN_VALUES:
        return value
    if kind is TapePlace:
        return tensor(value)
    return [_thaw(each, tensor) for each in cast("list[Any]", value)] if kind is list else value
