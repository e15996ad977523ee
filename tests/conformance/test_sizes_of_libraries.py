"""Operators of libraries whose results have sizes that depend on values, which no schema tells."""

import pytest
import torch
from torch.library import Library

import rote

CALLS = 40


@pytest.fixture(scope="module", autouse=True)
def _library():
    library = Library("rote_sizes", "DEF")
    library.define("keep(Tensor x) -> Tensor")
    library.define("pair(Tensor x) -> (Tensor, Tensor)")
    library.define("all(Tensor x) -> Tensor[]")
    library.impl("keep", lambda x: torch.arange(int((x > 0).sum())), "CPU")
    library.impl("pair", lambda x: (x * 2, torch.arange(int((x > 0).sum()))), "CPU")
    library.impl("all", lambda x: [x + 1, torch.ones(1, int((x > 0).sum()))], "CPU")
    yield
    library._destroy()


def keep(x):
    return torch.ops.rote_sizes.keep(x) * 2 + 1


def pair(x):
    doubled, kept = torch.ops.rote_sizes.pair(x)
    return doubled.sum() + kept, kept


def several(x):
    first, ones = torch.ops.rote_sizes.all(x)
    return first * ones.sum(), ones + 1


def flat(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("program", [keep, pair, several])
@pytest.mark.parametrize("size", [1, 3])
def test_results_have_the_size_of_the_plain_call(program, size):
    """A copy into what was recorded would be refused, or would fill it up from one element."""
    g, numbers = rote.graph(program, keep=True), torch.Generator().manual_seed(size)
    for number in range(CALLS):
        x = torch.ones(size) if number < 5 else torch.randn(size, generator=numbers)
        ours, theirs = flat(g(x)), flat(program(x))
        assert [each.shape for each in ours] == [each.shape for each in theirs]
        assert all(map(torch.equal, ours, theirs))
    assert g.report().replayed >= CALLS // 3, g.explain()
