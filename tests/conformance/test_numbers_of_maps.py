"""A number that changes beside a ``map`` of a function of C's, and in what that is given."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rote

CALLS = 30
ROW = torch.arange(4.0)
SIZES = {"i": 2, "j": 3}

BESIDE: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "items of a list": lambda s, x: frozenset.union(
        *map([frozenset([1]), frozenset([2])].__getitem__, {0, 1})
    ),
    "items of a tuple": lambda s, x: [*map((3, 4).__getitem__, [0, 1])],
    "items of a dict": lambda s, x: sum(map(SIZES.__getitem__, "ij")),
    "tensors": lambda s, x: sum(map(torch.mul, [x, x], [x, ROW])),
    "method of a tensor": lambda s, x: [*map(x.__add__, [ROW, x])][1],
    "unpacked": lambda s, x: operator.add(*map(torch.relu, (x, ROW))),
    "attributes": lambda s, x: max(map(operator.attrgetter("ndim"), [x, ROW])),
    "decimal": lambda s, x: float(max(Decimal(3), Decimal(1))),
    "days": lambda s, x: max(date(2020, 1, 3) - date(2020, 1, 1), timedelta(1)).days,
    "three operands": lambda s, x: torch.einsum("i,j,k->i", x, ROW, ROW),
}
"""What does not look at the number."""
AMONG: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "roots": lambda s, x: sum(map(math.sqrt, [s.n, 4])),
    "roots in a list": lambda s, x: [*map(math.sqrt, (s.n, s.n))][1],
    "compared": lambda s, x: [*map(operator.gt, [s.n, 3], [5, s.n])],
    "of its own": lambda s, x: sum(map(s.n.__add__, [1, 2])),
    "where it lies": lambda s, x: sum(map(vars(s).__getitem__, ["n", "n"])),
    "taken": lambda s, x: next(map(vars(s).get, ["n", "m"])),
    "in a list": lambda s, x: max(map([s.n, 3].__getitem__, (0, 1))),
    "from a generator": lambda s, x: sum(map(math.floor, (s.n / each for each in (1, 2)))),
    "put": lambda s, x: [*map(s.queue.append, [s.n])] and s.queue[-1],
    "taken from a queue": lambda s, x: [s.queue.append(s.n), *map(deque.pop, [s.queue])][1],
    "as text": lambda s, x: len("".join(map(str, [s.n, s.n]))),
    "shifted": lambda s, x: next(map(torch.add, [x, x], [s.n, 1])),
    "filled": lambda s, x: next(map(x.new_full, [(4,)], [s.n])),
    "given": lambda s, x: next(map(torch.Tensor.item, [x.sum() * s.n])),
    "an index": lambda s, x: next(map(ROW.__getitem__, [s.n % 4])),
    "of maps": lambda s, x: sum(map(int, map(math.sqrt, [s.n, 4]))),
    "sorted": lambda s, x: sorted(map(operator.neg, [s.n, 4]))[0],
    "reduced": lambda s, x: max(map(max, [(s.n, 4), (s.n, 9)])),
    "in an object": lambda s, x: next(map(operator.attrgetter("n"), [s])),
    "in a tensor's attribute": lambda s, x: next(map(operator.itemgetter(0), [[s.n]])),
}
"""What does."""


def played(program: Callable[[Any, torch.Tensor], Any], wrap: Any) -> list[Any]:
    s = SimpleNamespace(n=0, queue=deque([1], maxlen=3))

    def step(x: torch.Tensor) -> torch.Tensor:
        s.n += 1
        found = program(s, x)
        found = found if isinstance(found, (int, float, torch.Tensor)) else len(found)
        return x * s.n + found

    step = wrap(step)
    return [(step(ROW + call).tolist(), s.n, [*s.queue]) for call in range(CALLS)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", [*BESIDE, *AMONG])
def test_it_is_right(name: str) -> None:
    program = {**BESIDE, **AMONG}[name]
    assert played(program, lambda step: rote.graph(step, keep=True)) == played(program, lambda step: step)


@pytest.mark.parametrize("name", BESIDE)
def test_replays_follow_the_number_beside_it(name: str) -> None:
    graphs: list[Any] = []

    def wrap(step: Any) -> Any:
        graphs.append(rote.graph(step, keep=True))
        return graphs[0]

    played(BESIDE[name], wrap)
    assert graphs[0].report().replayed > CALLS // 2, graphs[0].explain()
