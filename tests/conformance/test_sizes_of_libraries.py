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
    library.define("spread(Tensor x) -> Tensor")
    for key in ("CPU", "CUDA"):
        library.impl("keep", counted, key)
        library.impl("spread", lambda x: x.sum().expand(len(counted(x))), key)
        library.impl("pair", lambda x: (x * 2, counted(x)), key)
        library.impl("all", lambda x: [x + 1, torch.ones_like(counted(x))[None]], key)
    yield
    library._destroy()


def counted(x):
    return torch.arange(int((x > 0).sum()), device=x.device)


def keep(x):
    return torch.ops.rote_sizes.keep(x) * 2 + 1


def pair(x):
    doubled, kept = torch.ops.rote_sizes.pair(x)
    return doubled.sum() + kept, kept


def several(x):
    first, ones = torch.ops.rote_sizes.all(x)
    return first * ones.sum(), ones + 1


def spread(x):
    """Elements of one result lie at one place."""
    return torch.ops.rote_sizes.spread(x) * 2


def flat(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("program", [keep, pair, several, spread])
@pytest.mark.parametrize("size", [1, 3])
def test_results_have_the_size_of_the_plain_call(device, program, size):
    """A copy into what was recorded would be refused, or would fill it up from one element."""
    g, numbers = rote.graph(program, keep=True), torch.Generator().manual_seed(size)
    for number in range(CALLS):
        x = (torch.ones(size) if number < 5 else torch.randn(size, generator=numbers)).to(device)
        ours, theirs = flat(g(x)), flat(program(x))
        assert [each.shape for each in ours] == [each.shape for each in theirs]
        assert all(map(torch.equal, ours, theirs))
    assert g.report().replayed >= CALLS // 3, g.explain()


@pytest.mark.parametrize("program", [keep, pair])
def test_those_that_run_apart(device, program):
    """Between two segments their results are copied to where the next segment reads them."""
    name = "rote_sizes::keep" if program is keep else "rote_sizes::pair"
    g, numbers = rote.graph(program, keep=True, split_ops=[name]), torch.Generator().manual_seed(1)
    for number in range(CALLS):
        x = (torch.ones(3) if number < 5 else torch.randn(3, generator=numbers)).to(device)
        ours, theirs = flat(g(x)), flat(program(x))
        assert [each.shape for each in ours] == [each.shape for each in theirs]
        assert all(map(torch.equal, ours, theirs))
    assert g.report().replayed >= CALLS // 3, g.explain()
