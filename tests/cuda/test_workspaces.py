"""Workspaces of matrix products, which the first recording takes from its pool and all later ones use."""

from __future__ import annotations

import gc

import pytest
import torch

import rote
from rote.runtime.backends.cuda.torch_private import clear_workspaces

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]

CALLS = rote.Options().warmup + 1


def in_pools():
    """Bytes that the allocator has reserved for private pools."""
    gc.collect()
    torch.cuda.empty_cache()
    segments = torch.cuda.memory_snapshot()
    return sum(found["total_size"] for found in segments if tuple(found["segment_pool_id"]) != (0, 0))


def record(model, rows=64):
    g = rote.graph(model)
    with torch.no_grad():
        for number in range(CALLS + 1):
            x = torch.full((rows, 256), float(number), device="cuda")
            assert torch.equal(g(x), model(x))
    assert g.report().replayed
    return g


@pytest.fixture(autouse=True)
def _pools_are_empty():
    """Graphs of earlier tests have gone; while memory in their pools is in use, nothing is cleared."""
    gc.collect()
    clear_workspaces()
    if left := in_pools():
        pytest.skip(f"{left} bytes of earlier tests are in use in private pools: run this file by itself")


@pytest.fixture
def model():
    return torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)).cuda()


def test_the_last_release_leaves_nothing_in_pools(model):
    before = in_pools()
    g = record(model)
    assert in_pools() > before
    g.reset()
    assert in_pools() <= before


def test_again_and_again(model):
    before = in_pools()
    for _ in range(3):
        record(model).reset()
        assert in_pools() <= before


def test_a_recording_that_stays_is_right_after_others_have_gone(model):
    before = in_pools()
    first, second = record(model, 64), record(model, 32)
    first.reset()
    others = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(40)]
    with torch.no_grad():
        x = torch.randn(32, 256, device="cuda")
        assert torch.equal(second(x), model(x))
    assert all(bool((other == -1).all()) for other in others)
    second.reset()
    assert in_pools() <= before


def test_a_backward_pass_has_workspaces_of_its_thread(model):
    before = in_pools()
    g = rote.graph(model)
    for _ in range(CALLS + 3):
        g(torch.randn(64, 256, device="cuda")).sum().backward()
    assert g.report().backwards_replayed
    g.reset()
    model.zero_grad()
    assert in_pools() <= before


def test_a_graph_captured_by_hand_keeps_its_workspace(model):
    x = torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        wanted = model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = model(x)
        record(model).reset()
        others = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(40)]
        graph.replay()
    assert torch.equal(found, wanted) and all(bool((other == -1).all()) for other in others)
