"""The tables of cuts and tiles for one GPU, which the package keeps; see :mod:`benchmarks.w4a8`."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from rote.quant.kernels import by_torch
from rote.quant.kernels.table import ADDITIONS, Tile, bucket, rule, slug
from rote.quant.kernels.table import RowCut as Cut

from .common import first_line
from .w4a8_layer import EXPERT, WIDE, Layer, measure

BOTH = ("w4a8", "w4a8 static")
"""Kinds of products that are tuned: behind a transform with scales of the tokens, and with static ones."""


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
            wanted = by_torch.quantize_rows(x, None, layer.change.stages, k, 8, False, 1.0, None, None)[0]
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
                cuts.setdefault(f"{k}/128", {})[str(bucket(m))] = asdict(best)
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
                    sizes_of[str(bucket(m))] = asdict(found)
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
        {"kind": kind, "n": layer.n, "k": layer.k, "m": m, "us": times[tile], **asdict(tile)}
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


def write(out: Path, result: dict[str, Any]) -> None:
    """Keep what there is so far, each tile and cut on a line."""
    text = re.sub(r"\{[^{}]*\}", lambda row: json.dumps(json.loads(row[0])), json.dumps(result, indent=1))
    out.write_text(text + "\n", encoding="utf-8")
