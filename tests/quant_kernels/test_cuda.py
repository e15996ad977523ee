"""The compiled kernels on a GPU: against torch, under graphs, and the same bits every time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.w4a8_operators import Activation, Transform, linear, quantize_rows
from tests.quant_kernels import cases

from rote.quant import DuQuantConfig, warmup
from rote.quant.converting.convert import build_layer
from rote.quant.kernels import by_torch, by_triton, transform
from rote.quant.kernels import launching as jit
from rote.quant.kernels.table import RowCut, Tile
from rote.quant.kernels.target import quantizing

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]

# Every combination of these is compiled, which takes a second or so: there are as few as say something.
TILES = [
    Tile(8, 64, split=4), Tile(16, 64, stages=6), Tile(16, 64, split=4, pdl=True),
    Tile(16, 128, unroll=2, stages=3), Tile(64, 128, split=2), Tile(64, 128, pdl=True),
    Tile(16, 64, split=2, pdl=True, ahead=0), Tile(16, 64, pdl=True, ahead=4),
    Tile(128, 128, warps=8), Tile(256, 128, stages=3, warps=8), Tile(128, 256, stages=3, warps=8),
    Tile(64, 128, tma=True), Tile(128, 128, 2, stages=3, warps=8, tma=True), Tile(16, 64, 4, 4, 2),
    Tile(16, 64, 2, 4, pdl=True, tma=True), Tile(32, 64, tail=32), Tile(128, 128, tma=True, tail=64),
]  # fmt: skip
SIZES = [(1, 2048, 16384), (51, 16384, 2048), (3, 200, 70), (17, 384, 130), (800, 2048, 256)]
TAILS = [Tile(128, 128, tma=True, tail=32), Tile(64, 128, 2, stages=3, warps=8, tail=32)]
SUMS = [
    *((4, None, size) for size in SIZES), *((4, tile, SIZES[1]) for tile in TILES),
    *((4, tile, SIZES[2]) for tile in TILES[:1]), *((4, tile, SIZES[3]) for tile in (*TILES[3:5], TILES[-3])),
    *((4, tile, SIZES[4]) for tile in TAILS),
    *((4, Tile(8, 64, split=parts), SIZES[1]) for parts in (31, 32, 33)),
    *((8, tile, SIZES[3]) for tile in (None, TILES[0], TILES[6], TILES[-3])),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "tile", "size"), SUMS, ids=str)
def test_sums(bits: int, tile: Tile | None, size: tuple[int, int, int]):
    m, k, n = size
    codes, weight = cases.weight_of(n, k, bits, "cuda")
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8, device="cuda")
    x[0] = -128
    total = x.sum(1, dtype=torch.int32)
    rows = (x, torch.ones(m, device="cuda"), torch.empty(0, dtype=torch.int32, device="cuda"), total)
    found = by_triton.product(*rows, *cases.weight_arguments(weight, None), torch.int32, tile)
    assert torch.equal(found, (x.double() @ codes.double().T).to(torch.int32))


SHAPES = [
    (1, 2048, 128, torch.bfloat16), (51, 1024, 64, torch.float16), (3, 384, 16, torch.float32),
    (300, 96, 8, torch.bfloat16),
]  # fmt: skip
CODES = [
    *((SHAPES[0], "rotate permute rotate", grid) for grid in cases.GRIDS),
    *((SHAPES[0], chain, "asymmetric") for chain in cases.CHAINS if chain != "rotate permute rotate"),
    *((shape, "rotate permute rotate", "symmetric") for shape in SHAPES[1:]),
    (SHAPES[2], "permute rotate each", "channels"),
]


@pytest.mark.parametrize(("shape", "chain", "grid"), CODES, ids=str)
def test_codes(shape: tuple[int, int, int, torch.dtype], chain: str, grid: str):
    tokens, width, size, dtype = shape
    change = cases.transform_of(chain, width - 5, width, size, smooth=grid == "asymmetric")
    moved = cases.transform_arguments(*cases.to("cuda", change, cases.grid_of(grid, width)))
    x = cases.rows_of(tokens, width - 5, dtype).cuda()
    cases.assert_same_codes(by_triton.quantize_rows(x, *moved), by_torch.quantize_rows(x, *moved))


WIDE = [
    *((torch.bfloat16, *size) for size in ((1, 16384), (51, 16384), (800, 2048), (5, 11008), (2, 32768))),
    (torch.bfloat16, 2, 40000), (torch.float32, 51, 16384),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "tokens", "width"), WIDE, ids=str)
def test_codes_of_wide_rows(dtype: torch.dtype, tokens: int, width: int):
    size = 64 if width % 128 else 128
    change = cases.transform_of("rotate permute rotate", width, width, size, smooth=False, dtype=dtype)
    moved = cases.transform_arguments(*cases.to("cuda", change, Activation()))
    x = cases.rows_of(tokens, width, torch.bfloat16).cuda()
    cases.assert_same_codes(by_triton.quantize_rows(x, *moved), by_torch.quantize_rows(x, *moved))


GRIDS_CUT = ("symmetric", "static", "channels", "four bits")
CUTS = [
    *((RowCut(16), tokens, 16384, "asymmetric", torch.bfloat16) for tokens in (1, 16, 51)),
    *((RowCut(16), 5, 11008, grid, torch.bfloat16) for grid in GRIDS_CUT),
    (RowCut(32, 8), 51, 16384, "asymmetric", torch.float32),
    (RowCut(1, 4, 3), 800, 2048, "asymmetric", torch.bfloat16),
    (RowCut(2, 8, 1), 800, 2048, "symmetric", torch.bfloat16),
    (RowCut(1, 8, 1), 300, 16384, "static", torch.bfloat16),
    *((RowCut(1, 8, 1, held=True), tokens, 16384, "asymmetric", torch.bfloat16) for tokens in (1, 51, 800)),
    (RowCut(1, 8, 1, held=True), 300, 16384, "symmetric", torch.bfloat16),
    (RowCut(1, 8, 1, held=True), 300, 8192, "asymmetric", torch.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize(("cut", "tokens", "width", "grid", "dtype"), CUTS, ids=str)
def test_codes_however_rows_are_cut_up(cut: RowCut, tokens: int, width: int, grid: str, dtype: torch.dtype):
    """The same codes again and again, and zeros for the product that follows."""
    size = 64 if width % 128 else 128
    change = cases.transform_of("rotate permute rotate", width, width, size, smooth=False, dtype=dtype)
    moved = cases.transform_arguments(*cases.to("cuda", change, cases.grid_of(grid, width)))
    smooth, stages, _, *target = moved
    x = cases.rows_of(tokens, width, torch.bfloat16).cuda()
    wanted = by_torch.quantize_rows(x, *moved)
    earlier = None
    for _ in range(5):
        to = quantizing(x, width, *target)
        work = torch.full((5000,), 7, dtype=torch.int32, device="cuda")
        transform.launch(x, smooth, stages, to, work, False, cut)
        assert (work == 0).all()
        cases.assert_same_codes((to.rows, to.scale, to.zero, to.total), wanted)
        assert earlier is None or torch.equal(earlier, to.rows)
        earlier = to.rows


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_transforms_are_within_a_step_of_bfloat16(dtype: torch.dtype):
    change, _ = cases.to(
        "cuda",
        cases.transform_of("rotate permute rotate", 2048, 2048, 128, smooth=False, dtype=dtype),
        Activation(),
    )
    x = cases.rows_of(51, 2048, torch.bfloat16).cuda()
    call = (x, change.smooth, change.stages, 2048, torch.float32)
    found, wanted = by_triton.transform_rows(*call), by_torch.transform_rows(*call)
    torch.testing.assert_close(found, wanted, rtol=2**-8, atol=float(wanted.abs().max()) * 2**-13)


LAYERS = [
    *((torch.bfloat16, tile, (51, 4096, 1024)) for tile in (None, *TILES)),
    *((dtype, None, (51, 4096, 1024)) for dtype in (torch.float16, torch.float32)),
    *((torch.bfloat16, None, size) for size in ((1, 2048, 384), (200, 256, 130), (0, 128, 64))),
]


@pytest.mark.parametrize(("dtype", "tile", "size"), LAYERS, ids=str)
def test_layers(dtype: torch.dtype, tile: Tile | None, size: tuple[int, int, int]):
    m, k, n = size
    change, grid = cases.to(
        "cuda", cases.transform_of("rotate permute rotate", k, k, 128, smooth=False), Activation()
    )
    _, weight = cases.weight_of(n, k, 4, "cuda")
    x, bias = cases.rows_of(m, k, dtype).cuda(), torch.randn(n, device="cuda")
    found = by_triton.linear(x, *cases.layer_arguments(change, grid, weight, bias), tile)
    rows = by_triton.quantize_rows(x, *cases.transform_arguments(change, grid))
    wanted = by_torch.product(*rows, *cases.weight_arguments(weight, bias), dtype)
    torch.testing.assert_close(found, wanted, rtol=2**-7 if dtype == torch.bfloat16 else 1e-3, atol=1e-4)


@pytest.mark.parametrize("m", [1, 51, 200])
def test_activations_that_are_not_quantized(m: int):
    change, grid = cases.to(
        "cuda", cases.transform_of("rotate", 2048, 2048, 128, smooth=False), Activation(bits=16)
    )
    _, weight = cases.weight_of(256, 2048, 4, "cuda")
    x = cases.rows_of(m, 2048, torch.bfloat16).cuda()
    found, wanted = (
        run(x, *cases.layer_arguments(change, grid, weight)) for run in (by_triton.linear, by_torch.linear)
    )
    torch.testing.assert_close(
        found.float(), wanted.float(), rtol=0.02, atol=0.02 * float(wanted.abs().max())
    )


POLICY = [
    (51, (2048, 256, 256), 1024, 16, None), (51, (4096, 4096), 1024, 16, None), (51, (1024,), 4096, 16, None),
    (1, (100, 48), 200, 16, None), (17, (64, 130, 40), 320, 32, None), (300, (128, 64), 256, 64, None),
    *((51, (192, 100), 1024, 16, tile) for tile in (Tile(64, 16, unroll=2, split=2), Tile(32, 64, pdl=True))),
]  # fmt: skip


def moved(arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments of an operator on the GPU."""
    return [
        [item.cuda() if isinstance(item, torch.Tensor) else item for item in value]
        if isinstance(value, list)
        else value
        for value in arguments
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("m", "sizes", "k", "block", "tile"), POLICY, ids=str)
def test_layers_with_transforms_of_their_own(dtype, kept, m: int, sizes: tuple[int, ...], k, block, tile):
    """``kept`` is the type of the matrices."""
    arguments = moved(cases.apart_of(sizes, k, block, kept, rotated=True, bias=True))
    x = cases.rows_of(m, k, dtype).cuda()
    found, wanted = by_triton.linears(x, *arguments, tile), by_torch.linears(x, *arguments)
    grain = 2**-7 if dtype == torch.bfloat16 else 1e-5
    for y, expected in zip(found, wanted, strict=True):
        off = (y - expected).abs() > grain * (1 + expected.abs().max())
        assert off.any(1).float().mean() < 0.1, "rows may have a tie"
    for _ in range(3):
        assert all(map(torch.equal, found, by_triton.linears(x, *arguments, tile)))
    call = (x, arguments[1], arguments[2], 8, True, arguments[6])
    apart = (by_triton.rounded_apart(*call) - by_torch.rounded_apart(*call)).abs()
    assert apart.max() <= 1 and (apart > 0).float().mean() < 1e-3


