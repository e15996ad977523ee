"""Matrix products that run at the same time, on two streams.

The projections of one input need not wait for one another, and a product of few rows leaves most of a GPU
idle. A graph keeps the order in which its operations were captured on one stream, so such products are
captured on two. They are the same kernels with the same operands, so the bits are the same.

What is given back meanwhile could be used by the other stream while it is still read. So nothing dies between
the fork and the join.

There are two streams and no more, since each has a workspace of cuBLAS of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..operators import short
from ..program import Operation, Token
from .regions import Item
from .shortening import ShortStretch

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_scaled_mm"})
_LEAST = 1 << 16
"""Bytes of the operands of a product that runs at the same time as another one."""
_MOST_ELEMENTS = 1 << 20
"""Elements of its result up to which it leaves room for another one."""


class Concurrent(NamedTuple):
    """Items of a segment, in order, of which some run at the same time as the others.

    Attributes:
        first: Those that run on the stream of the segment.
        second: Those that run on the other one.
    """

    first: tuple[Item, ...]
    second: tuple[Item, ...] = ()


def forks(items: Sequence[Item], stretch: ShortStretch) -> Iterator[Concurrent]:
    """The items of a segment, those together that may run at the same time."""
    waiting: list[int] = []
    for item in items:
        product = item if isinstance(item, int) and _is_slim(stretch.effects.operations[item]) else None
        if waiting and (product is None or not _is_apart(product, waiting, stretch)):
            yield _divided(waiting, stretch)
            waiting = []
        if product is None:
            yield Concurrent((item,))
        else:
            waiting.append(product)
    if waiting:
        yield _divided(waiting, stretch)


def _is_slim(operation: Operation) -> bool:
    """Whether it is a product that takes its time and does not keep a GPU busy."""
    if not operation.is_of_aten or short(operation.name) not in _PRODUCTS or operation.written:
        return False
    (result,) = operation.results if len(operation.results) == 1 else (None,)
    if not isinstance(result, Token) or math.prod(result.shape) > _MOST_ELEMENTS:
        return False
    return _weight(operation) >= _LEAST


def _is_apart(item: int, others: Sequence[int], stretch: ShortStretch) -> bool:
    """Whether an operation reads nothing that some others make."""
    made = {origin for each in others for origin in stretch.effects.touched[each].makes}
    reads = stretch.effects.touched[item].reads
    return made.isdisjoint([stretch.home(token.origin) for token in reads])


def _divided(items: Sequence[int], stretch: ShortStretch) -> Concurrent:
    """About as much on both streams, each in order."""
    if len(items) == 1:
        return Concurrent(tuple(items))
    operations = stretch.effects.operations
    sides: tuple[list[int], list[int]] = ([], [])
    loads = [0, 0]
    for item in sorted(items, key=lambda each: _weight(operations[each]), reverse=True):
        lighter = int(loads[1] < loads[0])
        sides[lighter].append(item)
        loads[lighter] += _weight(operations[item])
    return Concurrent(tuple(sorted(sides[0])), tuple(sorted(sides[1])))


def _weight(operation: Operation) -> int:
    """Bytes of its operands."""
    return sum([token.nbytes for token in operation.tokens])
