"""Budgets on CUDA: pools are given back as a whole, so there are several of them."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

import rote
from rote.runtime.backends.select import PROCESS
from rote.runtime.memory.budget import SLABS

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]

CALLS = rote.Options().warmup + 1
MIB = 1 << 20


@pytest.fixture
def backend():
    return PROCESS.of(torch.device("cuda", torch.cuda.current_device()))


def work(x):
    return (x * 2 + 1).relu() * 0.5


def record(g, rows):
    """Record one shape; a row has a MiB."""
    for n in range(CALLS + 1):
        x = torch.full((rows, MIB // 4), float(n), device="cuda")
        assert torch.equal(g(x), work(x))


def in_pools():
    """Bytes that the allocator has reserved for private pools."""
    segments = torch.cuda.memory_snapshot()
    return sum(found["total_size"] for found in segments if tuple(found["segment_pool_id"]) != (0, 0))


def test_one_pool_without_a_budget(backend):
    wrappers = [rote.graph(work) for _ in range(3)]
    for number, g in enumerate(wrappers):
        record(g, 12 - number)
    assert len(backend.regions()) == 1
    assert backend.bytes_held() < 3 * 3 * 12 * MIB  # intermediates are shared


def test_slabs_under_a_budget(backend):
    limit = 1024 * MIB
    g = rote.graph(work, budget=limit)
    for rows in range(4, 16):
        record(g, rows)
    regions = backend.regions()
    assert 1 < len(regions) < 12  # several, and still shared
    assert all(nbytes < 3 * limit // SLABS for nbytes in regions.values())
    assert g.report().recorded == 12


def test_a_large_recording_has_a_pool_to_itself(backend):
    g = rote.graph(work, budget=1024 * MIB)
    record(g, 4)
    record(g, 60)
    record(g, 5)
    assert len(backend.regions()) == 2


def test_a_wrapper_with_a_budget_has_pools_of_its_own(backend):
    wrappers = [rote.graph(work, budget="1GiB"), rote.graph(work, budget="1GiB"), rote.graph(work)]
    for g in wrappers:
        record(g, 4)
    assert len(backend.regions()) == 3


def test_evicted_memory_goes_back_to_the_device(backend):
    gc.collect()  # what earlier tests left would go in the meantime
    torch.cuda.empty_cache()
    before = in_pools()
    g = rote.graph(work, max_keys=64)
    for rows in range(8, 12):
        record(g, rows)
    assert in_pools() > before + 40 * MIB
    try:
        rote.set_budget(1)
        assert backend.bytes_held() == 0
        assert in_pools() <= before
    finally:
        rote.set_budget(None)
    record(g, 9)


def test_held_outputs_stay_right_when_their_pool_goes(backend):
    g = rote.graph(work)
    for n in range(CALLS + 1):
        out = g(torch.full((8, MIB // 4), float(n), device="cuda"))
    try:
        rote.set_budget(1)
        others = [torch.full((8, MIB // 4), -1.0, device="cuda") for _ in range(8)]
        assert torch.equal(out, work(torch.full_like(others[0], float(CALLS))))
    finally:
        rote.set_budget(None)


def test_numbers_of_pools_keep_their_references(backend):
    """Asked for one pool, torch 2.11 seems to give back references that it does not have."""
    for _ in range(300):
        torch.cuda.graph_pool_handle()
    g = rote.graph(work, budget="1GiB")  # with a pool of its own
    record(g, 4)
    numbers = [number for handle in backend.regions() for number in handle if number > 256]
    before = [sys.getrefcount(number) for number in numbers]
    for _ in range(20):
        assert all(backend.regions().values()) and backend.bytes_held()
    assert numbers and [sys.getrefcount(number) for number in numbers] == before