def from_another_stream(x: torch.Tensor) -> torch.Tensor:
    """Numbers from another stream, while this one does something else."""
    here, other = torch.cuda.current_stream(), torch.cuda.Stream()
    other.wait_stream(here)
    with torch.cuda.stream(other):
        y = x.flip(0)
    x.sin()
    here.wait_stream(other)
    y.record_stream(here)
    return y


BEFORE = {
    "nothing": lambda x: x,
    "kernel": lambda x: x.sin(),
    "copy": lambda x: torch.empty_like(x).copy_(x),
    "fill": lambda x: torch.zeros_like(x),
    "streams": from_another_stream,
}
"""What a launch that may start early finds before itself."""


@pytest.mark.parametrize("before", BEFORE)
def test_launches_that_start_early_wait_for_what_is_before(before: str):
    arguments = moved(cases.apart_of((2048, 256), 1024, 16, torch.bfloat16, rotated=True, bias=False))
    x = cases.rows_of(4099, 1024, torch.bfloat16).cuda()
    tile = Tile(32, 64, pdl=True)

    def run() -> list[torch.Tensor]:
        return by_triton.linears(BEFORE[before](x), *arguments, tile)

    ready = BEFORE[before](x)
    torch.cuda.synchronize()
    wanted = by_triton.linears(ready, *arguments, tile)
    assert all(map(torch.equal, run(), wanted))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for _ in range(3):
        for y in found:
            y.zero_()
        graph.replay()
        assert all(map(torch.equal, found, wanted))
    del graph, found


