"""Numbers that change lie in containers, which code of Python's own iterates, fills and makes."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import types
from collections import OrderedDict, defaultdict, deque
from typing import NamedTuple

import pytest
import torch
from tests.conformance.numbers_programs import bits

import rote

pytestmark = pytest.mark.parametrize("device", ["cpu"], indirect=True)

Pair = collections.namedtuple("Pair", "one other")


class Typed(NamedTuple):
    one: float
    other: float


class OwnList(list):
    pass


class OwnDict(dict):
    pass


class Told(tuple):
    def __iter__(self):
        yield from super().__iter__()


class Given:
    def __init__(self, *members):
        self.members = members

    def __iter__(self):
        return iter(self.members)


class Counting:
    """An iterator in Python over one in C."""

    def __init__(self, *members):
        self.members = iter(members)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.members)


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class ByMeta(metaclass=Meta):
    def __init__(self, *members):
        self.members = members


class Kind(enum.IntEnum):
    FIRST = 1


CONTAINERS = {
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
    "namedtuple": Pair,
    "typed tuple": Typed,
    "list of one's own": lambda a, b: OwnList([a, b]),
    "deque": lambda a, b: deque([a, b]),
    "bounded deque": lambda a, b: deque((0.0, a, b), maxlen=2),
    "values": lambda a, b: {"a": a, "b": b}.values(),
    "values in order": lambda a, b: OrderedDict({"a": a, "b": b}).values(),
    "values of one's own": lambda a, b: OwnDict({"a": a, "b": b}).values(),
    "values of a copy": lambda a, b: dict({"a": a, "b": b}).values(),
    "object": Given,
    "iterator of a list": lambda a, b: iter([a, b]),
    "zipped": lambda a, b: (each for each, in [*zip((a, b))]) and [each for each, in zip((a, b))],
    "cut": lambda a, b: itertools.islice([a, b, a], 2),
    "chained": lambda a, b: itertools.chain([a], (b,)),
    "repeated": lambda a, b: (next(itertools.repeat(a)), b),
    "cycle": lambda a, b: itertools.islice(itertools.cycle((a, b)), 2),
    "pairs": lambda a, b: next(itertools.pairwise([a, b])),
    "product": lambda a, b: next(itertools.product([a], [b])),
    "longest": lambda a, b: next(itertools.zip_longest([a], [b])),
    "made by a metaclass": lambda a, b: ByMeta(a, b).members,
    "bound": lambda a, b: functools.partial(lambda *all_of_them: all_of_them, a)(b),
    "bound by name": lambda a, b: functools.partial(lambda one, *, other: (one, other), other=b)(a),
    "beside members of a set": lambda a, b: [a * each + b for each in {1, 2}],
    "beside an enum": lambda a, b: [(a, b)[Kind(1)], a],
    "beside what is left of a set": lambda a, b: [a, b, *set(each for each in (1, 2))],
    "popped": lambda a, b: (queue := deque([a, b]), (queue.popleft(), queue.pop()))[1],
    "popped from a dict": lambda a, b: ({"k": a}.popitem()[1], OrderedDict(k=1, m=2).pop("z", b)),
}  # fmt: skip
WAYS = {
    "loop": lambda found: [each for each in found],
    "spread": lambda found: (lambda first, *others: [first, *others, *{}])(*found),
    "zip": lambda found: [each for each, _ in zip(tuple(found), itertools.count())],
    "enumerate": lambda found: [each for _, each in enumerate(list(found))],
    "extended": lambda found: (made := [], made.extend(found), list(reversed(deque(made))))[2] + [2.0],
    "keys": lambda found: [*found, *OrderedDict(enumerate([0, 1])).keys()],
}
OTHERS = {
    "iterator": Counting,
    "tuple of one's own": lambda a, b: Told((a, b)),
    "set": lambda a, b: {a, b, 1.0},
    "frozenset": lambda a, b: frozenset([a, b]),
    "set of a generator": lambda a, b: set(each for each in (a, b)),
    "set of values": lambda a, b: set({"a": a, "b": b}.values()),
    "set of one's own": lambda a, b: set(Given(a, b)),
    "keys": lambda a, b: {a: 1, b: 2},
    "keys of pairs": lambda a, b: dict([(a, 1), (b, 2)]),
    "keys from keys": lambda a, b: dict.fromkeys([a, b]),
    "pairs": lambda a, b: dict([("a", a), ("b", b)]).values(),
    "mapped": lambda a, b: map(float, [a, b]),
    "sums": lambda a, b: itertools.accumulate([a, b]),
    "filtered": lambda a, b: filter(None, [a, b]),
    "sorted": lambda a, b: sorted([a, b]),
    "largest of a generator": lambda a, b: [max(each for each in (a, b))],
    "a mapping": lambda a, b: types.MappingProxyType({"a": a, "b": b}).values(),
    "a dict of lists": lambda a, b: in_lists(a, b),
    "mapped by one's own": lambda a, b: Mapped(a, b),
    "the same": lambda a, b: [a, 1 if a is b else 2],
}  # fmt: skip


def in_lists(a, b):
    made = defaultdict(list)
    made["k"].append(a)
    made["k"].append(b)
    return made["k"]


class Mapped:
    """Python code iterates, and C code computes."""

    def __init__(self, *members):
        self.members = members

    def __iter__(self):
        return map(abs, self.members)


def play(program, count=26):
    """A program with numbers that an object holds, plainly and graphed; how many calls were replayed."""

    def make():
        state = types.SimpleNamespace(step=0, scale=1.0, last=0.0)

        def run(x):
            state.step += 1
            state.scale *= 0.75
            found = program(state.step, state.scale)
            state.last = found[0]
            for each in found:
                x = x * each + found[-1]
            return x, len(found)

        return run, lambda: [state.step, state.scale, state.last]

    (graphed, state), (plain, other) = make(), make()
    graphed = rote.graph(graphed, keep=True)
    for number in range(count):
        x = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
        assert bits(graphed(x.clone())) == bits(plain(x.clone())), number
        assert bits(state()) == bits(other()), number
    return graphed.report().replayed


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("container", CONTAINERS)
def test_they_are_handed_on(device, container, way):
    made, iterated = CONTAINERS[container], WAYS[way]
    assert play(lambda step, scale: iterated(made(step, scale))) >= 14


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("container", OTHERS)
def test_they_are_looked_at(device, container, way):
    made, iterated = OTHERS[container], WAYS[way]
    play(lambda step, scale: iterated(made(step, scale)), 12)
