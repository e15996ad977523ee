"""Chunks: shared, exclusive, poisoned, counted."""

from __future__ import annotations

import torch

from rote.runtime.backends.host.pool import POISON, HostPool


def floats(lease: object) -> torch.Tensor:
    return lease.chunk.bytes.view(torch.float32)  # type: ignore[attr-defined]


def test_a_smaller_recording_shares_the_larger_ones_chunk() -> None:
    pool = HostPool()
    large, small = pool.lease(1000, exclusive=False), pool.lease(10, exclusive=False)
    assert small.chunk is large.chunk
    assert sum(pool.regions().values()) == 1024


def test_the_smallest_fitting_chunk_is_taken() -> None:
    pool = HostPool()
    small, large = pool.lease(64, exclusive=False), pool.lease(4096, exclusive=False)
    assert small.chunk is not large.chunk
    assert pool.lease(60, exclusive=False).chunk is small.chunk
    assert pool.lease(65, exclusive=False).chunk is large.chunk


def test_exclusive_chunks_are_never_shared() -> None:
    pool = HostPool()
    shared, alone = pool.lease(64, exclusive=False), pool.lease(64, exclusive=True)
    assert len({id(each.chunk) for each in (shared, alone, pool.lease(64, exclusive=True))}) == 3
    assert pool.lease(64, exclusive=False).chunk is shared.chunk


def test_a_chunk_without_users_is_poisoned_and_freed() -> None:
    pool = HostPool()
    one, two = pool.lease(64, exclusive=False), pool.lease(64, exclusive=False)
    view = floats(one).fill_(1.0)
    pool.give_back(one)
    assert view.eq(1).all()
    pool.give_back(two)
    pool.give_back(two)
    assert view.isnan().all() and view.view(torch.uint8).eq(POISON).all()
    assert not pool.regions()


def test_poison_is_nan_in_every_float_type() -> None:
    pool = HostPool()
    lease = pool.lease(64, exclusive=False)
    assert lease.chunk is not None
    lease.chunk.poison()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert lease.chunk.bytes.view(dtype).isnan().all()


def test_poison_after_replay_spares_exclusive_chunks_and_is_a_switch() -> None:
    pool = HostPool()
    shared, alone = floats(pool.lease(64, exclusive=False)), floats(pool.lease(64, exclusive=True))
    shared.zero_(), alone.zero_()
    pool.poison()
    assert shared.eq(0).all()
    pool.poison_after_replay = True
    pool.poison()
    assert shared.isnan().all() and alone.eq(0).all()


def test_bytes_kept_elsewhere_are_counted_until_given_back() -> None:
    pool = HostPool()
    lease = pool.lease(0, exclusive=False, kept_bytes=123)
    assert lease.chunk is None and sum(pool.regions().values()) == 123
    pool.give_back(lease)
    assert not pool.regions()
