"""Numbers that change, in what Python code gives back to a function of C's that looks at it."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import rote

ROW = torch.arange(4.0)
VALUES = (1, 4, 7, 9)
CALLS = 36
STATE = SimpleNamespace(n=5, table={"n": 5, "m": 3}, row=[5, 6])


class Pair(NamedTuple):
    one: int
    other: int


class Far:
    """Its methods are functions of other names, or run for what C asks of it."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def far(self, value: int) -> int:
        return abs(value - STATE.n)

    @property
    def away(self) -> int:
        return abs(self.value - STATE.n)

    def __getitem__(self, place: int) -> int:
        if place > 3:
            raise IndexError
        return (place - STATE.n) ** 2

    def __eq__(self, other: object) -> bool:
        return True

    __call__ = far
    __hash__ = lambda self: STATE.n % 3  # noqa: E731
    __index__ = lambda self: STATE.n % 4  # noqa: E731


class Absent(dict[int, int]):
    def __missing__(self, key: int) -> int:
        return abs(key - STATE.n)


FAR = Far()
FARS = [Far(each) for each in VALUES]
KEYS: dict[str, Callable[[Any], Any]] = {
    "function": lambda value: abs(value - STATE.n), "method": FAR.far, "object": FAR,
    "in a tuple": lambda value: (abs(value - STATE.n), value),
    "in a named tuple": lambda value: Pair(abs(value - STATE.n), value),
    "by a method of C": Absent().__getitem__,
}  # fmt: skip
LOOKS: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "max": lambda key: max(VALUES, key=key),
    "sorted": lambda key: sorted(VALUES, key=key)[1],
    "smallest": lambda key: heapq.nsmallest(2, VALUES, key=key)[1],
    "bisect": lambda key: bisect.bisect([9, 7, 4, 1], key(3), key=key),
    "groups": lambda key: len([*itertools.groupby((1, 4, 7, 9, 9), key=lambda each: key(each) and 1)]),
    "filter": lambda key: len([*filter(key, VALUES)]),
    "loop over a filter": lambda key: sum([value for value in filter(key, VALUES)]),
    "numbered filter": lambda key: sum([value for _, value in enumerate(filter(key, VALUES))]),
    "while": lambda key: len([*itertools.takewhile(key, VALUES)]),
    "all of a map": lambda key: all(map(key, VALUES)) + 1,
    "least of a map": lambda key: VALUES[[*map(key, VALUES)].index(min(map(key, VALUES)))],
    "set of a map": lambda key: len({*map(key, VALUES)}) + len(set(map(key, VALUES))),
    "in a map": lambda key: (0 in map(key, VALUES)) + 1,
    "counted": lambda key: len(Counter(map(key, VALUES))),
    "maps of maps": lambda key: [*map(lambda values: max(values, key=key), [VALUES, VALUES[:2]])][1],
    "generator": lambda key: max((key(value), value) for value in VALUES)[1],
    "generator of pairs": lambda key: max(Pair(key(value), value) for value in VALUES).other,
}
ASKS: dict[str, Callable[[], Any]] = {
    "hash": lambda: {0: 1.0, 1: 2.0, 2: 3.0}.get(hash(FAR) % 3, 0) + ({0: 1, 1: 2}.get(FAR, 5)),  # type: ignore[call-overload]
    "hash of an item": lambda: {0: 1.0, 1: 2.0, 2: 3.0}[FAR],  # type: ignore[index]
    "hash of a member": lambda: (FAR in {0: 1, 1: 2}) + 1,
    "index": lambda: VALUES[FAR],
    "end": lambda: sum(VALUES[: FAR]),
    "range": lambda: len(range(FAR)) + 1,
    "sequence": lambda: min(FAR) + (9 in FAR),  # type: ignore[call-overload, operator]
    "places": lambda: min(range(4), key=FAR.__getitem__),
    "property": lambda: min(FARS, key=operator.attrgetter("away")).value,
    "product": lambda: math.prod(map(lambda value: value - STATE.n, VALUES)),
    "pattern": lambda: len(re.sub("a", lambda _: str(10 ** (STATE.n % 4)), "aa")),
    "texts": lambda: len(",".join(map(lambda value: str(10 ** (STATE.n % 4)), VALUES))),
    "values": lambda: (3 in STATE.table.values()) + 1,
    "iterator": lambda: (3 in iter(STATE.row)) + 1,
    "zipped": lambda: ((3, 4) in zip(STATE.row, VALUES[1:3], strict=True)) + 1,
    "chained": lambda: (3 in itertools.chain(STATE.row, VALUES)) + 1,
    "set of values": lambda: len({*STATE.table.values()}) + len({*zip(STATE.row, (6, 6), strict=True)}),
}  # fmt: skip
HANDED_ON: dict[str, Callable[[], Any]] = {
    "map": lambda: [*map(KEYS["function"], VALUES)][2],
    "map in a loop": lambda: sum([each for each in map(KEYS["function"], VALUES)]),
    "map in a list": lambda: list(map(FAR.far, VALUES))[1],
    "spread": lambda: (lambda *given: given[2])(*map(KEYS["function"], VALUES)),
    "property": lambda: FARS[1].away + getattr(FARS[2], "away"),  # noqa: B009
    "item": lambda: FAR[2] + Absent()[4],
    "object": lambda: FAR(4),
    "pair": lambda: Pair(STATE.n, 1).one,
}
"""Where nobody looks at the number."""


def played(program: Callable[[], Any], wrap: Any, numbers: Any) -> list[Any]:
    seen: list[Any] = []
    call = wrap(lambda x: x * program())
    for n in numbers:
        STATE.n = STATE.table["n"] = STATE.row[0] = n
        seen.append(call(ROW).tolist())
    return seen


PROGRAMS = {
    **{f"{look}, {key}": lambda look=look, key=key: LOOKS[look](KEYS[key]) for look in LOOKS for key in KEYS},
    **ASKS,
}
RARELY = [call // 6 % 7 for call in range(CALLS)]
ALWAYS = [call * 3 % 10 for call in range(CALLS)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", [*PROGRAMS])
def test_what_c_looks_at_is_a_condition(name: str) -> None:
    for numbers in (RARELY, ALWAYS):
        found, wanted = (
            played(PROGRAMS[name], wrap, numbers)
            for wrap in (lambda step: rote.graph(step, keep=True), lambda step: step)
        )
        assert found == wanted


@pytest.mark.parametrize("name", [*HANDED_ON])
def test_what_is_handed_on_is_followed(name: str) -> None:
    graphs: list[Any] = []

    def wrap(step: Any) -> Any:
        graphs.append(rote.graph(step, keep=True))
        return graphs[-1]

    numbers = range(CALLS)
    assert played(HANDED_ON[name], wrap, numbers) == played(HANDED_ON[name], lambda step: step, numbers)
    assert graphs[0].report().replayed >= CALLS // 2, graphs[0].explain()