def test_weights_that_were_written_just_before_are_read():
    arguments = moved(cases.apart_of((2048, 256), 1024, 16, torch.bfloat16, rotated=True, bias=False))
    others = moved(cases.apart_of((2048, 256), 1024, 16, torch.bfloat16, rotated=True, bias=False))
    x = cases.rows_of(51, 1024, torch.bfloat16).cuda()
    wanted = by_triton.linears(x, *others, Tile(32, 64, pdl=True))
    written = (1, 6, 8, 9, 12)  # stages, scales; codes, scales and row rotations of weights
    kept = {place: [item.clone() for item in arguments[place]] for place in written}
    for _ in range(20):
        for place in written:
            for item, before, new in zip(arguments[place], kept[place], others[place], strict=True):
                item.copy_(before)
                item.copy_(new)
        found = by_triton.linears(x, *arguments, Tile(32, 64, pdl=True))
        assert all(map(torch.equal, found, wanted))


def rotated_layer(k: int) -> tuple[Any, ...]:
    """A layer whose transform is two rotations and a permutation: that, the grid and the weight."""
    change = cases.transform_of("rotate permute rotate", k, k, 128, smooth=False, dtype=torch.bfloat16)
    _, weight = cases.weight_of(1024, k, 4, "cuda")
    return *cases.to("cuda", change, Activation()), weight


