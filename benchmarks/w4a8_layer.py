"""A quantized layer of one shape with many copies of its weight, and how its calls are timed.

Every number is of CUDA-graph replays, since at these sizes eager calls measure Python. A cold number comes
from a graph whose calls go round over so many copies of the weight that none is left in L2 when its turn
comes again, as in a model with other layers in between; a warm one from a graph that calls one copy.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.w4a8_operators import Activation, PackedWeight, Transform, pack_weight, quantize_rows
from rote.quant.kernels import by_torch, by_triton, transform
from rote.quant.kernels.table import RowCut as Cut
from rote.quant.kernels.table import Tile
from rote.quant.kernels.target import quantizing
from rote.quant.numerics import arithmetic
from rote.quant.numerics.arithmetic import Quantized

WIDE = [(16384, 2048), (2048, 16384)]
EXPERT = [(8192, 1024), (2560, 1024), (1024, 2048), (1024, 4096)]
"""Of PI0's action expert: gate and up, q and k and v, o, down."""

COLD_BYTES = 256 << 20
MOST_COPIES = 256
Call = Callable[[int], object]


@dataclass
class Layer:
    """A layer of one shape, with many copies of its weight's codes."""

    n: int
    k: int
    change: Transform
    exact: Transform
    grid: Activation
    weight: PackedWeight
    dense: Tensor
    codes: list[Tensor]
    turn: Tensor | None = None

    @classmethod
    def policy(cls, n: int, k: int) -> Layer:
        """One under the policy variant: small blocks with a matrix each, static scales, rotated rows."""
        layer = cls.random(n, k)
        generator = torch.Generator("cuda").manual_seed(1)
        shape = {"device": "cuda", "generator": generator}
        matrices, layer.turn = (
            torch.linalg.qr(torch.randn(size // 16, 16, 16, **shape))[0].bfloat16().contiguous()
            for size in (k, n)
        )
        order = torch.randperm(k, **shape).to(torch.int32)
        layer.change = layer.exact = Transform(None, (order, matrices), k)
        layer.grid = Activation(symmetric=True, scale=torch.rand(k, **shape) * 0.02 + 0.01)
        layer.weight = replace(layer.weight, zero=None)
        return layer

    @classmethod
    def random(cls, n: int, k: int, bits: int = 4) -> Layer:
        generator = torch.Generator("cuda").manual_seed(0)
        limit = 1 << (bits - 1)
        shape = {"device": "cuda", "generator": generator}
        codes = torch.randint(-limit, limit, (n, k), dtype=torch.int8, **shape)
        scale = torch.rand(n, **shape) * 1e-3 + 1e-4
        zero = torch.randint(-2, 3, (n,), dtype=torch.int8, **shape)
        weight = pack_weight(codes, scale, zero, bits)
        rotations = [torch.linalg.qr(torch.randn(1, 128, 128, **shape))[0].contiguous() for _ in range(2)]
        order = torch.randperm(k, **shape).to(torch.int32)
        exact = Transform(None, (rotations[0], order, rotations[1]), k)
        rounded = Transform(None, (rotations[0].bfloat16(), order, rotations[1].bfloat16()), k)
        dense = ((codes.float() - zero[:, None]) * scale[:, None]).bfloat16()
        count = copies_of(weight.codes)
        packed = [weight.codes.clone() for _ in range(count)]
        return cls(n, k, rounded, exact, Activation(), weight, dense, packed)

    def rows(self, m: int) -> Tensor:
        return torch.randn(m, self.k, device="cuda", dtype=torch.bfloat16)

    def call(self, x: Tensor, change: Transform, tile: Tile | None = None) -> Call:
        grid = self.grid
        both = (
            change.smooth, change.stages, change.width, grid.bits, grid.symmetric, grid.clip, grid.scale,
            grid.zero,
        )  # fmt: skip
        rest = (self.weight.scale, self.weight.zero, self.weight.sums, self.turn, None, self.n)
        return lambda i: by_triton.linear(x, *both, self.codes[i % len(self.codes)], *rest, tile)

    def product(self, x: Tensor) -> Call:
        """The product alone, of rows that are quantized already."""
        rows = quantize_rows(x, self.change, self.grid)
        rest = (self.weight.scale, self.weight.zero, self.weight.sums, None, torch.bfloat16)
        return lambda i: by_triton.product(*rows, self.codes[i % len(self.codes)], *rest)

    def transform(self, x: Tensor) -> Call:
        """The transform and quantization alone."""
        return lambda i: quantize_rows(x, self.change, self.grid)

    def cut(self, x: Tensor, cut: Cut | None) -> Call:
        """The same, cut up as wished."""
        grid = self.grid

        def call(_: int) -> Quantized:
            to = quantizing(x, self.k, grid.bits, grid.symmetric, grid.clip, None, None)
            transform.launch(x, None, self.change.stages, to, None, False, cut)
            return to.rows, to.scale, to.zero, to.total

        return call

    def wanted(self, x: Tensor) -> Tensor:
        """The output by torch, from the codes that the kernel makes."""
        rows = quantize_rows(x, self.change, self.grid)
        w = self.weight
        y = by_torch.product(*rows, w.codes, w.scale, w.zero, w.sums, None, torch.float32)
        return arithmetic.restore_rows(y, self.turn, None, self.n).bfloat16()


def copies_of(weight: Tensor) -> int:
    """Copies that together are several times the size of L2."""
    return max(2, min(MOST_COPIES, math.ceil(COLD_BYTES / (weight.numel() * weight.element_size()))))


def graph_of(call: Call, calls: int, indices: Callable[[int], int]) -> torch.cuda.CUDAGraph:
    """A graph of some calls; what they need is compiled and allocated before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(2):
            call(indices(i))
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(indices(i))
    return graph


def measure(ways: Mapping[str, tuple[Call, int]], rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds per call of each way, cold and warm; the ways come with their number of weight copies."""
    graphs: dict[tuple[str, str], tuple[torch.cuda.CUDAGraph, int]] = {}
    for way, (call, count) in ways.items():
        calls = max(count, 16)
        graphs[way, "cold_us"] = graph_of(call, calls, lambda i: i), calls
        if rounds > 5:
            graphs[way, "warm_us"] = graph_of(call, 32, lambda i: 0), 32
    times: dict[tuple[str, str], list[float]] = {key: [] for key in graphs}
    for _ in range(rounds):
        for key, (graph, calls) in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[key].append(start.elapsed_time(end) * 1e3 / calls)
    found: dict[str, dict[str, float]] = {way: {} for way in ways}
    for (way, kind), values in times.items():
        found[way][kind] = statistics.median(values)
    return found
