"""Launches of the product of activations with packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..packing import BLOCK, stored_bits
from .jit import gpu, interpreted, module
from .table import Tile, bucket, choose

MOST_WEIGHTS = 3
"""Weights that one launch multiplies the same rows with."""


@dataclass(frozen=True)
class Factor:
    """A weight, and where its product goes.

    Attributes:
        codes: Packed codes.
        scale: float32, of shape ``(rows, 1)``.
        zero: int8, of that shape, or None.
        sums: int32, of that shape.
        bias: Of shape ``(rows,)``, or None.
        out: Of shape ``(tokens, rows)``; int32 gets the bare sums.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    sums: Tensor
    bias: Tensor | None
    out: Tensor
    turn: Tensor | None = None


def restores(rotation: Tensor) -> bool:
    """Whether the product can rotate its output back by itself."""
    return 16 <= rotation.shape[-1] <= 64


def tile_for(x: Tensor, tokens: int, rows: tuple[int, ...], k: int, bits: int, whole: bool) -> Tile:
    """The tiles of a product of some rows with weights.

    Args:
        x: Something on the device.
        tokens: How many rows there are.
        rows: Rows of each weight.
        k: Columns of the weights.
        bits: 4 or 8, of a weight.
        whole: Whether activations are not quantized.
    """
    name, units = gpu(x.device.index if x.is_cuda else None)
    return choose(name, units, f"w{bits}a{16 if whole else 8}", bucket(tokens), rows, k)


def launch(
    x: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    total: Tensor | None,
    factors: Sequence[Factor],
    work: Tensor | None,
    tile: Tile,
    precision: str = "ieee",
    following: bool = False,
) -> None:
    """Multiply.

    Args:
        x: int8 codes, or bfloat16 or float16 numbers, of shape ``(tokens, columns)``.
        scale: float32, for each token; None if ``x`` is not quantized.
        zero: int32, for each token, or empty or None.
        total: Sums of the rows of ``x``.
        factors: Weights, which are alike but for their numbers of rows.
        work: ``tile.workspace`` zeros where the sum is split.
        tile: How the work is cut up.
    """
    kernels = module("jit_gemm")
    asm = not interpreted(kernels.product)
    separate = x.dim() == 3
    tokens, columns = x.shape[-2:]
    first = factors[0]
    rows = [factor.scale.shape[0] for factor in factors]
    common: dict[str, Any] = {
        "x": x, "x_scale": scale, "x_zero": zero, "x_sum": total, "work": work, "M": tokens, "K": columns,
        "BITS": stored_bits(first.codes), "FLOAT": x.dtype != torch.int8, "X_SCALE": scale is not None,
        "X_ZERO": zero is not None and zero.numel() > 0, "W_ZERO": first.zero is not None,
        "BIAS": first.bias is not None, "RAW": first.out.dtype == torch.int32,
        "EVEN_K": columns % (BLOCK * tile.unroll) == 0, "BM": tile.bm, "BN": tile.bn, "UNROLL": tile.unroll,
        "SPLIT": tile.split > 1, "STAGES": tile.stages, "ASM": asm, "PDL": tile.pdl and asm,
        "TURN": 0 if first.turn is None else first.turn.shape[-1], "PRECISION": precision,
        "NEXT": following and asm,
        "num_warps": tile.warps, "num_stages": tile.stages, "launch_pdl": tile.pdl and asm,
    }  # fmt: skip
    grid = (tile.tiles(tokens, *rows), tile.split)
    if len(factors) == 1:
        kernels.product[grid](**_named(first, ""), N=rows[0], FEATURES=first.out.shape[1], **common)
        return
    for index in range(MOST_WEIGHTS):
        there = index < len(factors)
        common |= _named(factors[index] if there else None, f"_{index}")
        common[f"N_{index}"] = rows[index] if there else None
        common[f"FEATURES_{index}"] = factors[index].out.shape[1] if there else None
    kernels.products[grid](COUNT=len(factors), SEPARATE=separate, **common)


def _named(factor: Factor | None, end: str) -> dict[str, Any]:
    names = {
        "weight": "codes", "w_scale": "scale", "w_zero": "zero", "w_sum": "sums", "bias": "bias", "out": "out",
        "turn": "turn",
    }  # fmt: skip
    return {
        f"{name}{end}": None if factor is None else getattr(factor, field) for name, field in names.items()
    }