@pytest.mark.parametrize(("m", "k"), [(1, 2048), (51, 2048), (800, 2048), (1, 16384), (51, 16384)])
@pytest.mark.parametrize("before", BEFORE)
def test_transforms_wait_for_what_is_before(before: str, m: int, k: int):
    layer, other = rotated_layer(k), rotated_layer(k)
    x = cases.rows_of(m, k, torch.bfloat16).cuda()

    def run() -> list[torch.Tensor]:
        y = linear(BEFORE[before](x), *layer)  # and two right behind each other
        return [y, linear(x, *other), linear(x, *layer)]

    ready = BEFORE[before](x)
    wanted: list[torch.Tensor] = []
    for rows, used in ((ready, layer), (x, other), (x, layer)):
        torch.cuda.synchronize()
        wanted.append(linear(rows, *used))
    assert all(map(torch.equal, run(), wanted))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for _ in range(3):
        for y in found:
            y.zero_()
        graph.replay()
        assert all(map(torch.equal, found, wanted))
    del graph, found


@pytest.mark.parametrize(("m", "k"), [(1, 2048), (51, 2048), (1, 16384), (51, 16384)])
def test_transforms_that_were_written_just_before_are_read(m: int, k: int):
    change, grid, weight = rotated_layer(k)
    other, _, _ = rotated_layer(k)
    x = cases.rows_of(m, k, torch.bfloat16).cuda()
    wanted = linear(x, other, grid, weight)
    kept = [stage.clone() for stage in change.stages]
    for _ in range(20):
        for stage, before, new in zip(change.stages, kept, other.stages, strict=True):
            stage.copy_(before)
            stage.copy_(new)
        assert torch.equal(linear(x, change, grid, weight), wanted)


