"""Operators that no graph may hold: tagged by their author, or named by the user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1
CALLS = 8


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """Operators of a library."""
    library = torch.library.Library("rote_apart", "DEF")
    library.define("unsafe(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
    library.impl("unsafe", lambda x: x * 2, "CompositeExplicitAutograd")
    library.define("unsafe_(Tensor(a!) x) -> ()", tags=(torch.Tag.cudagraph_unsafe,))
    library.impl("unsafe_", lambda x: (x.mul_(2), None)[1], "CPU")
    library.impl("unsafe_", lambda x: (x.mul_(2), None)[1], "CUDA")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.define("twice.by(Tensor x, float f) -> Tensor")
    library.impl("twice.by", lambda x, f: x * f, "CompositeExplicitAutograd")
    yield
    library._destroy()


def inputs(device):
    return [(torch.full((3,), float(n), device=device),) for n in range(CALLS)]


def _unsafe(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.rote_apart.unsafe(x + 1) - 1


def _unsafe_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch.ops.rote_apart.unsafe_(y)
    return y - 1


def _twice(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.rote_apart.twice(x + 1) - torch.ops.rote_apart.twice(x, 3.0)


def islands(g):
    (recording,) = g.report().recordings
    assert g.report().replayed >= CALLS - WARM - 1
    return [(island.code, island.operation) for island in recording.islands], recording.segments


@pytest.mark.parametrize("fn", [_unsafe, _unsafe_in_place])
def test_tagged_operators_run_between_segments(device, fn):
    found, segments = islands(compare(fn, inputs(device)))
    assert [code for code, _ in found] == ["RT131"] and segments == 2


def test_tagged_operators_are_refused_by_strict_mode(device):
    g = rote.graph(_unsafe, strict=True)
    with pytest.raises(
        rote.NotReplayedError, match=r"RT131 at .*: rote_apart::unsafe runs between two segments"
    ):
        for (x,) in inputs(device):
            g(x)


@pytest.mark.parametrize(
    ("names", "operations", "segments"),
    [
        ((), [], 1),
        (["rote_apart::twice"], ["rote_apart::twice", "rote_apart::twice.by"], 2),
        (("rote_apart::twice.by", "rote_apart::other"), ["rote_apart::twice.by"], 2),
        (("aten::add",), ["aten::add.Tensor"], 1),
        (("rote_apart::twice.default",), ["rote_apart::twice"], 2),
    ],
)
def test_named_operators_run_between_segments(device, names, operations, segments):
    assert islands(compare(_twice, inputs(device), split_ops=names)) == (
        [("RT131", operation) for operation in operations],
        segments,
    )


def test_operators_themselves_are_names(device):
    packet = torch.ops.rote_apart.twice
    both = [("RT131", "rote_apart::twice"), ("RT131", "rote_apart::twice.by")]
    assert islands(compare(_twice, inputs(device), split_ops=(packet,)))[0] == both
    assert islands(compare(_twice, inputs(device), split_ops=(packet.default,)))[0] == both[:1]
    assert islands(compare(_twice, inputs(device), split_ops=(packet.by,)))[0] == both[1:]


def test_named_operators_of_a_backward_run_between_segments(device):
    layer = torch.nn.Linear(3, 3, device=device)

    def step(x):
        layer.zero_grad()
        layer(x).tanh().sum().backward()
        return layer.weight.grad.clone()

    g = rote.graph(step, split_ops=("aten::tanh_backward",))
    for (x,) in inputs(device):
        assert g(x).equal(step(x))
    assert islands(g)[0] == [("RT131", "aten::tanh_backward")]


@pytest.mark.parametrize("names", ["mylib::op", ("op",), (torch.add,), (3,)])
def test_impossible_names(names):
    with pytest.raises(rote.OptionError, match="must hold names of operators"):
        rote.graph(torch.relu, split_ops=names)
