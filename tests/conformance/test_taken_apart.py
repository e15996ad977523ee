"""Copies and pickles: C takes an object apart, and all that it holds is read."""

from __future__ import annotations

import collections
import copy
import itertools
import pickle

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy:DeprecationWarning")


class Table(dict):
    pass


class Row(list):
    pass


class Line(collections.deque):
    pass


class Slotted(list):
    __slots__ = ("k",)


class Reduced:
    """One that C has rebuilt by a method in Python."""

    def __init__(self):
        self.k = 1

    def __reduce__(self):
        return dict, ([("k", self.k)],)


def check(device, ask, held, change, *, replayed=True):
    f = lambda x: x * ask(held)  # noqa: E731
    g = rote.graph(f, keep=True)
    x = torch.ones(3, device=device)
    for n in range(9):
        if n == 5:
            change(held)
        assert_same(g(x), f(x))
    assert bool(g.report().replayed) == replayed, g.explain()


def member(key):
    def change(held):
        held[key] = 5

    return change


def slotted():
    made = Slotted([1])
    made.k = 1
    return made


ways = pytest.mark.parametrize("way", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])

MEMBERS = {
    "ordered": (lambda: collections.OrderedDict(a=1), "a"),
    "one more": (lambda: collections.OrderedDict(a=1), "b"),
    "dict": (lambda: Table(a=1), "a"),
    "defaultdict": (lambda: collections.defaultdict(int, a=1), "a"),
    "list": (lambda: Row([1, 2]), 0),
    "deque": (lambda: collections.deque([1, 2]), 0),
}


@ways
@pytest.mark.parametrize(("make", "key"), MEMBERS.values(), ids=MEMBERS)
def test_members_of_a_copy(way, make, key, device):
    def ask(held):
        made = way(held)
        return sum(made.values() if isinstance(made, dict) else made)

    check(device, ask, make(), member(key))


@ways
def test_members_of_a_copy_that_runs_python(way, device):
    f = lambda x: x * sum(way(line))  # noqa: E731
    line = Line([1, 2])
    g = rote.graph(f)
    x = torch.ones(3, device=device)
    for n in range(9):
        line[0] = 1 + n // 5
        assert_same(g(x), f(x))


@pytest.mark.parametrize("make", [lambda: [1, 2], lambda: Row([1, 2]), lambda: collections.deque([1, 2])])
def test_parts_that_a_container_says_it_is_made_of(make, device):
    check(device, lambda held: sum(held.__reduce_ex__(4)[3]), make(), member(0))


@ways
def test_what_lies_beside_the_members(way, device):
    def grow(held):
        held.k = 5

    check(device, lambda held: way(held).k, slotted(), grow)
    factory = lambda held: setattr(held, "default_factory", lambda: 5)  # noqa: E731
    check(device, lambda held: way(held)["b"], collections.defaultdict(lambda: 1), factory)
    check(device, lambda held: held.copy()["b"], collections.defaultdict(lambda: 1), factory)
    check(device, lambda held: (held | {})["b"], collections.defaultdict(lambda: 1), factory)


@ways
def test_the_longest_that_a_copy_may_be(way, device):
    def ask(held):
        made = way(held["line"])
        made.extend(range(9))
        return len(made)

    longer = lambda held: held.update(line=collections.deque([1], maxlen=5))  # noqa: E731
    check(device, ask, {"line": collections.deque([1], maxlen=3)}, longer)


@ways
def test_arguments_of_an_exception(way, device):
    check(device, lambda held: way(held).args[0], ValueError(1), lambda held: setattr(held, "args", (5,)))
    check(device, lambda held: way(held).args[0][0], ValueError([1]), lambda held: member(0)(held.args[0]))
    check(device, lambda held: way(held).errno, OSError(1, "no"), lambda held: setattr(held, "errno", 5))


