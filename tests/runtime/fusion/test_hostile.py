"""Hostile elements: they lie as what they stand for, and are what their kind says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.runtime.fusion import HOSTILE, hostile_like

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def laid_out(sizes: list[int], order: int, offset: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with an offset, its dimensions in some order, the first of them expanded."""
    memory = torch.zeros(offset + 4096, dtype=dtype)[offset:]
    count = 1
    for size in sizes:
        count *= size
    found = memory[:count].view(sizes).permute(*[(n + order) % len(sizes) for n in range(len(sizes))])
    return found[:1].expand(3, *found.shape[1:])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 9),
    st.sampled_from(DTYPES), st.sampled_from(HOSTILE),
)  # fmt: skip
def test_they_lie_alike(sizes, order, offset, dtype, kind):
    given = laid_out(sizes, order, offset, dtype)
    found, again, other = [hostile_like(given, kind, seed) for seed in (1, 1, 2)]
    for each in (found, other):
        look = (each.dtype, each.shape, each.stride(), each.storage_offset())
        assert look == (given.dtype, given.shape, given.stride(), given.storage_offset())
    assert found.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    assert torch.equal(found.contiguous().view(bits), again.contiguous().view(bits))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_kinds_are(dtype, device):
    limits, given = torch.finfo(dtype), torch.zeros(1 << 14, dtype=dtype, device=device)
    bits, exponents, special, small, sums = [hostile_like(given, kind, 0) for kind in HOSTILE]
    assert bits.isnan().any() and (bits.abs() < limits.tiny).any()
    assert exponents.isfinite().all() and exponents.abs().min() < limits.tiny * 16
    assert exponents.abs().max() > limits.max / 16
    for value in (float("inf"), -float("inf"), limits.max, 0.0):
        assert 0 < (special == value).sum() < len(special) / 64
    assert 0 < special.isnan().sum() < len(special) / 64
    assert ((small == 0) & small.signbit()).any() and ((small == 0) & ~small.signbit()).any()
    assert (small.abs() < limits.tiny).all() and (small != 0).any()
    assert sums.isfinite().all() and (sums.abs() > 100).any() and (sums.abs() < 1e-3).any()


def test_nothing_has_no_elements():
    assert hostile_like(torch.zeros(0, 3), HOSTILE[0], 0).shape == (0, 3)
