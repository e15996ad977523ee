"""Matrix products that run at the same time, on two streams.

The projections of one input need not wait for one another, and a product of few rows leaves most of a GPU
idle. A graph keeps the order in which its operations were captured on one stream, so such products are
captured on two. They are the same kernels with the same operands, so the bits are the same.

On an H200 a training step of a small transformer takes 0.347 ms with two streams and 0.371 ms with one, a
U-Net 12.1 and 11.95 ms (``benchmarks/results/nvidia-h200/2026-11-30-two-streams.json``).

What is given back meanwhile could be used by the other stream while it is still read. So nothing dies between
the fork and the join.

There are two streams and no more, since each has a workspace of cuBLAS of its own.

Such products read nothing of one another, so it does not matter either which of them runs first: those with
one alternative and one operand in common are that alternative's to calculate at once (:func:`joint_of`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..operators import short
from ..program import Operation, Token
from .alternatives import Alternative
from .regions import Item, Schedule
from .shortening import ShortStretch

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "_scaled_mm"})
_LEAST = 1 << 16
"""Bytes of the operands of a product that runs at the same time as another one."""
_MOST_ELEMENTS = 1 << 20
"""Elements of its result up to which it leaves room for another one."""


class Concurrent(NamedTuple):
    """Items of a segment, in order, of which some run at the same time as the others."""

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


Joint = tuple[int, ...]
"""Operations by index, in order."""


def joint_of(
    schedule: Schedule, short: ShortStretch, alternatives: Mapping[int, Alternative]
) -> Iterator[Joint]:
    """The operations of a stretch that may be calculated together, two or more each time.

    Args:
        alternatives: What stands for operations, by index.
    """
    for run in schedule.runs:
        for fork in forks(run, short):
            found: dict[Hashable, list[int]] = {}
            for index in indices_of(fork):
                key = _shared(index, short, alternatives.get(index))
                if key is not None:
                    found.setdefault(key, []).append(index)
            yield from [tuple(each) for each in found.values() if len(each) > 1]


def indices_of(fork: Concurrent) -> list[int]:
    """The operations that run at the same time, in order."""
    return sorted([item for item in (*fork.first, *fork.second) if isinstance(item, int)])


def _shared(index: int, short: ShortStretch, alternative: Alternative | None) -> Hashable:
    """What operations have in common that are calculated together; None if this one is calculated alone."""
    if alternative is None or alternative.together is None:
        return None
    operation = short.effects.operations[index]
    operand = operation.operands[alternative.together.shared]
    if not isinstance(operand, Token):
        return None
    return (operation.name, alternative.name, short.home(operand.origin), operand.look, operand.offset)
