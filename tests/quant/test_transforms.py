"""Laws of the transforms, in float64 unless the rounding itself is the point."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rote import OptionError
from rote.quant.numerics.rotations import (
    block_basis,
    completed_basis,
    flat_row_basis,
    greedy_rotation,
    hadamard,
)
from rote.quant.numerics.search import alternating, column_energy, zigzag
from rote.quant.numerics.transforms import Chain, Permutation, Rotation, Smoothing

few = settings(max_examples=25, deadline=None)
sizes = st.sampled_from([2, 4, 8, 16, 32])
seeds = st.integers(0, 2**32)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


def assert_orthogonal(matrices: torch.Tensor) -> None:
    identity = torch.eye(matrices.shape[-1], dtype=torch.float64)
    assert (matrices @ matrices.mT - identity).abs().max() < 1e-12


@st.composite
def chains(draw) -> tuple[Chain, int, int]:
    """Any chain over some width, with that width and a seed."""
    size, blocks, seed = draw(sizes), draw(st.integers(1, 4)), draw(seeds)
    width, source = size * blocks, generator(seed)
    stages = []
    for kind in draw(st.lists(st.sampled_from(["smooth", "permute", "shared", "each"]), max_size=5)):
        if kind == "smooth":
            stages.append(Smoothing(torch.rand(width, dtype=torch.float64, generator=source) + 0.1))
        elif kind == "permute":
            stages.append(Permutation(torch.randperm(width, generator=source)))
        else:
            sets = 1 if kind == "shared" else blocks
            x = torch.randn(sets, 5, size, dtype=torch.float64, generator=source) ** 3
            stages.append(Rotation(greedy_rotation(x, 3, source)))
    return Chain(tuple(stages)), width, seed


@few
@given(chains(), st.integers(0, 3))
def test_a_chain_and_its_fold_leave_the_layer_as_it_is(case, rows):
    chain, width, seed = case
    x, weight = normal(rows, width, seed=seed), normal(6, width, seed=seed + 1)
    exact = x @ weight.T
    assert torch.allclose(chain.apply(x) @ chain.fold_into(weight).T, exact, rtol=1e-10, atol=1e-10)
    adjoint = chain.transposed(weight)
    assert torch.allclose(chain.apply(x) @ weight.T, x @ adjoint.T, rtol=1e-10, atol=1e-10)


@few
@given(sizes, st.integers(1, 3), st.integers(0, 12), seeds)
def test_greedy_rotations_are_orthogonal_and_never_raise_the_peak(size, sets, steps, seed):
    x = normal(sets, 7, size, seed=seed) ** 5
    found = greedy_rotation(x, steps, generator(seed))
    assert_orthogonal(found)
    before, after = x, torch.bmm(x, found)
    assert torch.allclose(after.norm(dim=2), before.norm(dim=2))
    peaks = [t.amax((1, 2)) - t.amin((1, 2)) for t in (before, after)]
    assert (peaks[1] <= peaks[0] * (1 + 1e-9)).all()
    assert torch.equal(found, greedy_rotation(x, steps, generator(seed))), (
        "the generator is all the randomness"
    )


@pytest.mark.parametrize("size", [2, 4, 16, 128, 512])
def test_the_basis_has_a_flat_row(size):
    basis = flat_row_basis(size)
    assert_orthogonal(basis)
    assert torch.allclose(basis[0], torch.full((size,), 1 / math.sqrt(size), dtype=torch.float64))
    if size > 2:
        assert basis[:, 0].abs().max() > 0.5, "column 0 is not flat"


def test_the_completion_keeps_the_flat_row():
    basis = completed_basis(64, generator(3))
    assert_orthogonal(basis)
    assert torch.allclose(basis[0], torch.full((64,), 1 / 8).double())
    assert basis[1:].abs().max() < 0.9, "the other rows are mixed"


def test_one_step_flattens_a_single_outlier():
    x = torch.zeros(1, 4, 128, dtype=torch.float64)
    x[0, 2, 77] = 1400.0
    after = torch.bmm(x, greedy_rotation(x, 1, generator(0)))
    assert torch.allclose(after.abs().max(), torch.tensor(1400 / math.sqrt(128)).double())


def greedy_by_the_book(x, steps, basis):
    """Section 3.2, one step at a time, with lists of everything."""
    products, peaks = [torch.eye(x.shape[1], dtype=torch.float64)], [x.max() - x.min()]
    for _ in range(steps):
        channel = int(x.abs().max(0).values.argmax())
        swap = torch.eye(x.shape[1], dtype=torch.float64)
        swap[[0, channel]] = swap[[channel, 0]]
        step = swap @ basis @ swap
        x = x @ step
        products.append(products[-1] @ step)
        peaks.append(x.max() - x.min())
    return products[min(range(len(peaks)), key=lambda k: peaks[k])]


@few
@given(sizes, st.integers(0, 20), seeds)
def test_greedy_rotation_by_the_book(size, steps, seed):
    x = normal(1, 9, size, seed=seed) ** 3
    found = greedy_rotation(x, steps, generator(seed))
    basis = completed_basis(size, generator(seed))
    assert torch.allclose(found[0], greedy_by_the_book(x[0], steps, basis), atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 8, 128])
def test_hadamard(size):
    matrix = hadamard(size)
    assert_orthogonal(matrix)
    assert torch.allclose(matrix.abs(), torch.full((size, size), 1 / math.sqrt(size)).double())


def test_hadamard_needs_a_power_of_two():
    with pytest.raises(OptionError, match="block_size=12 must be a power of two"):
        hadamard(12)


@few
@given(st.integers(1, 8), st.integers(1, 12), seeds)
def test_zigzag_is_a_bijection_that_levels_the_blocks(blocks, each, seed):
    sizes_ = normal(blocks * each, seed=seed).abs()
    order = zigzag(sizes_, blocks)
    assert torch.equal(torch.sort(order).values, torch.arange(blocks * each))
    dealt = sizes_[order].reshape(blocks, each)
    assert (dealt.diff(dim=1) <= 0).all(), "descending inside a block"
    # Blocks receive one channel of each round, so the means differ by less than the largest channel's share.
    assert dealt.mean(1).max() - dealt.mean(1).min() <= sizes_.max() / each + 1e-12


def test_zigzag_deals_there_and_back():
    order = zigzag(torch.tensor([9.0, 8, 7, 6, 5, 4, 3, 2]), 2)
    assert order.tolist() == [0, 3, 4, 7, 1, 2, 5, 6]


def test_zigzag_keeps_the_order_of_equals():
    assert zigzag(torch.ones(6), 3).tolist() == [0, 5, 1, 4, 2, 3]


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_alternating(width):
    energy = torch.arange(width, dtype=torch.float64)
    order = alternating(energy).tolist()
    assert sorted(order) == list(range(width))
    assert order[:2] == [width - 1, 0][:width]


@few
@given(st.integers(1, 20), st.integers(1, 9), st.sampled_from([2, 4, 8]), seeds)
def test_block_basis_is_the_svd_of_every_block(width, rows, size, seed):
    weight = normal(rows, width, seed=seed)
    basis = block_basis(weight, size)
    assert_orthogonal(basis)
    for b in range(basis.shape[0]):
        block = weight[:, b * size : (b + 1) * size]
        real = block.shape[1]
        turned = block @ basis[b, :real, :real]
        energies = turned.norm(dim=0)
        values = torch.linalg.svdvals(block)
        assert torch.allclose(energies[: len(values)], values, atol=1e-6)
        assert torch.equal(basis[b, real:, :real], torch.zeros(size - real, real).double()), (
            "padding keeps to itself"
        )


def test_column_energy():
    assert column_energy(torch.tensor([[1.0, 2], [3, 4]])).tolist() == [5.0, 10.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_weight_absorbs_the_inverse_of_the_rounded_matrix(dtype):
    x, weight = normal(20, 256), normal(30, 256, seed=1)
    exact = greedy_rotation(x.reshape(1, -1, 128), 8, generator(2))
    rounded = Rotation(exact.to(dtype))
    right = rounded.apply(x) @ rounded.fold_into(weight).T
    wrong = rounded.apply(x) @ Rotation(exact).fold_into(weight).T
    true = x @ weight.T
    assert (right - true).norm() / true.norm() < 1e-12
    assert (wrong - true).norm() / true.norm() > 1e-4, "which is what the transpose would cost"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_rows_are_transformed_in_float32(dtype, device):
    x = torch.randn(3, 16).to(device, dtype)
    stage = Rotation(hadamard(16)[None].float().to(device))
    assert stage.apply(x).dtype == torch.float32
    assert torch.equal(stage.apply(x), x.float() @ stage.blocks[0])


def test_rounded_rows_and_empty_ones():
    stage = Chain((Permutation(torch.randperm(8)), Rotation(hadamard(4).repeat(2, 1, 1))))
    assert stage.apply(torch.empty(0, 8)).shape == (0, 8)
    assert stage.apply(torch.empty(2, 0, 8)).shape == (2, 0, 8)
