"""Random nested values: taken apart and put together again they are the same."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple

import pytest

from rote.runtime.arguments.leaves import flatten, paths, unflatten

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import given, settings

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Box:
    content: object
    label: object = None
    derived: object = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    content: object


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))


def branches(inner):
    keys = st.one_of(st.text(max_size=3), st.integers(0, 3))
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.builds(Pair, inner, inner),
        st.builds(Box, inner, inner),
        st.builds(Frozen, inner),
    )


values = st.recursive(leaves, branches, max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(values)
def test_round_trip(value):
    parts = []
    spec = flatten(value, parts)
    again = unflatten(spec, iter(parts))
    assert again == value and type(again) is type(value)
    assert len(paths(spec, "x")) == len(parts)
    hash(spec)


@settings(max_examples=100, deadline=None)
@given(values, values)
def test_specs_differ_where_structures_do(first, second):
    a, b = [], []
    same = flatten(first, a) == flatten(second, b)
    if same:
        assert len(a) == len(b)
        swapped = unflatten(flatten(first, []), iter(b))
        assert swapped == second
