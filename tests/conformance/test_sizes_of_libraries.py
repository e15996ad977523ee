"""Operators of libraries whose results have sizes that depend on values, which no schema tells."""

import pytest
import torch
from torch.library import Library

import rote

CALLS = 40


@pytest.fixture(scope="module", autouse=True)
def _library():
    library = Library("sized", "DEF")
    library.define("keep(Tensor x) -> Tensor")
    library.define("pair(Tensor x) -> (Tensor, Tensor)")
    library.define("all(Tensor x) -> Tensor[]")
    library.define("spread(Tensor x) -> Tensor")
    for key in ("CPU", "CUDA"):
        library.impl("keep", counted, key)
        library.impl("spread", lambda x: x.sum().expand(len(counted(x))), key)
        library.impl("pair", lambda x: (x * 2, counted(x)), key)
        library.impl("all", lambda x: [x + 1, torch.ones_like(counted(x))[None]], key)
    for name in ("told", "raising"):
        library.define(f"{name}(Tensor x) -> Tensor")
        for key in ("CPU", "CUDA"):
            library.impl(name, doubled, key)
    library.define("lying(Tensor x) -> Tensor")
    for key in ("CPU", "CUDA"):
        library.impl("lying", counted, key)
    library.impl("lying", torch.empty_like, "Meta")
    library.impl("told", torch.empty_like, "Meta")
    library.impl("raising", lambda x: x.new_empty(int(x.sum())), "Meta")
    yield
    library._destroy()


def doubled(x):
    """It reads on the host, so that no graph of CUDA's holds it."""
    return x * (2 if x.sum().item() < 1e9 else 3)


def counted(x):
    return torch.arange(int((x > 0).sum()), device=x.device)


def keep(x):
    return torch.ops.sized.keep(x) * 2 + 1


def pair(x):
    doubled, kept = torch.ops.sized.pair(x)
    return doubled.sum() + kept, kept


def several(x):
    first, ones = torch.ops.sized.all(x)
    return first * ones.sum(), ones + 1


def spread(x):
    """Elements of one result lie at one place."""
    return torch.ops.sized.spread(x) * 2


def lying(x):
    return torch.ops.sized.lying(x) * 2


def flat(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("program", [keep, pair, several, spread, lying])
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
    name = "sized::keep" if program is keep else "sized::pair"
    g, numbers = rote.graph(program, keep=True, split_ops=[name]), torch.Generator().manual_seed(1)
    for number in range(CALLS):
        x = (torch.ones(3) if number < 5 else torch.randn(3, generator=numbers)).to(device)
        ours, theirs = flat(g(x)), flat(program(x))
        assert [each.shape for each in ours] == [each.shape for each in theirs]
        assert all(map(torch.equal, ours, theirs))
    assert g.report().replayed >= CALLS // 3, g.explain()


SEEN = []


def behind_a_draw(x, outside):
    drawn = torch.rand(1, device=x.device)
    return drawn + torch.ops.sized.keep(x) * 2


def before_a_draw(x, outside):
    kept = torch.ops.sized.keep(x) * 2
    return kept + torch.rand(1, device=x.device)


def behind_a_host_read(x, outside):
    above = (x.sum() > -1000).item()
    return torch.ops.sized.keep(x) * 2 + above + torch.rand(1, device=x.device)


def behind_a_write(x, outside):
    outside.add_(1)
    return torch.ops.sized.keep(x) * 2 + outside


def before_a_write(x, outside):
    kept = torch.ops.sized.keep(x) * 2
    outside.add_(kept.sum())
    return kept + 1


def of_the_user(x, outside):
    """Code of the user's runs before, and is not run twice."""
    drawn = torch.rand(1, device=x.device)
    SEEN.append(x.shape)
    return torch.ops.sized.keep(x) * 2 + drawn


@pytest.mark.parametrize("apart", [False, True], ids=["", "apart"])
@pytest.mark.parametrize(
    "program",
    [behind_a_draw, before_a_draw, behind_a_host_read, behind_a_write, before_a_write, of_the_user],
)
def test_a_new_size_where_nothing_is_taken_back(device, program, apart):
    """The plain call raises nothing, so no replay may, whatever it has done before."""
    g = rote.graph(program, keep=True, split_ops=["sized::keep"] * apart)
    mine, other = torch.zeros(1, device=device), torch.zeros(1, device=device)
    numbers = torch.Generator().manual_seed(1)
    for number in range(CALLS):
        x = (torch.ones(3) if number < 8 else torch.randn(3, generator=numbers)).to(device)
        torch.manual_seed(number)
        ours = g(x, mine)
        torch.manual_seed(number)
        theirs = program(x, other)
        assert torch.equal(ours, theirs)
        assert torch.equal(mine, other)
    assert g.report().replayed >= CALLS // 4, g.explain()


@pytest.mark.parametrize("apart", [False, True], ids=["", "apart"])
@pytest.mark.parametrize("name", ["told", "raising"])
def test_a_kernel_for_meta_tensors_tells_the_sizes(device, name, apart):
    """What is told is no way of its own. One that raises without values tells nothing."""
    operator = getattr(torch.ops.sized, name)

    def fn(x):
        return operator(x + 1) * torch.rand(1, device=x.device)

    g = rote.graph(fn, keep=True, split_ops=[f"sized::{name}"] * apart)
    for number in range(8):
        x = torch.randn(3, device=device)
        torch.manual_seed(number)
        ours = g(x)
        torch.manual_seed(number)
        assert torch.equal(ours, fn(x))
    (recording,) = g.report().recordings
    assert g.report().replayed >= 4, g.explain()
    captured = name == "told" and not apart and device.type == "cpu"
    assert bool(recording.islands) is not captured
    codes = {island.code for island in recording.islands}
    assert ("RT111" in codes) is (name == "raising"), g.explain()
