"""From a captured operation to the call that repeats it into the same memory.

An operation that is known to write into memory given to it is given it. Any other is called again, and each
of its results is copied; one that writes in place has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch

from ...operators import PLAIN_VALUES
from ..protocol import Magnitudes, NumberCell, ResultSizeError, holds
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
    call, stores = operation.call, tuple([_store(product, tensor) for product in products])
    if operation.writer is not None and products[0].place.form.plain:
        call, kwargs, stores = operation.writer, {**kwargs, "out": tensor(products[0].place)}, ()
    if not operation.facts.own and stores:
        call = _checked(operation.facts.name, call, products)
    if holds(NumberCell, args, kwargs):
        return ReplayStep(_with_numbers(call, args, kwargs), (), {}, stores)
    return ReplayStep(call, args, kwargs, stores)


def bound(cells: Iterable[NumberCell], tensors: Iterable[torch.Tensor]) -> None:
    """Let replays have numbers alone that the types of tensors can: an operation raises for others."""
    types = {each.dtype for each in tensors} - {torch.bool}
    numbers = [torch.iinfo(each) if _is_whole(each) else torch.finfo(each) for each in types]
    if numbers:
        largest = min([each.max for each in numbers])
        for cell in cells:
            cell.bound(Magnitudes(0, largest, endless=not any(map(_is_whole, types))))


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _checked(name: str, call: Call, products: Sequence[Product]) -> Call:
    """A call of a library's operator: that its result has the recorded size follows from nothing."""
    shapes = [(product.path, product.place.form.size) for product in products]

    def run(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        for path, shape in shapes:
            part = result
            for index in path:
                part = part[index]
            ResultSizeError.check(name, shape, part)
        return result

    return run


def _with_numbers(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A call with the numbers that lie in cells when it runs."""
    given, named = list(args), dict(kwargs)
    lists = [(given, place, each) for place, each in enumerate(given)]
    operands: list[tuple[Any, Any, Any]] = [*lists, *[(named, name, each) for name, each in named.items()]]
    for _, _, operand in list(operands):
        if type(operand) is list:
            operands += [(operand, place, each) for place, each in enumerate(cast("list[Any]", operand))]
    cells = [(where, key, each) for where, key, each in operands if type(each) is NumberCell]

    def run() -> Any:
        for where, key, cell in cells:
            where[key] = cell.value
        return call(*given, **named)

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
