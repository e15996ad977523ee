"""Quantized linear layers against bf16: time of one layer, its transform included, by rows and shape.

    python -m benchmarks.w4a8 --tune --out table.json      tile sizes for this GPU, for the package's tables
    python -m benchmarks.w4a8 --tune cuts --out table.json      those of transforms alone; the rest is kept
    python -m benchmarks.w4a8 --out results.json           the comparison
    python -m benchmarks.w4a8 --ways W8A8 --ways _int_mm --out results.json      some ways of it, beside bf16

Cold and warm numbers are those of :mod:`benchmarks.w4a8_layer`. Weights and inputs are random. What rote
computes is checked before it is timed, and the error of peers is told. Both commands stop by themselves after
``--seconds`` and keep what they have.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.w4a8_operators import Transform

from . import w4a8_peers
from .common import device_name, first_line, machine_state, versions
from .w4a8_layer import EXPERT, WIDE, Call, Layer, copies_of, measure
from .w4a8_tune import tune, write

ROWS = (1, 16, 51, 800)
BASE = "cuBLAS bf16"
OWN = ("rote", "torch._int_mm")
"""How the ways begin that are no peers'."""

BANDWIDTH = 4.3e12
"""Bytes per second that copies reach on an H200."""


def compare(out: Path, deadline: float, peers: bool, wanted: list[str]) -> dict[str, Any]:
    """Time ways for all shapes and numbers of rows: all, or those that have a wanted word in their names."""
    result: dict[str, Any] = {"device": device_name(torch.device("cuda")), "versions": versions(), "rows": []}
    result["machine"] = machine_state()
    if not wanted or any(word in way for way in OWN for word in wanted):
        for n, k in WIDE + EXPERT:
            if not compare_own(n, k, out, deadline, result, wanted):
                return result
            torch.cuda.empty_cache()
    if peers:
        compare_peers(out, deadline, result, wanted)
    return result


def compare_own(
    n: int, k: int, out: Path, deadline: float, result: dict[str, Any], wanted: list[str]
) -> bool:
    """Add what rote and torch take for one shape; whether there was the time."""
    layer, eight = Layer.random(n, k), Layer.random(n, k, 8)
    dense = [layer.dense.clone() for _ in range(copies_of(layer.dense))]
    whole = [torch.randint(-127, 128, (n, k), dtype=torch.int8, device="cuda") for _ in eight.codes]
    for m in ROWS:
        if time.monotonic() > deadline:
            print("out of time", flush=True)
            return False
        x = layer.rows(m)
        right = layer.wanted(x)
        found = layer.call(x, layer.change)(0)
        torch.testing.assert_close(found, right, rtol=2**-6, atol=float(right.abs().max()) * 2**-9)
        ways: dict[str, tuple[Call, int]] = {
            BASE: bf16(x, dense),
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
            ways = {way: run for way, run in ways.items() if any(word in way for word in (BASE, *wanted))}
        rows = time_ways(layer, m, ways)
        result["rows"] += rows
        show(rows)
        write(out, result)
    return True


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
                ways = {
                    BASE: bf16(x, dense),
                    way: (lambda i, x=x, made=made: made[i % len(made)](x), len(made)),
                }
                rows = time_ways(layer, m, ways)
                for row in rows:
                    if row["way"] == way:
                        told = {} if "failed" in row else {"error": apart(made[0](x), x @ layer.dense.t())}
                        result["rows"].append(row | told)
                show(rows)
                write(out, result)


def bf16(x: Tensor, weights: list[Tensor]) -> tuple[Call, int]:
    """The product that all are compared with."""
    return lambda i: torch.nn.functional.linear(x, weights[i % len(weights)]), len(weights)


def apart(found: Tensor, right: Tensor) -> float:
    """The relative error of a peer's result: of another quantization, so it is told and not judged."""
    return float((found.float() - right.float()).norm() / right.float().norm())


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
    base = measured.get(BASE, {})
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
