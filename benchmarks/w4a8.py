"""Quantized linear layers against bf16: time of one layer, its transform included, by rows and shape.

    python -m benchmarks.w4a8 --tune --out table.json      tile sizes for this GPU, for the package's tables
    python -m benchmarks.w4a8 --tune cuts --out table.json      those of transforms alone; the rest is kept
    python -m benchmarks.w4a8 --out results.json           the comparison
    python -m benchmarks.w4a8 --ways W8A8 --ways _int_mm --out results.json      some ways of it, beside bf16

Every number is of CUDA-graph replays, since at these sizes eager calls measure Python. A cold number comes
from a graph whose calls go round over so many copies of the weight that none is left in L2 when its turn
comes again, as in a model with other layers in between; a warm one from a graph that calls one copy. Weights
and inputs are random. What a way computes is checked before it is timed. Both commands stop by themselves
after ``--seconds`` and keep what they have.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import w4a8_peers
from benchmarks.common import device_name, first_line, machine_state, versions
from rote.quant import arithmetic
from rote.quant.arithmetic import Quantized
from rote.quant.kernels import Activation, PackedWeight, Transform, ops, pack_weight, transform
from rote.quant.kernels.table import ADDITIONS, Cut, Tile, bucket, rule, slug

WIDE = [(16384, 2048), (2048, 16384)]
EXPERT = [(8192, 1024), (2560, 1024), (1024, 2048), (1024, 4096)]
"""Of PI0's action expert: gate and up, q and k and v, o, down."""

ROWS = (1, 16, 51, 800)
BOTH = ("w4a8", "w4a8 static")
"""Kinds of products that are tuned: behind a transform with scales of the tokens, and with static ones."""

BANDWIDTH = 4.3e12
"""Bytes per second that copies reach on an H200."""

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
        return lambda i: ops.linear_triton(x, *both, self.codes[i % len(self.codes)], *rest, tile)

    def product(self, x: Tensor) -> Call:
        """The product alone, of rows that are quantized already."""
        rows = ops.quantize_rows(x, self.change, self.grid)
        rest = (self.weight.scale, self.weight.zero, self.weight.sums, None, torch.bfloat16)
        return lambda i: ops.product_triton(*rows, self.codes[i % len(self.codes)], *rest)

    def transform(self, x: Tensor) -> Call:
        """The transform and quantization alone."""
        return lambda i: ops.quantize_rows(x, self.change, self.grid)

    def cut(self, x: Tensor, cut: Cut | None) -> Call:
        """The same, cut up as wished."""
        grid = self.grid

        def call(_: int) -> Quantized:
            to = transform.quantizing(x, self.k, grid.bits, grid.symmetric, grid.clip, None, None)
            transform.launch(x, None, self.change.stages, to, None, False, cut)
            return to.rows, to.scale, to.zero, to.total

        return call

    def wanted(self, x: Tensor) -> Tensor:
        """The output by torch, from the codes that the kernel makes."""
        rows = ops.quantize_rows(x, self.change, self.grid)
        w = self.weight
        y = ops.product_torch(*rows, w.codes, w.scale, w.zero, w.sums, None, torch.float32)
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


# --- Tuning ------------------------------------------------------------------------------------------------