@pytest.mark.parametrize(("m", "k"), [(1, 16384), (51, 16384), (800, 2048)])
def test_graphs_follow_their_inputs(m: int, k: int):
    change, grid = cases.to(
        "cuda", cases.transform_of("rotate permute rotate", k, k, 128, smooth=False), Activation()
    )
    _, weight = cases.weight_of(512, k, 4, "cuda")
    x = cases.rows_of(m, k, torch.bfloat16).cuda()
    linear(x, change, grid, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = linear(x, change, grid, weight)
        z = linear(x * 2, change, grid, weight)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, linear(x, change, grid, weight))
        assert torch.equal(z, linear(x * 2, change, grid, weight))
    del graph, y, z


@pytest.mark.parametrize("tile", [None, *TILES], ids=str)
def test_ten_runs_are_the_same(tile: Tile | None):
    change, grid = cases.to(
        "cuda", cases.transform_of("rotate permute rotate", 4096, 4096, 128, smooth=False), Activation()
    )
    _, weight = cases.weight_of(1024, 4096, 4, "cuda")
    x = cases.rows_of(51, 4096, torch.bfloat16).cuda()
    bias = torch.randn(1024, device="cuda")
    arguments = cases.layer_arguments(change, grid, weight, bias)
    results = [by_triton.linear(x, *arguments, tile) for _ in range(10)]
    assert all(torch.equal(results[0], result) for result in results)


def compiled() -> int:
    """How many kernels Triton holds."""
    spread = jit.module("spread")
    kernels = [
        jit.module("gemm").product, jit.module("gemm").products, jit.module("transform").shared,
        jit.module("turns").turn, spread.first, spread.second, spread.codes,
    ]  # fmt: skip
    return sum(len(caches[0]) for kernel in kernels for caches in kernel.device_caches.values())


@pytest.mark.parametrize("path", ["kernel", "fused", "policy"])
def test_nothing_is_compiled_after_the_warmup(path: str):
    config = DuQuantConfig(rotation="hadamard", permutation="zigzag", smooth_alpha=None)
    if path != "kernel":
        config = DuQuantConfig.vla(path="fused" if path == "fused" else "kernel")
    layer = build_layer(torch.nn.Linear(512, 256).bfloat16(), config, torch.randn(8, 512)).cuda()
    warmup(torch.nn.Sequential(layer), [1, 16, 800])
    before = compiled()
    assert before > 0
    with torch.no_grad():
        for m in (1, 9, 16, 799, 800):
            layer(torch.randn(m, 512, dtype=torch.bfloat16, device="cuda"))
    assert compiled() == before


def test_rows_that_start_anywhere():
    change, grid = cases.to("cuda", cases.transform_of("rotate", 256, 256, 128, smooth=False), Activation())
    storage = torch.randn(8 * 256 + 1, dtype=torch.bfloat16, device="cuda")
    x = storage[1:].view(8, 256)
    assert x.data_ptr() % 16 != 0
    found, wanted = quantize_rows(x, change, grid), quantize_rows(x.clone(), change, grid)
    assert torch.equal(found[0], wanted[0])
    half, thinned = cases.to("cuda", Transform(None, (), 128), grid)[0], x[:, ::2]
    assert torch.equal(
        quantize_rows(thinned, half, grid)[0], quantize_rows(thinned.contiguous(), half, grid)[0]
    )


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # of the warm-up of reduce-overhead
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(mode: str):
    change, grid = cases.to("cuda", cases.transform_of("rotate", 256, 256, 128, smooth=False), Activation())
    _, weight = cases.weight_of(128, 256, 4, "cuda")
    faster = torch.compile(lambda x: linear(x * 2, change, grid, weight) + 1, fullgraph=True, mode=mode)
    for _ in range(3):
        x = torch.randn(4, 256, dtype=torch.bfloat16, device="cuda")
        torch.testing.assert_close(faster(x), linear(x * 2, change, grid, weight) + 1)
