"""Iterators that can be advanced and set back to where they were."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rote.runtime.numbers import Draw, DrawnFrom, can_draw


def behind_its_first_turn() -> Any:
    found = itertools.cycle([1, 2, 3])
    for _ in range(4):
        next(found)
    return found


GO_BACK: dict[str, Callable[[], Any]] = {
    "count": lambda: itertools.count(-3),
    "cycle": behind_its_first_turn,
    "list": lambda: iter([5, 6, 7, 8]),
    "tuple": lambda: iter((5, 6, 7, 8)),
    "zip": lambda: zip(itertools.count(), iter([5, 6, 7]), strict=False),
    "enumerate": lambda: enumerate(behind_its_first_turn(), 4),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "a first turn": lambda: itertools.cycle([1, 2]),
    "a long cycle": lambda: itertools.cycle(range(100)),
    "by twos": lambda: itertools.count(0, 2),
    "floats": lambda: itertools.count(0.5),
    "large": lambda: itertools.count(1 << 70),
    "range": lambda: iter(range(3)),
    "generator": lambda: (n for n in range(3)),
    "one iterator twice": lambda: zip(*[iter([1, 2, 3, 4])] * 2, strict=True),
    "of others": lambda: enumerate(n for n in range(3)),
}


@pytest.mark.parametrize("make", GO_BACK.values(), ids=GO_BACK)
def test_it_goes_back(make: Callable[[], Any]) -> None:
    iterator, other = make(), make()
    draw = Draw.of(next, (iterator,), {})
    assert can_draw(iterator) and draw is not None
    before = DrawnFrom.of(iterator)
    first = [draw.now(), draw.now()]
    assert first == [next(other), next(other)]
    assert before.is_behind([draw, draw]) and not before.is_behind([draw])
    before.put_back()
    assert [draw.now(), draw.now()] == first and next(iterator) == next(other)


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_it_does_not(make: Callable[[], Any]) -> None:
    assert not can_draw(make())


def test_behind_the_last_item() -> None:
    iterator = iter([1.0])
    draw = Draw.of(next, (iterator,), {})
    assert draw is not None and [draw.now(), draw.now()] == [1.0, None]
    before = DrawnFrom.of(iterator)
    assert draw.now() is None and before.is_behind([draw])
