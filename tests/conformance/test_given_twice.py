"""One container given several times, or in several places of a result: are two one?"""

import collections
import dataclasses
import types

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rote
from rote.runtime.arguments.leaves import flatten, repeated, unflatten
from rote.testing import assert_same


@dataclasses.dataclass
class Batch:
    scale: float


Pair = collections.namedtuple("Pair", "one other")


def same(x, a, b):
    return x * (1.5 if a is b else 2.5)


def nested(x, pair):
    return x * (1.5 if pair[0] is pair[1] else 2.5)


@pytest.mark.parametrize(
    "make", [lambda: [1.0], lambda: {"k": 1.0}, lambda: Batch(1.0)], ids=["list", "dict", "dataclass"]
)
def test_whether_two_are_one(device, make):
    g, x = rote.graph(same), torch.ones(4, device=device)
    for n in range(24):
        one = make()
        given_twice = (one, one) if n % 3 else (one, make())
        assert torch.equal(g(x, *given_twice), same(x, *given_twice)), n
    assert g.report().replayed >= 12, g.explain()


def test_inside_of_others(device):
    g, x, one = rote.graph(nested), torch.ones(4, device=device), {"k": 1.0}
    for n in range(24):
        pair = [one, one] if n % 2 else [one, dict(one)]
        assert torch.equal(g(x, pair), nested(x, pair)), n
    assert g.report().replayed >= 12, g.explain()


def test_what_is_written_through_one_is_seen_through_the_other(device):
    def fn(x, a, b):
        a["y"] = x * 2
        return x + b.get("y", 0)

    g = rote.graph(fn)
    for n in range(12):
        x, one = torch.full((4,), float(n), device=device), {"k": 1.0}
        assert torch.equal(g(x, one, one), x * 3)
        assert torch.equal(g(x, {"k": 1.0}, {"k": 1.0}), x)


def test_equal_tuples_are_no_question(device):
    """Python itself makes one of two equal constants."""
    g, x = rote.graph(lambda x, a, b: x * (sum(a) + sum(b))), torch.ones(4, device=device)
    for n in range(12):
        pair = (1, 2)
        g(x, pair, pair if n % 2 else tuple([1, 2]))
    assert g.report().replayed >= 8, g.explain()


class Plain:
    """Has its attributes in a dict."""


def written(x, holder, table):
    table["k"] = x * 2
    return holder.k + 1


def bound(x, holder, table):
    holder.k = x * 2
    return table["k"] + 1


def compared(x, holder, table):
    return x * (2 if vars(holder) is table else 3)


def added(x, holder, table):
    table["more"] = x
    return holder.more + x if hasattr(holder, "more") else x * 5


@pytest.mark.parametrize("fn", [written, bound, compared, added])
@pytest.mark.parametrize("make", [Plain, lambda: Batch(0.0), types.SimpleNamespace])
@pytest.mark.parametrize("turned", [False, True], ids=["dict last", "dict first"])
@pytest.mark.parametrize("tracked", [False, True])
def test_an_object_and_the_dict_of_its_attributes(device, fn, make, turned, tracked):
    def call(function, n):
        holder, x = make(), torch.full((4,), float(n), device=device)
        holder.k = x + 1
        table = vars(holder) if n % 6 < 4 else dict(vars(holder))
        given = (table, holder) if turned else (holder, table)
        return function(x, *given), vars(holder), table

    weight = torch.full((4,), 2.0, device=device, requires_grad=tracked)

    def use(x, *given):
        return fn(x * weight, *(reversed(given) if turned else given))

    g = rote.graph(use)
    for n in range(12):
        assert_same(call(g, n), call(use, n))


@pytest.mark.parametrize("make", [lambda y: (y, 1), lambda y: Pair(y, [1]), lambda y: (Batch(y),) * 2])
def test_one_tuple_in_several_places_of_a_result(device, make):
    def fn(x):
        one, other = make(x * 2), make(x)
        return {"a": one, "b": [one, other, (one, other)]}

    g = rote.graph(fn)
    for n in range(8):
        found = g(torch.full((4,), float(n), device=device))
        first, second, third = found["b"]
        assert first is found["a"] is third[0] and second is third[1] is not first
        assert_same(found, fn(torch.full((4,), float(n), device=device)))
    assert g.report().replayed >= 4, g.explain()


@pytest.mark.parametrize("verify", [None, 2])
@pytest.mark.parametrize(
    ("make", "replays"),
    [
        (lambda: tuple([1.5, "a"]), True),
        (lambda: Pair(1, tuple([2, None])), True),
        (lambda: tuple([[1.5]]), False),
        (lambda: Pair(torch.ones(2), 1), False),
    ],
    ids=["plain", "named", "with a list", "with a tensor"],
)
def test_a_tuple_from_outside_is_the_one_that_lies_there(device, make, replays, verify):
    held = types.SimpleNamespace(one=make(), other=None, kept=None)

    def fn(x):
        held.other, held.kept = held.one, [held.one, x * 2]
        return x * 2, held.one, {"again": (held.one, x * 3)}

    g = rote.graph(fn, verify=verify) if verify else rote.graph(fn)
    for n in range(18):
        if n in (8, 14):
            held.one = make()  # an equal one
        found = g(torch.full((4,), float(n), device=device))
        others = (found[2]["again"][0], held.other, held.kept[0])
        assert all(each is held.one for each in (found[1], *others)), n
    assert (g.report().replayed >= 4) == replays, g.explain()


plain = st.integers(0, 3)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
)


@settings(deadline=None)
@given(st.lists(values, max_size=4), st.booleans(), st.data())
def test_a_value_is_built_again_as_it_was(items, tuples, data):
    branches = [each for each in items if isinstance(each, (list, dict, tuple))]
    for _ in range(data.draw(st.integers(0, 3))):
        if branches:
            items.append(data.draw(st.sampled_from(branches)))
    leaves = []
    spec = flatten(items, leaves)
    again = repeated(spec, items, tuples=tuples)
    made = unflatten(spec, iter(leaves), again)
    assert made == items and repeated(spec, made, tuples=tuples) == again