def candidates(kind: str, m: int, n: int, k: int, units: int) -> Iterator[Tile]:
    """Tiles worth trying; without early launch, which is tried on the best of them."""
    yield rule(units, kind, bucket(m), n, k)
    steps = -(-k // 128)
    if kind.endswith("static") and m <= 64:  # all about latency: few steps, with everything in flight
        rows = {1: (8, 16), 16: (16,)}.get(bucket(m), (32, 64))
        for bm, bn, unroll, split in itertools.product(rows, (16, 32, 64, 128), (1, 2, 4), (1, 2, 4, 8)):
            tile = Tile(bm, bn, unroll, split, min(4, max(1, steps // (unroll * split))), 4)
            programs = tile.tiles(m, n) * split
            if steps >= unroll * split and 0.45 * units <= programs <= 2.5 * units:
                yield tile
        return
    if m > 64:
        for bm, bn, stages, warps in (
            (64, 128, 4, 4), (64, 128, 4, 8), (64, 64, 4, 4), (128, 64, 4, 4), (128, 128, 3, 8),
            (128, 128, 4, 8), (128, 256, 3, 8), (256, 128, 3, 8), (64, 256, 4, 8), (128, 128, 3, 4),
            (256, 64, 4, 4), (128, 64, 4, 8), (256, 128, 4, 8),
        ):  # fmt: skip
            for split, tma in itertools.product((1, 2, 4), (True, False)):
                tile = Tile(bm, bn, 1, split, stages, warps, tma=tma)
                if split == 1 or tile.tiles(m, n) * split <= 2 * units:
                    yield tile
        return
    rows = {1: (8, 16), 16: (16,)}.get(bucket(m), (32, 64))
    shapes = [(64, 4, 1, 4), (64, 6, 1, 4), (64, 4, 2, 4), (128, 4, 1, 4), (128, 6, 1, 4), (128, 3, 2, 4)]
    shapes += [(64, 3, 4, 4)]
    shapes += [(64, 8, 1, 4)] if m <= 8 else [(128, 4, 1, 8), (256, 4, 1, 8)]  # wide tiles read x less often
    for bm in rows:
        for bn, stages, unroll, warps in shapes:
            for split in (1, 2, 4, 8, 16):
                tile = Tile(bm, bn, unroll, split, stages, warps)
                programs = tile.tiles(m, n) * split
                enough = programs >= min(0.45 * units, steps / unroll * tile.tiles(m, n) / 4)
                enough &= split == 1 or split * m * n <= 4 * ADDITIONS
                if enough and programs <= 4.5 * units and steps // unroll >= 2 * split:
                    yield tile


def tune(out: Path, deadline: float, what: str) -> dict[str, Any]:
    """Find cuts and tiles for every shape and some numbers of rows; each is written at once."""
    device = torch.cuda.get_device_properties(0)
    result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    result |= {"gpu": device.name, "slug": slug(device.name)}
    if what != "tiles":
        tune_cuts(out, deadline, result)
    return result if what == "cuts" else tune_tiles(out, deadline, result)


def cut_candidates(m: int, width: int, units: int) -> Iterator[Cut]:
    """Cuts of transforms worth trying."""
    if m <= 64:
        yield from (Cut(tokens, warps) for tokens in (16, 32) for warps in (4, 8))
    if width >= 4096:
        yield Cut(1, 8, 1, held=True)
    for tokens in (1, 2, 4, 8):
        for warps in (4, 8, 16):
            each = tokens * width // (32 * warps)  # numbers of a thread
            if tokens <= m and tokens * width >= 2048 and 8 <= each <= 64:
                yield from (Cut(tokens, warps, count) for count in ((1, 2, 3, 4) if m > units else (1,)))


def tune_cuts(out: Path, deadline: float, result: dict[str, Any]) -> None:
    """Find how transforms of some widths and numbers of rows are cut up, by their time alone."""
    cuts = result.setdefault("cuts", {})
    units = torch.cuda.get_device_properties(0).multi_processor_count
    for m in (800, 51, 16, 1, 256, 2048):
        for k in (16384, 2048, 1024, 4096, 8192):
            layer = Layer.random(128, k)
            x = layer.rows(m)
            wanted = ops.quantize_torch(x, None, layer.change.stages, k, 8, False, 1.0, None, None)[0]
            times: dict[Cut, float] = {}
            for cut in cut_candidates(m, k, units):
                if time.monotonic() > deadline:
                    print("out of time: the rest goes by the rule of thumb", flush=True)
                    return
                call = layer.cut(x, cut)
                try:
                    apart = (call(0)[0].int() - wanted.int()).abs()
                    assert apart.max() <= 1 and (apart > 0).float().mean() < 0.01, "wrong codes"
                    times[cut] = measure({"": (call, 1)}, 5)[""]["cold_us"]
                except Exception as error:  # out of shared memory, a compiler's failure, a wrong result
                    print(f"  {cut}: {first_line(error)}", flush=True)
            if times:
                best = min(times, key=times.__getitem__)
                guess = measure({"": (layer.cut(x, None), 1)}, 5)[""]["cold_us"]
                print(f"K={k} M={m}: {times[best]:.2f} us, {best}; so far {guess:.2f} us", flush=True)
                cuts.setdefault(f"{k}/128", {})[str(bucket(m))] = best.to_dict()
                write(out, result)


def tune_tiles(out: Path, deadline: float, result: dict[str, Any]) -> dict[str, Any]:
    """Find tiles of products."""
    device = torch.cuda.get_device_properties(0)
    tiles: dict[str, dict[str, Any]] = {}
    log: list[dict[str, Any]] = []
    result["tiles"] = tiles
    every = (
        (BOTH, EXPERT, (51,)), (BOTH[:1], WIDE, (51, 800, 16, 1)), (BOTH, EXPERT, (1, 16, 800)),
        (BOTH[:1], WIDE + EXPERT, (256, 2048)),
    )  # fmt: skip
    for kinds, shapes, sizes in every:
        for kind, (n, k) in itertools.product(kinds, shapes):
            layer = Layer.random(n, k) if kind == BOTH[0] else Layer.policy(n, k)
            for m in sizes:
                if time.monotonic() > deadline:
                    print("out of time: the rest goes by the rule of thumb", flush=True)
                    return result | {"log": log}
                found = tune_one(kind, layer, m, device.multi_processor_count, deadline, log)
                if found is not None:
                    sizes_of = tiles.setdefault(kind, {}).setdefault(f"{n}x{k}", {})
                    sizes_of[str(bucket(m))] = found.to_dict()
                    write(out, result)
            del layer
            torch.cuda.empty_cache()
    return result | {"log": log}


def tune_one(
    kind: str, layer: Layer, m: int, units: int, deadline: float, log: list[dict[str, Any]]
) -> Tile | None:
    """The fastest right tile for one shape and number of rows."""
    x = layer.rows(m)
    wanted = layer.wanted(x)
    times: dict[Tile, float] = {}

    def attempt(tile: Tile) -> None:
        if tile in times or time.monotonic() > deadline:
            return
        call = layer.call(x, layer.change, tile)
        try:
            torch.testing.assert_close(call(0), wanted, rtol=2**-6, atol=float(wanted.abs().max()) * 2**-9)
            times[tile] = measure({"": (call, len(layer.codes))}, 5)[""]["cold_us"]
        except Exception as error:  # out of shared memory, a compiler's failure, a wrong result
            print(f"  {tile}: {first_line(error)}", flush=True)

    for tile in candidates(kind, m, layer.n, layer.k, units):
        attempt(tile)
    for tile in sorted(times, key=times.__getitem__)[:4]:
        for ahead in (0,) if tile.tma else (0, 1, 2, 4, 8):
            attempt(replace(tile, pdl=True, ahead=ahead))
    if not times:
        return None
    ranked = sorted(times, key=times.__getitem__)
    log += [
        {"kind": kind, "n": layer.n, "k": layer.k, "m": m, "us": times[tile], **tile.to_dict()}
        for tile in ranked[:5]
    ]
    best, late = ranked[0], next((tile for tile in ranked if not tile.pdl), ranked[0])
    guess = times.get(rule(units, kind, bucket(m), layer.n, layer.k), math.nan)
    print(
        f"{kind} N={layer.n} K={layer.k} M={m}: {times[best]:.2f} us, {best}; "
        f"without pdl {times[late]:.2f} us; by the rule {guess:.2f} us; {len(times)} tried",
        flush=True,
    )
    return best


# --- Comparison --------------------------------------------------------------------------------------------


def compare(out: Path, deadline: float, peers: bool, wanted: list[str]) -> dict[str, Any]:
    """Time ways for all shapes and numbers of rows: all, or those that have a wanted word in their names."""
    result: dict[str, Any] = {"device": device_name(torch.device("cuda")), "versions": versions(), "rows": []}
    result["machine"] = machine_state()
    for n, k in WIDE + EXPERT:
        layer, eight = Layer.random(n, k), Layer.random(n, k, 8)
        dense = [layer.dense.clone() for _ in range(copies_of(layer.dense))]
        whole = [torch.randint(-127, 128, (n, k), dtype=torch.int8, device="cuda") for _ in eight.codes]
        for m in ROWS:
            if time.monotonic() > deadline:
                print("out of time", flush=True)
                return result
            x = layer.rows(m)
            ways: dict[str, tuple[Call, int]] = {
                "cuBLAS bf16": (
                    lambda i, x=x, w=dense: torch.nn.functional.linear(x, w[i % len(w)]),
                    len(dense),
                ),
                "rote W4A8": (layer.call(x, layer.change), len(layer.codes)),
                "rote W4A8, float32 rotations": (layer.call(x, layer.exact), len(layer.codes)),
                "rote W4A8, no transform": (layer.call(x, Transform(None, (), k)), len(layer.codes)),
                "rote W4A8, product alone": (layer.product(x), len(layer.codes)),
                "rote transform alone": (layer.transform(x), 1),
                "rote W8A8": (eight.call(x, eight.change), len(eight.codes)),
                "rote W8A8, product alone": (eight.product(x), len(eight.codes)),
                "torch._int_mm alone": (int_mm(x, whole), len(whole)),
            }
            if wanted:
                kept = ("cuBLAS bf16", *wanted)
                ways = {way: run for way, run in ways.items() if any(word in way for word in kept)}
            rows = time_ways(layer, m, ways)
            result["rows"] += rows
            show(rows)
            write(out, result)
        del layer, eight, dense, whole
        torch.cuda.empty_cache()
    if peers:
        compare_peers(out, deadline, result, wanted)
    return result


def compare_peers(out: Path, deadline: float, result: dict[str, Any], wanted: list[str]) -> None:
    """Add what peers take: at the end, because some of them tune themselves at their first calls."""
    for n, k in WIDE:
        layer = Layer.random(n, k)
        dense = [layer.dense.clone() for _ in range(copies_of(layer.dense))]
        for way, make in w4a8_peers.makers().items():
            if wanted and not any(word in way for word in wanted):
                continue
            try:
                made = w4a8_peers.copies(make(layer.dense), 8)
            except Exception as error:
                result["rows"].append({"n": n, "k": k, "m": None, "way": way, "failed": first_line(error)})
                print(f"{way}: {first_line(error)}", flush=True)
                continue
            for m in ROWS:
                if time.monotonic() > deadline:
                    print("out of time", flush=True)
                    return
                x = layer.rows(m)
                ways: dict[str, tuple[Call, int]] = {
                    "cuBLAS bf16": (
                        lambda i, x=x, dense=dense: torch.nn.functional.linear(x, dense[i % len(dense)]),
                        len(dense),
                    ),
                    way: (lambda i, x=x, made=made: made[i % len(made)](x), len(made)),
                }
                rows = time_ways(layer, m, ways)
                result["rows"] += [row for row in rows if row["way"] == way]
                show(rows)
                write(out, result)


def int_mm(x: Tensor, weights: list[Tensor]) -> Call:
    """The integer product of cuBLAS, which takes 17 rows at least and multiples of 8."""
    padded = torch.randint(
        -127, 128, (max(24, -(-x.shape[0] // 8) * 8), x.shape[1]), dtype=torch.int8, device="cuda"
    )
    return lambda i: torch._int_mm(padded, weights[i % len(weights)].t())


def time_ways(layer: Layer, m: int, ways: Mapping[str, tuple[Call, int]]) -> list[dict[str, Any]]:
    """Rows of the result; a way that fails has its reason instead of times."""
    runs: dict[str, tuple[Call, int]] = {}
    rows: list[dict[str, Any]] = []
    for way, (call, count) in ways.items():
        try:
            call(0)
            torch.cuda.synchronize()
            runs[way] = call, count
        except Exception as error:
            rows.append({"n": layer.n, "k": layer.k, "m": m, "way": way, "failed": first_line(error)})
    measured: dict[str, dict[str, float]] = {}
    try:
        measured = measure(runs, 9)
    except Exception:  # one of them cannot be captured: find out which
        for way, run in runs.items():
            try:
                measured |= measure({way: run}, 9)
            except Exception as error:
                rows.append({"n": layer.n, "k": layer.k, "m": m, "way": way, "failed": first_line(error)})
    base = measured.get("cuBLAS bf16", {})
    for way, times in measured.items():
        row = {"n": layer.n, "k": layer.k, "m": m, "way": way, "copies": runs[way][1], **times}
        row |= {
            f"{kind}_speedup": base[f"{kind}_us"] / times[f"{kind}_us"] for kind in ("cold", "warm") if base
        }
        if way.startswith("rote W4A8"):
            row["bandwidth_share"] = layer.n * layer.k / 2 / (times["cold_us"] * 1e-6) / BANDWIDTH
            row["tops"] = 2 * m * layer.n * layer.k / times["cold_us"] / 1e6
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\nK={rows[0]['k']} N={rows[0]['n']} M={rows[0]['m']}")
    for row in rows:
        if "failed" in row:
            print(f"  {row['way']:32} {row['failed'][:100]}")
            continue
        share = f"{row['bandwidth_share']:6.0%} of bandwidth" if "bandwidth_share" in row else ""
        print(
            f"  {row['way']:32} cold {row['cold_us']:8.2f} us {row['cold_speedup']:5.2f}x   "
            f"warm {row['warm_us']:8.2f} us {row['warm_speedup']:5.2f}x {share}",
            flush=True,
        )


def write(out: Path, result: Mapping[str, Any]) -> None:
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tune", nargs="?", const="all", choices=("all", "cuts", "tiles"),
        help="find how transforms (cuts) and products (tiles) are best cut up, instead of comparing",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--seconds", type=float, default=220.0, help="when to stop (220)")
    parser.add_argument(
        "--ways", action="append", default=[], metavar="WORD",
        help="only ways with that word in their names, and bf16; may be given several times",
    )  # fmt: skip
    parser.add_argument("--no-peers", action="store_true", help="leave out other people's layers")
    wishes = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("torch.cuda.is_available() is False", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    gc.freeze()  # every capture collects garbage: it need not look at modules
    deadline = time.monotonic() + wishes.seconds
    if wishes.tune:
        found = tune(wishes.out, deadline, wishes.tune)
    else:
        found = compare(wishes.out, deadline, not wishes.no_peers, wishes.ways)
    write(wishes.out, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
