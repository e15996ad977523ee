"""Which process group there is, read inside a call and changed later; one process is enough."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn

import rote

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")


@contextlib.contextmanager
def group(rank=0, size=1):
    store = dist.HashStore() if size == 1 else None
    dist.init_process_group(
        "gloo" if size == 1 else "fake", store=store or _fake(), rank=rank, world_size=size
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def _fake():
    testing = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    return testing.FakeStore()


def initialized(x):
    return x * 2 if dist.is_initialized() else x * 3


def through_the_package(x):
    return x * 2 if torch.distributed.is_available() and torch.distributed.is_initialized() else x * 3


def rank(x):
    return x + dist.get_rank()


def size(x):
    return x / dist.get_world_size()


def backend(x):
    return x * (2 if dist.get_backend() == "gloo" else 3)


def default_group(x):
    return x * 2 if dist.group.WORLD is None else x * (3 + dist.group.WORLD.rank())


def ranks(x):
    return x + sum(dist.get_process_group_ranks(dist.group.WORLD))


@pytest.mark.parametrize("call", [initialized, through_the_package, default_group])
def test_a_group_that_comes_and_goes(call):
    g, x = rote.graph(call), torch.ones(3)
    for _ in range(2):
        for _ in range(5):
            assert torch.equal(g(x), call(x))
        with group():
            for _ in range(5):
                assert torch.equal(g(x), call(x))
    assert g.report().replayed >= 8, g.explain()


@pytest.mark.parametrize("call", [rank, size, backend, default_group, ranks])
def test_another_group(call):
    g, x = rote.graph(call), torch.ones(3)
    for rank, size in ((0, 1), (0, 2), (1, 2), (1, 3), (0, 1)):
        with group(rank, size):
            for _ in range(5):
                assert torch.equal(g(x), call(x)), (rank, size)
    assert g.report().replayed >= 8, g.explain()


def test_read_on_a_way_that_is_taken_later():
    def call(x, flag):
        return x * (1 + dist.is_initialized()) if flag.sum() > 0 else x * 5

    g, x = rote.graph(call), torch.ones(3)
    off, on = torch.zeros(1), torch.ones(1)
    for _ in range(5):
        g(x, off)
    for _ in range(5):
        assert torch.equal(g(x, on), x)
    with group():
        for _ in range(4):
            assert torch.equal(g(x, on), x * 2)


def test_synchronized_statistics_ask_for_the_group():
    with group():
        norm = nn.SyncBatchNorm(2).eval()
        g, x = rote.graph(norm), torch.randn(4, 2)
        for _ in range(6):
            assert torch.equal(g(x), norm(x))
        assert g.report().replayed, g.explain()


def test_a_store_made_inside_is_made_by_every_call(tmp_path):
    def call(x, name):
        dist.FileStore(str(tmp_path / name), 2)  # one of two processes: the file stays
        return x * 2

    path = tmp_path / "store"
    g = rote.graph(call)
    for _ in range(8):
        g(torch.ones(3), "store")
        path.unlink()
    assert "FileStore" in str(g.explain())


def test_values_that_say_how_a_collective_runs():
    def call(x):
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
        return x * (2 if options.reduceOp == dist.ReduceOp.MAX else 3)

    g, x = rote.graph(call), torch.ones(3)
    for _ in range(8):
        assert torch.equal(g(x), call(x))
    assert g.report().replayed >= 4, g.explain()
