"""A number that changes lies in an object whose class C compares and hashes: what comes out is a condition.

C looks at what such an object holds without any instruction that reads it. The number stays for some calls
and then becomes another one, so that a recording that was sure of it too early gives the old answer.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import pytest
import torch

import rote

STAYS = 8
"""Calls after which the number is another one."""


class Cell(collections.namedtuple("Cell", "row column")):
    """Derived once more."""

    __slots__ = ()


class Row(tuple[Any, ...]):
    pass


class Stack(list[Any]):
    pass


Point = collections.namedtuple("Point", "x y")
HOLDERS: dict[str, Callable[[int], Any]] = {
    "tuple": lambda n: (n, 0),
    "tuple of tuples": lambda n: (0, (n, 1)),
    "named tuple": lambda n: Point(n, 0),
    "derived named tuple": lambda n: Cell(n, 0),
    "derived tuple": lambda n: Row((n, 0)),
    "named in a tuple": lambda n: (0, Point(n, 0)),
    "frozen set": lambda n: frozenset([Point(n, 0)]),
    "derived list": lambda n: Stack([n]),
    "namespace": lambda n: types.SimpleNamespace(a=n),
    "queue": lambda n: collections.deque([n]),
    "ordered dict": lambda n: collections.OrderedDict(a=n),
    "items": lambda n: {"a": n}.items(),
    "named in a dict": lambda n: {"a": Point(n, 0)},
    "named in a list": lambda n: [Point(n, 0)],
}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "equal": lambda one, other: one == other,
    "unequal": lambda one, other: one != other,
    "in a list": lambda one, other: one in [other],
    "in a tuple": lambda one, other: one in (other, other),
    "count": lambda one, other: [other].count(one),
    "count of a queue": lambda one, other: collections.deque([other]).count(one),
    "lists": lambda one, other: [one] == [other],
    "members": lambda one, other: {1: one} == {1: other},
}
HASHED: dict[str, Callable[[Any, Any], Any]] = {
    "hash": lambda one, other: hash(one) == hash(other),
    "in a set": lambda one, other: one in {other},
    "add": lambda one, other: known.add(one) or len(known) if (known := {other}) else 0,
    "discard": lambda one, other: known.discard(one) or len(known) if (known := {other}) else 0,
    "update": lambda one, other: known.update([one]) or len(known) if (known := {other}) else 0,
    "union": lambda one, other: len({other} | {one}),
    "method": lambda one, other: len({other}.union([one])),
    "difference": lambda one, other: len({other}.symmetric_difference([one])),
    "set": lambda one, other: len({one, other}),
    "set of a list": lambda one, other: len(set([one, other])),
    "dict": lambda one, other: len({one: 1, other: 2}),
    "dict of pairs": lambda one, other: len(dict([(one, 1), (other, 2)])),
    "keys": lambda one, other: len(dict.fromkeys([one, other])),
    "get": lambda one, other: {other: 5}.get(one, 7),
    "pop": lambda one, other: {other: 5}.pop(one, 7),
    "setdefault": lambda one, other: {other: 5}.setdefault(one, 7),
    "key": lambda one, other: one in {other: 5},
    "counted": lambda one, other: len(collections.Counter([one, other])),
    "chained": lambda one, other: collections.ChainMap({other: 5}).get(one, 7),
    "default": lambda one, other: collections.defaultdict(int, {other: 5})[one],
}
ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "less": lambda one, other: one < other,
    "less or equal": lambda one, other: one <= other,
    "largest": lambda one, other: max(one, other) == one,
    "sorted": lambda one, other: sorted([one, other])[0] == one,
}
CASES = [
    *[(holder, name, use) for holder in HOLDERS for name, use in COMPARED.items()],
    *[
        (holder, name, use)
        for holder, make in HOLDERS.items()
        if isinstance(make(0), Hashable) and holder != "items"
        for name, use in HASHED.items()
    ],
    *[
        (holder, name, use)
        for holder in HOLDERS
        if "tuple" in holder or holder == "derived list"
        for name, use in ORDERED.items()
    ],
]


@pytest.mark.parametrize(
    ("holder", "use"), [(h, u) for h, _, u in CASES], ids=[f"{holder}, {name}" for holder, name, _ in CASES]
)
def test_a_number_in(holder, use):
    make = HOLDERS[holder]

    def program():
        state = types.SimpleNamespace(step=0)

        def step(x):
            state.step += 1
            answer = use(make(state.step // STAYS), make(1))
            return x * (state.step * 0.5) + int(answer)

        return step

    g, plain = rote.graph(program(), keep=True), program()
    for number in range(4 * STAYS):
        x = torch.ones(2)
        assert torch.equal(g(x), plain(x)), number
    assert g.report().replayed > STAYS, g.explain()
    g.reset()


class Owner:
    """Something with a counter that is followed, and with what does not change."""

    def __init__(self):
        self.step, self.factor = 0, 2.0

    def twice(self):
        return 2

    def __bool__(self):
        return True


class LostError(Exception):
    """Keeps what it is made with."""


def raised(owner):
    try:
        raise LostError("no", owner)
    except LostError as error:
        return error.args[1].factor


HANDED: dict[str, Callable[[Owner], Any]] = {
    "method": lambda owner: types.MethodType(Owner.twice, owner)(),
    "reference": lambda owner: weakref.ref(owner)().factor,
    "key": lambda owner: weakref.WeakKeyDictionary({owner: 3})[owner],
    "error": raised,
    "place": lambda owner: [owner].index(owner),
    "count": lambda owner: [owner].count(owner),
    "truth": lambda owner: int(bool(owner)),
    "texts": lambda owner: len([*map(int, ["1", "2"])]),
    "reduced": lambda owner: functools.reduce(lambda one, _: one, [owner, owner]).factor,
}


@pytest.mark.parametrize("use", HANDED.values(), ids=HANDED)
def test_its_owner_is_handed_to(use):
    """C keeps the owner of a number, hands it on or asks which one it is: the number is followed on."""

    def program():
        owner = Owner()

        def step(x):
            owner.step += 1
            return x * owner.step + use(owner)

        return step

    g, plain = rote.graph(program(), keep=True), program()
    for number in range(24):
        x = torch.ones(2)
        assert torch.equal(g(x), plain(x)), number
    assert g.report().replayed > 12, g.explain()
    g.reset()