def test_the_arguments_that_an_exception_says_it_has(device):
    change = lambda held: setattr(held, "args", (5,))  # noqa: E731
    check(device, lambda held: held.__reduce_ex__(4)[1][0], ValueError(1), change)


def test_a_method_that_c_hands_on_to_c(device):
    ask = lambda held: next(map(BaseException.__reduce__, [held]))[2]["k"]  # noqa: E731
    error = ValueError(1)
    error.k = 1  # pyright: ignore
    check(device, ask, error, lambda held: setattr(held, "k", 5), replayed=False)


@ways
def test_a_method_that_c_calls_to_copy(way, device):
    check(device, lambda held: way(held)["k"], Reduced(), lambda held: setattr(held, "k", 5))


def test_a_method_of_a_class_that_c_calls_to_copy(device):
    class Own(list):
        pass

    change = lambda held: setattr(Own, "__iter__", lambda self: iter([5]))  # noqa: E731
    check(device, lambda held: list.__getitem__(copy.copy(held), 0), Own([1]), change)


ITERATORS = {
    "tuple": lambda: iter((1, 2, 3)),
    "range": lambda: iter(range(1, 9)),
    "text": lambda: iter("abc"),
    "bytes": lambda: iter(b"abc"),
    "count": lambda: itertools.count(1),
    "repeat": lambda: itertools.repeat(3, 4),
    "product": lambda: itertools.product([1, 2], [3, 4]),
    "permutations": lambda: itertools.permutations([1, 2, 3], 2),
    "list": lambda: iter([1, 2, 3]),
    "reversed": lambda: reversed([1, 2, 3]),
    "dict": lambda: iter({1: 2, 3: 4}),
    "values": lambda: iter({1: 2, 3: 4}.values()),
    "ordered": lambda: iter(collections.OrderedDict({1: 2, 3: 4})),
    "set": lambda: iter({1, 2, 3}),
}


@ways
@pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS)
def test_how_far_a_copied_iterator_is(way, make, device):
    check(device, lambda held: sum(str(list(itertools.islice(way(held), 3))).encode()), make(), next)


def test_how_far_a_copied_cycle_is(device):
    check(device, lambda held: next(copy.deepcopy(held)), itertools.cycle([1, 2, 3]), next)


@pytest.mark.parametrize(
    "make", [lambda k: iter([[k]]), lambda k: iter({1: [k]}.values()), lambda k: iter(([k],))]
)
def test_what_a_copied_iterator_hands_out(make, device):
    inner = make(1)
    kept = next(copy.copy(inner))
    check(device, lambda held: next(copy.copy(held))[0], inner, lambda held: member(0)(kept))


@pytest.mark.parametrize(
    "make", [lambda: iter((1, 2, 3)), lambda: iter({1, 2, 3}), lambda: itertools.count(1)]
)
def test_how_far_an_iterator_says_it_is(make, device):
    check(device, lambda held: len(str(held.__reduce_ex__(4))), make(), next)
    check(device, lambda held: next(copy.copy(held)), make(), next)


def test_hooks_of_a_module_that_are_copied(device):
    model = nn.Linear(3, 3).to(device)
    change = lambda held: held.register_forward_hook(lambda *given: None)  # noqa: E731
    check(device, lambda held: 1 + len(copy.deepcopy(held._forward_hooks)), model, change)


class Kept:
    def __init__(self):
        self.k = [1]


class SlottedAlone:
    __slots__ = ("k",)

    def __init__(self):
        self.k = [1]


@pytest.mark.parametrize("make", [Kept, SlottedAlone, lambda: {"k": Kept()}])
def test_objects_that_c_pickles(make, device):
    def change(held):
        (held["k"] if type(held) is dict else held).k[0] = 500

    check(device, lambda held: len(pickle.dumps(held)), make(), change, replayed=False)


def test_an_iterator_that_c_pickles(device):
    rows = [[1]]
    check(
        device,
        lambda held: len(pickle.dumps(iter(held))),
        rows,
        lambda held: held[0].append(2),
        replayed=False,
    )
