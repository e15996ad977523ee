"""Replays have names in the timelines of other tools, where that is asked for."""

import pytest
import torch
from torch.profiler import profile

import rote
from rote.runtime.replay.generated import range_of


def chosen(x):
    return x.neg() if x.sum() > 0 else x.exp()


def doubled(x):
    return x * 2


def names(g, *args):
    with profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
        found = [g(*args) for _ in range(3)]
    return found, [each.name for each in profiler.events() if each.name.startswith("rote")]


@pytest.mark.parametrize("fn", [chosen, doubled], ids=["general path", "generated"])
def test_replays_are_named(fn):
    g, x = rote.graph(fn, ranges="profiler", keep=True), torch.ones(3)
    for _ in range(4):
        g(x)
    found, ranges = names(g, x)
    assert ranges == [f"rote: {fn.__name__}"] * 3
    assert all(torch.equal(each, fn(x)) for each in found) and g.report().replayed == 5


def test_other_calls_and_other_callables_are_not():
    g, off, x = rote.graph(doubled, ranges="profiler"), rote.graph(doubled, keep=True), torch.ones(3)
    for _ in range(4):
        g(x), off(x)
    assert names(g, torch.ones(9))[1] == ["rote: doubled"] * 2  # recorded, and replayed twice
    assert names(off, x)[1] == []


def test_nvtx_needs_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(rote.EnvironmentError_, match="ranges='nvtx' needs a build of PyTorch for CUDA"):
        range_of("nvtx", "f")
    with pytest.raises(rote.OptionError, match="ranges='all' is not one of 'off', 'profiler', 'nvtx'"):
        rote.graph(doubled, ranges="all")
