"""Laws of grids, ranges, packing and learned clipping."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rote.quant import DuQuantConfig
from rote.quant.numerics.grid import Grid, values
from rote.quant.numerics.packing import pack, unpack
from rote.quant.numerics.weights import quantize_weight, split

few = settings(max_examples=40, deadline=None)
bits_ = st.integers(2, 8)
seeds = st.integers(0, 2**32)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@few
@given(bits_, st.booleans(), seeds, st.floats(1e-3, 1e3), st.floats(-3, 3))
def test_inside_the_range_the_error_is_at_most_half_a_step(bits, symmetric, seed, size, shift):
    grid = Grid(bits, symmetric)
    x = (normal(7, 33, seed=seed) + shift) * size
    scale, zero = grid.parameters(x.amin(1, keepdim=True), x.amax(1, keepdim=True))
    assert ((grid.fake(x, scale, zero) - x).abs() <= scale / 2 * (1 + 1e-9)).all()
    assert not grid.clipped(x, scale, zero).any() or not symmetric, "an asymmetric end may round one code out"


@few
@given(bits_, st.booleans(), seeds)
def test_quantizing_twice_is_quantizing_once(bits, symmetric, seed):
    grid = Grid(bits, symmetric)
    x = normal(5, 20, seed=seed)
    scale, zero = grid.parameters(x.amin(1, keepdim=True) * 0.7, x.amax(1, keepdim=True) * 0.7)
    once = grid.fake(x, scale, zero)
    assert torch.equal(grid.fake(once, scale, zero), once)


@few
@given(bits_, st.booleans(), seeds)
def test_codes_are_codes_and_zero_is_exact(bits, symmetric, seed):
    grid = Grid(bits, symmetric)
    x = normal(5, 20, seed=seed) + 4
    x[:, 3] = 0
    scale, zero = grid.parameters(x.amin(1, keepdim=True), x.amax(1, keepdim=True))
    codes = grid.codes(x * 3, scale, zero)
    assert (codes == codes.round()).all() and codes.min() >= grid.low and codes.max() <= grid.high
    assert (zero == zero.round()).all() and zero.min() >= grid.low and zero.max() <= grid.high
    assert (grid.fake(x, scale, zero)[:, 3] == 0).all()


def test_the_asymmetric_grid_by_the_book():
    """Unsigned, as published: codes 0 to 15, zero point ``-round(lowest / scale)``."""
    x = normal(6, 50, seed=3)
    lowest, highest = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    scale = (highest - lowest) / 15
    zero = -torch.round(lowest / scale)
    published = (torch.round(x / scale) + zero).clamp(0, 15)
    grid = Grid(4, False)
    ours = grid.codes(x, *grid.parameters(lowest, highest))
    assert torch.equal(ours + 8, published)


def test_rows_of_zeros_stay_zero():
    for grid in (Grid(4, True), Grid(8, False)):
        scale, zero = grid.parameters(torch.zeros(3, 1), torch.zeros(3, 1))
        assert (grid.fake(torch.zeros(3, 5), scale, zero) == 0).all()


def test_gradients_pass_where_nothing_is_clipped():
    x = torch.tensor([-3.0, -0.4, 0.2, 0.9, 5.0], requires_grad=True)
    grid, scale, zero = Grid(4, True), torch.tensor(0.1), torch.tensor(0.0)
    out = grid.fake(x, scale, zero)
    assert torch.equal(out, grid.fake(x.detach(), scale, zero)), "the same bits with and without gradients"
    out.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 1, 1, 0, 0]


@few
@given(bits_, st.integers(0, 9), st.integers(1, 20), seeds)
def test_packing_loses_nothing(bits, rows, pairs, seed):
    codes = torch.randint(-(1 << (bits - 1)), 1 << (bits - 1), (rows, 2 * pairs), dtype=torch.int8)
    stored = pack(codes, bits)
    assert torch.equal(unpack(stored, bits), codes)
    assert stored.numel() == codes.numel() // (2 if bits <= 4 else 1)


def test_the_layout_of_a_byte():
    stored = pack(torch.tensor([[-8, 7, -1, 0]], dtype=torch.int8), 4)
    assert stored.dtype == torch.uint8 and stored.tolist() == [[0x78, 0x0F]]


def config(**changes) -> DuQuantConfig:
    return DuQuantConfig(**{"block_size": 16, "weight_range": "minmax", **changes})


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({"weight_granularity": "tensor"}, 1),
        ({"weight_granularity": "channel"}, 1),
        ({"weight_granularity": "group", "weight_group_size": 8}, 4),
    ],
)
@pytest.mark.parametrize("symmetric", [True, False])
def test_granularity(changes, groups, symmetric):
    weight = normal(6, 32, dtype=torch.float32)
    found = quantize_weight(weight, 4, config(weight_symmetric=symmetric, **changes))
    assert found.scale.shape == found.zero.shape == (6, groups)
    grid = Grid(4, symmetric)
    parts = split(weight, config(weight_symmetric=symmetric, **changes))
    scale, zero = grid.parameters(parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True))
    assert torch.equal(found.values(), grid.fake(parts, scale, zero).reshape(6, 32))


@few
@given(bits_, st.booleans(), seeds)
def test_searches_are_never_worse_than_the_plain_range(bits, symmetric, seed):
    weight = normal(9, 64, seed=seed, dtype=torch.float32) ** 3
    errors = {
        way: (
            quantize_weight(weight, bits, config(weight_symmetric=symmetric, weight_range=way)).values()
            - weight
        )
        .square()
        .sum(1)
        for way in ("minmax", "mse", "grid")
    }
    assert (errors["mse"] <= errors["minmax"] * (1 + 1e-5)).all()
    assert (errors["grid"] <= errors["minmax"] * (1 + 1e-5)).all()


def test_the_search_finds_the_best_ratio():
    weight = normal(1, 400, dtype=torch.float32)
    grid, best = Grid(4, True), []
    for ratio in [1 - 0.05 * step for step in range(15)]:
        scale = weight.abs().max() * ratio / 7
        best.append(
            (values((weight / scale).round().clamp(-8, 7), scale, torch.zeros(())) - weight).square().mean()
        )
    found = quantize_weight(weight, grid.bits, config(weight_symmetric=True, weight_range="mse")).values()
    assert torch.allclose((found - weight).square().mean(), min(best))
    assert min(best) < best[0] * 0.8, "clipping pays for a normal distribution"


@pytest.mark.parametrize("granularity", [{}, {"weight_granularity": "group", "weight_group_size": 16}])
def test_learned_clipping_beats_the_plain_range_on_the_output(granularity):
    weight, rows = normal(12, 32, dtype=torch.float32), normal(64, 32, seed=1, dtype=torch.float32)
    errors = {}
    for way in ("minmax", "learned"):
        before = torch.is_grad_enabled()
        found = quantize_weight(weight, 3, config(weight_range=way, **granularity), rows=rows)
        assert torch.is_grad_enabled() is before
        assert not found.scale.requires_grad
        errors[way] = (rows @ (found.values() - weight).T).square().mean(0)
    assert (errors["learned"] <= errors["minmax"] * (1 + 1e-5)).all()
    assert errors["learned"].sum() < errors["minmax"].sum() * 0.95


def test_fixed_clipping_scales_the_range():
    weight = normal(3, 32, dtype=torch.float32)
    full = quantize_weight(weight, 4, config(weight_symmetric=True))
    cut = quantize_weight(weight, 4, config(weight_symmetric=True, weight_clip=0.8))
    assert torch.allclose(cut.scale, full.scale * 0.8)
