"""The kernels themselves, in Triton's interpreter, against torch."""

from __future__ import annotations

import pytest
import torch
from benchmarks.w4a8_operators import Activation
from tests.quant_kernels import cases

from rote.quant.kernels import by_torch, by_triton, held, transform
from rote.quant.kernels.table import RowCut, Tile
from rote.quant.kernels.target import quantizing

pytestmark = [pytest.mark.usefixtures("interpreter"), pytest.mark.slow]

TILES = [
    Tile(16, 64), Tile(8, 32, split=3), Tile(16, 64, unroll=2), Tile(32, 128, unroll=2, split=2),
    Tile(16, 64, tma=True), Tile(8, 32, unroll=2, split=2, tma=True), Tile(8, 32, unroll=4),
    Tile(16, 32, unroll=4, tma=True), Tile(32, 64, tail=16), Tile(32, 32, tma=True, tail=16),
]  # fmt: skip
SIZES = [(3, 200, 70), (17, 384, 130), (33, 500, 129)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_sums(bits: int, tile: Tile, m: int, k: int, n: int):
    codes, weight = cases.weight_of(n, k, bits)
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    x[0] = -128
    rows = (x, torch.ones(m), torch.empty(0, dtype=torch.int32), x.sum(1, dtype=torch.int32))
    found = by_triton.product(*rows, *cases.weight_arguments(weight, None), torch.int32, tile)
    assert torch.equal(found, (x.double() @ codes.double().T).to(torch.int32))


@pytest.mark.parametrize("parts", [16, 31, 32, 33, 64])
def test_sums_of_many_parts(parts: int):
    test_sums(4, Tile(8, 32, split=parts), 3, 384, 40)


@pytest.mark.parametrize("zeros", ["both", "activations", "weights", "none"])
@pytest.mark.parametrize("tile", [*TILES[:2], TILES[4]], ids=str)
def test_outputs(zeros: str, tile: Tile):
    m, k, n = 5, 200, 70
    _, weight = cases.weight_of(n, k, 4, zero=zeros in ("both", "weights"))
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    zero = torch.randint(-128, 128, (m if zeros in ("both", "activations") else 0,), dtype=torch.int32)
    rows = (x, torch.rand(m), zero, x.sum(1, dtype=torch.int32))
    arguments = (*rows, *cases.weight_arguments(weight, torch.randn(n)), torch.float32)
    torch.testing.assert_close(
        by_triton.product(*arguments, tile), by_torch.product(*arguments), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("grid", cases.GRIDS)
@pytest.mark.parametrize("chain", cases.CHAINS)
def test_codes(chain: str, grid: str):
    change = cases.transform_of(chain, 60, 64, 16, smooth=True)
    arguments = cases.transform_arguments(change, cases.grid_of(grid, 64))
    x = cases.rows_of(3, 60, torch.float16)
    cases.assert_same_codes(by_triton.quantize_rows(x, *arguments), by_torch.quantize_rows(x, *arguments))


@pytest.mark.parametrize("grid", cases.GRIDS)
@pytest.mark.parametrize(
    ("tokens", "cut"),
    [
        (1, RowCut(16)),
        (16, RowCut(16)),
        (19, RowCut(8)),
        (1, RowCut(2, programs=1)),
        (19, RowCut(2, programs=1)),
    ],
    ids=str,
)
def test_codes_however_rows_are_cut_up(tokens: int, cut: RowCut, grid: str):
    """And zeros for the product that follows."""
    change = cases.transform_of("rotate permute rotate", 76, 80, 16, smooth=grid == "symmetric")
    smooth, stages, width, *target = cases.transform_arguments(change, cases.grid_of(grid, 80))
    x, work = cases.rows_of(tokens, 76, torch.float16), torch.full((1100,), 7, dtype=torch.int32)
    to = quantizing(x, width, *target)
    transform.launch(x, smooth, stages, to, work, True, cut)
    assert (work == 0).all()
    wanted = by_torch.quantize_rows(x, smooth, stages, width, *target)
    cases.assert_same_codes((to.rows, to.scale, to.zero, to.total), wanted)


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize(("width", "size"), [(2048, 128), (1024, 64)])
@pytest.mark.parametrize("grid", ["symmetric", "asymmetric"])
def test_codes_of_rows_taken_one_at_a_time(tokens: int, width: int, size: int, grid: str):
    """Also by fewer programs than rows; and zeros for the product that follows."""
    change = cases.transform_of("rotate permute rotate", width, width, size, smooth=False)
    _, stages, _, *target = cases.transform_arguments(change, cases.grid_of(grid, width))
    x = cases.rows_of(tokens, width, torch.float16)
    wanted = by_torch.quantize_rows(x, None, stages, width, *target)
    for cut in (RowCut(1, 8, 1, held=True), RowCut(1, 8, 4, held=True)):
        to, work = quantizing(x, width, *target), torch.full((1100,), 7, dtype=torch.int32)
        assert held.suits(x, None, stages[0], stages[2], to)
        transform.launch(x, None, stages, to, work, True, cut)
        assert (work == 0).all()
        cases.assert_same_codes((to.rows, to.scale, to.zero, to.total), wanted)


@pytest.mark.parametrize(("tokens", "width", "size"), [(1, 384, 128), (17, 256, 64), (4, 96, 32), (3, 40, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_transforms(tokens: int, width: int, size: int, dtype: torch.dtype):
    change = cases.transform_of("rotate permute rotate", width - 3, width, size, smooth=False)
    x = cases.rows_of(tokens, width - 3, dtype)
    arguments = (x, change.smooth, change.stages, width, torch.float32)
    torch.testing.assert_close(
        by_triton.transform_rows(*arguments), by_torch.transform_rows(*arguments), rtol=1e-5, atol=1e-4
    )


def test_transforms_of_batches_are_those_of_rows():
    change = cases.transform_of("rotate", 64, 64, 64, smooth=False)
    x = cases.rows_of(6, 64, torch.float32)
    arguments = (change.smooth, change.stages, 64, torch.float32)
    found = by_triton.transform_rows(x.reshape(2, 3, 64), *arguments)
    assert torch.equal(found, by_triton.transform_rows(x, *arguments))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("tokens", [0, 1, 17])
def test_layers(tokens: int, tile: Tile):
    change = cases.transform_of("rotate permute rotate", 250, 256, 128, smooth=True)
    _, weight = cases.weight_of(70, 256, 4)
    arguments = (
        cases.rows_of(tokens, 250, torch.float32),
        *cases.layer_arguments(change, Activation(), weight, torch.randn(70)),
    )  # fmt: skip
    found, wanted = by_triton.linear(*arguments, tile), by_torch.linear(*arguments)
    assert found.shape == wanted.shape
    torch.testing.assert_close(
        found, wanted, rtol=1e-2, atol=1e-2 * float(wanted.abs().max() if tokens else 1)
    )


def test_activations_that_are_not_quantized():
    change = cases.transform_of("rotate", 256, 256, 128, smooth=False)
    _, weight = cases.weight_of(70, 256, 4)
    arguments = (
        cases.rows_of(5, 256, torch.float16), *cases.layer_arguments(change, Activation(bits=16), weight),
    )  # fmt: skip
    found, wanted = by_triton.linear(*arguments, Tile(16, 64)), by_torch.linear(*arguments)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3 * float(wanted.abs().max()))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("sizes", "bias"), [((40, 70), True), ((70, 20, 40), False)], ids=str)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_layers_with_one_input(sizes: tuple[int, ...], tile: Tile, bias: bool):
    """The same bits as one after the other."""
    change = cases.transform_of("rotate permute rotate", 250, 256, 128, smooth=True)
    x = cases.rows_of(17, 250, torch.float32)
    weights = [cases.weight_of(n, 256, 4)[1] for n in sizes]
    added = [torch.randn(n) if bias else None for n in sizes]
    arguments = cases.group_arguments([change], [Activation()], weights, added)
    found = by_triton.linears(x, *arguments, tile)
    for y, weight, one in zip(found, weights, added, strict=True):
        alone = by_triton.linear(x, *cases.layer_arguments(change, Activation(), weight, one), tile)
        assert torch.equal(y, alone)
    expected = by_torch.linears(x, *arguments)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * float(expected[0].abs().max()))


@pytest.mark.parametrize("grid", ["symmetric", "asymmetric", "static", "channels"])
def test_rows_that_are_rounded_and_stay_numbers(grid: str):
    change = cases.transform_of("permute rotate each", 60, 64, 8, smooth=False)
    arguments = cases.transform_arguments(change, cases.grid_of(grid, 64))
    x = cases.rows_of(5, 60, torch.float32)
    found, wanted = by_triton.rounded_rows(x, *arguments), by_torch.rounded_rows(x, *arguments)
    apart = (found - wanted).abs() > 1e-5 * wanted.abs().max()
    assert found.dtype == x.dtype and apart.float().mean() < 0.01, "ties at most"


APART = [((48, 32, 16), 256, 16), ((40, 70), 100, 16), ((64, 130), 128, 32), ((64, 30, 10), 192, 64)]


APART_TILES = [None, Tile(16, 64, split=2), Tile(8, 32, tma=True)]
APART_KINDS = [(True, True, 17), (True, False, 1), (False, True, 5)]
APART_CASES = [
    (*APART[i], APART_TILES[j], *APART_KINDS[(i + j) % 3]) for i in range(len(APART)) for j in range(3)
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("sizes", "k", "block", "tile", "rotated", "bias", "tokens"), APART_CASES, ids=str)
def test_layers_with_one_input_and_transforms_of_their_own(sizes, k, block, tile, rotated, bias, tokens):
    """The numbers of one after the other, and those of torch."""
    arguments = cases.apart_of(sizes, k, block, torch.float32, rotated=rotated, bias=bias)
    x = cases.rows_of(tokens, k, torch.float32)
    found, expected = by_triton.linears(x, *arguments, tile), by_torch.linears(x, *arguments)
    for y, wanted, features in zip(found, expected, sizes, strict=True):
        assert y.shape == (tokens, features)
        off = (y - wanted).abs() > 1e-5 * (1 + wanted.abs().max())
        assert off.any(1).sum() <= 1, "a row may have a tie"
    if tile is not None:
        members = by_torch.members(*arguments[8:])
        alone = [
            by_triton.linear(x, None, stages, *arguments[2:6], scale, None, *weight, tile)
            for (stages, scale), weight in zip(
                by_torch.turns_of(arguments[1], arguments[6], len(sizes)), members, strict=True
            )
        ]
        assert all(torch.equal(*pair) for pair in zip(found, alone, strict=True))


@pytest.mark.parametrize(("sizes", "k", "block"), APART, ids=str)
def test_rows_that_are_rounded_for_several_layers(sizes, k, block):
    arguments = cases.apart_of(sizes, k, block, torch.float32, rotated=False, bias=False)
    call = (cases.rows_of(19, k, torch.float16), arguments[1], arguments[2], 8, True, arguments[6])
    found, wanted = by_triton.rounded_apart(*call), by_torch.rounded_apart(*call)
    assert found.shape == (len(sizes), 19, arguments[2])
    apart = (found - wanted).abs()
    assert apart.max() <= 1 and (apart > 0).float().mean() < 0.01
    own = (arguments[1][:2], arguments[2], 8, True, 1.0, arguments[6][0], None)
    alone = by_triton.rounded_rows(call[0], None, *own)
    assert torch.equal(found[0], alone)
