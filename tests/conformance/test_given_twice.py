"""One container as several arguments: a call may ask whether two are one."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rote
from rote.runtime.arguments.leaves import flatten, repeated, unflatten


@dataclasses.dataclass
class Batch:
    scale: float


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


plain = st.integers(0, 3)
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@settings(deadline=None)
@given(st.lists(values, max_size=4), st.data())
def test_a_value_is_built_again_as_it_was(items, data):
    branches = [each for each in items if isinstance(each, (list, dict))]
    for _ in range(data.draw(st.integers(0, 3))):
        if branches:
            items.append(data.draw(st.sampled_from(branches)))
    leaves = []
    spec = flatten(items, leaves)
    again = repeated(spec, items)
    made = unflatten(spec, iter(leaves), again)
    assert made == items and repeated(spec, made) == again
