"""What code of Python's gives to a function in C is read by that: by a generator, a key, a method."""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rote


class Robot:
    """Holds lists that its owner changes in place."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)
        self.contacts: list[int] = []
        self.asked = 0

    @property
    def seen(self) -> list[float]:
        self.asked = (self.asked + 1) % 3
        return self.values


class Walk:
    """An iterator of one's own."""

    def __init__(self, robots: list[Robot]) -> None:
        self.left = list(robots)

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> list[float]:
        if not self.left:
            raise StopIteration
        return self.left.pop(0).values


class Turns:
    """Gives an iterator."""

    def __init__(self, robots: list[Robot]) -> None:
        self.robots = robots

    def __iter__(self) -> Any:
        return (each.values for each in self.robots)


class Numbered:
    """A sequence of one's own."""

    def __init__(self, robots: list[Robot]) -> None:
        self.robots = robots

    def __len__(self) -> int:
        return len(self.robots)

    def __getitem__(self, index: int) -> list[float]:
        return self.robots[index].values


class Made(dict[int, list[float]]):
    def __init__(self, robots: list[Robot]) -> None:
        super().__init__()
        self.robots = robots

    def __missing__(self, key: int) -> list[float]:
        return self.robots[key].values


class Described:
    """Answers by lists, whatever it is asked."""

    def __init__(self, robots: list[Robot]) -> None:
        self.values = robots[0].values

    def __getitem__(self, key: object) -> list[float]:
        return self.values

    def __add__(self, other: object) -> list[float]:
        return self.values

    def __truediv__(self, other: object) -> list[float]:
        return self.values

    def __rlshift__(self, other: object) -> list[float]:
        return self.values

    def __invert__(self) -> list[float]:
        return self.values

    def __call__(self, *given: object) -> list[float]:
        return self.values


def _values(robot: Robot) -> list[float]:
    return robot.values


def _each(robots: list[Robot]) -> Any:
    yield from (each.values for each in robots)


def _first(robots: list[Robot], found: Robot) -> list[float]:
    return [robots.index(found) + 1.0]


def _joined(lists: Any) -> Any:
    return sum(lists, [])  # noqa: RUF017


def _joined_to(*given: Any) -> Any:
    return functools.reduce(operator.add, given)


def _paired(robots: list[Robot]) -> Any:
    pairs: Any = (each.values for each in robots)
    return dict(pairs).values()


def _sliced(robots: list[Robot]) -> list[float]:
    whole = [0.0]
    whole[0:0] = robots[0].values
    return whole


WAYS: dict[str, Callable[[list[Robot]], Any]] = {
    "sum": lambda robots: _joined(each.values for each in robots),
    "max": lambda robots: max(each.values for each in robots),
    "chain": lambda robots: itertools.chain.from_iterable(each.values for each in robots),
    "any": lambda robots: [any(each.contacts for each in robots)],
    "map in C": lambda robots: map(len, (each.values for each in robots)),
    "map": lambda robots: _joined(map(_values, robots)),
    "reduce": lambda robots: functools.reduce(operator.add, (each.values for each in robots)),
    "membership": lambda robots: [[1.0, 2.0] in (each.values for each in robots)],
    "key of max": lambda robots: _first(robots, max(robots, key=_values)),
    "key of sorted": lambda robots: _first(robots, sorted(robots, key=_values)[0]),
    "key in a tuple": lambda robots: _first(robots, max(robots, key=lambda each: (0, each.values))),
    "key of bisect": lambda robots: [bisect.bisect(robots, [2.0], key=_values)],
    "filter": lambda robots: [len(list(filter(lambda each: each.contacts, robots)))],
    "pairs": _paired,
    "iterator": lambda robots: _joined(Walk(robots)),
    "iterable": lambda robots: _joined(Turns(robots)),
    "sequence": lambda robots: _joined(Numbered(robots)),
    "missing": lambda robots: _joined(map(Made(robots).__getitem__, range(2))),
    "yield from": lambda robots: _joined(_each(robots)),
    "attrgetter": lambda robots: _joined(map(operator.attrgetter("values"), robots)),
    "attrgetter of a property": lambda robots: _joined(map(operator.attrgetter("seen"), robots)),
    "itemgetter": lambda robots: map(operator.itemgetter(0), (each.values for each in robots)),
    "member of a list": lambda robots: map(len, map(operator.itemgetter(0), [Described(robots)])),
    "operator": lambda robots: _joined_to(Described(robots), [5.0], [6.0]),
    "division": lambda robots: _joined(map(operator.truediv, [Described(robots)], [2])),
    "shift": lambda robots: _joined(map(operator.lshift, [2], [Described(robots)])),
    "complement": lambda robots: _joined(map(operator.invert, [Described(robots)])),
    "called": lambda robots: _joined(map(operator.call, [Described(robots)])),
    "called in pairs": lambda robots: _joined(itertools.starmap(operator.call, [(Described(robots), 1)])),
    "called by name": lambda robots: _joined(map(operator.methodcaller("__call__"), [Described(robots)])),
    "called for each": lambda robots: _joined(map(Described(robots), [1])),
    "called in part": lambda robots: _joined(map(functools.partial(Described(robots), 1), [1])),
    "called at the end": lambda robots: [len(list(itertools.islice(iter(Described(robots), [1.0]), 3)))],
    "given back and called": lambda robots: _joined(
        map(operator.call, (Described(robots) for _ in range(1)))
    ),
    "key in an object": lambda robots: _first(robots, max(robots, key=functools.partial(_values))),
    "percent": lambda robots: [len("%(values)s" % Described(robots))],  # noqa: UP031
    "format_map": lambda robots: [len("{values}".format_map(Described(robots)))],  # pyright: ignore
    "end of an iterator": lambda robots: [
        len(list(itertools.islice(iter(lambda: robots[0].values, [1.0, 2.0]), 3)))
    ],
    "slice": _sliced,
    "deque": lambda robots: [len(str([deque(each.values) for each in robots]))],
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_given_back_is_read(way: str, device: torch.device) -> None:
    def played(wrap: Callable[..., Any]) -> list[Any]:
        robots = [Robot(1.0, 2.0), Robot(3.0, 1.0)]
        changes: list[Callable[[], object]] = [
            lambda: (robots[0].values.append(9.0), robots[0].contacts.append(1)),
            lambda: (operator.setitem(robots[1].values, 0, 0.5), robots[1].contacts.append(1)),
            lambda: (robots[0].contacts.clear(), operator.setitem(robots[0].values, slice(0, 3), [4.0, 1.0])),
        ]

        def step(x: torch.Tensor) -> torch.Tensor:
            try:
                return x * sum(value * (at + 1) for at, value in enumerate(WAYS[way](robots)))
            except ValueError:
                return x

        g, seen = wrap(step), []
        for call in range(15):
            if call >= 6 and call % 3 == 0:
                changes[call // 3 - 2]()
            seen.append((g(torch.ones(1, device=device)).tolist(), [each.asked for each in robots]))
        return seen

    assert played(lambda fn: rote.graph(fn, keep=True)) == played(lambda fn: fn)


def test_a_property_is_run_once_by_an_attrgetter(device: torch.device) -> None:
    robot, ask = Robot(1.0), operator.attrgetter("seen")
    g = rote.graph(lambda x: x * len(ask(robot)))
    asked = []
    for _ in range(9):
        g(torch.ones(1, device=device))
        asked.append(robot.asked)
    assert asked == [1, 2, 0] * 3
