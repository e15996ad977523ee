"""The private layout: there and back, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from benchmarks.w4a8_operators import pack_weight
from hypothesis import given
from hypothesis import strategies as st

from rote.base.errors import MisuseError
from rote.quant.numerics.packing import codes_of, layout


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([2, 3, 4, 5, 8]), st.integers(0, 99))
def test_layout_there_and_back(n: int, k: int, bits: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    limit = 1 << (bits - 1)
    codes = torch.randint(-limit, limit, (n, k), dtype=torch.int8, generator=generator)
    packed = layout(codes, bits)
    assert packed.is_contiguous()
    assert packed.shape == (-(-k // 128), n, 64 if bits <= 4 else 128)
    assert torch.equal(codes_of(packed, k), codes)


def test_a_byte_holds_columns_64_apart():
    codes = torch.zeros(128, 256, dtype=torch.int8)
    codes[5, 128 + 3], codes[5, 128 + 64 + 3] = -8, 7
    packed = layout(codes, 4)
    assert packed[1, 5, 3].item() & 0xFF == 0x78
    assert packed.count_nonzero() == 1


def test_joined_rows_are_joined_layouts():
    upper, lower = (torch.randint(-8, 8, (128, 200), dtype=torch.int8) for _ in range(2))
    together = layout(torch.cat([upper, lower]), 4)
    assert torch.equal(together, torch.cat([layout(upper, 4), layout(lower, 4)], dim=1))


def test_zero_points_that_are_all_0_are_dropped():
    codes = torch.randint(-8, 8, (4, 8), dtype=torch.int8)
    assert pack_weight(codes, torch.ones(4), torch.zeros(4), 4).zero is None


def test_refusals():
    codes = torch.full((2, 4), 8, dtype=torch.int8)
    with pytest.raises(MisuseError, match=r"codes run from 8 to 8, which is more than 4 bits"):
        pack_weight(codes, torch.ones(2), None, 4)
    with pytest.raises(
        MisuseError, match=r"scale has shape \(2, 2\), and the kernels take one value .* path='fused'"
    ):
        pack_weight(codes, torch.ones(2, 2), None, 8)
