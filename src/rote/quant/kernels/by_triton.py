"""The operators by Triton; what its kernels do not do goes through torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..config import UNQUANTIZED
from ..numerics import Grid, Quantized, arithmetic, stored_bits
from . import by_torch, gemm, transform, turns
from .by_torch import members, turns_of
from .table import Tile
from .target import RowTarget, floating, quantizing
from .turns import Turn


def transform_rows(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows."""
    if transform.obstacle(stages, width):
        return by_torch.transform_rows(x, smooth, stages, width, dtype)
    rows = x.reshape(-1, x.shape[-1])
    return _transformed(rows, smooth, stages, floating(rows, width, dtype)).rows


def quantize_rows(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Quantized:
    """Codes of transformed rows."""
    if not transform.holds(width):
        return by_torch.quantize_rows(x, smooth, stages, width, *grid)
    x, smooth, stages = _left(x, smooth, stages, width)
    return _transformed(x, smooth, stages, quantizing(x, width, *grid)).quantized


def rounded_rows(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Tensor:
    """What codes of transformed rows stand for; with scales of channels the codes themselves."""
    if turns.suits(smooth, stages, grid[3], width):
        rows = x.reshape(-1, x.shape[-1])
        return _turned(rows, [(stages, grid[3])], width, Grid(*grid[:2]), x.dtype, None)[0]
    if not transform.holds(width):
        return by_torch.rounded_rows(x, smooth, stages, width, *grid)
    rows, smooth, stages = _left(x, smooth, stages, width)
    return _transformed(rows, smooth, stages, quantizing(rows, width, *grid, dtype=x.dtype)).rows


def _transformed(x: Tensor, smooth: Any, stages: Sequence[Tensor], target: RowTarget) -> RowTarget:
    with torch.cuda.device_of(x):
        transform.launch(x, smooth, stages, target, None, False)
    return target


def product(
    x: Tensor, scale: Tensor, zero: Tensor, total: Tensor,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any, dtype: torch.dtype,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """Codes times a weight; with the table's tile unless one is given."""
    tokens, n = x.shape[0], w_scale.shape[0]
    out = x.new_empty(tokens, n, dtype=dtype)
    if tokens == 0 or n == 0:
        return out
    tile = (tile or gemm.tile_for(x, tokens, (n,), x.shape[1], stored_bits(codes), False)).alone()
    room = tile.workspace(tokens, n)
    work = x.new_zeros(room, dtype=torch.int32) if room else None
    rows = transform.aligned(x)
    with torch.cuda.device_of(x):
        factor = gemm.Factor(codes, w_scale, w_zero, w_sum, None, bias, out)
        gemm.launch(rows, scale, zero, total, [factor], work, tile)
    return out


def _left(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int
) -> tuple[Tensor, Any, Sequence[Tensor]]:
    """Rows and the transform that is left to kernels: none where torch has already done it."""
    if transform.obstacle(stages, width):
        return arithmetic.transform_rows(x, smooth, stages, width), None, ()
    return x.reshape(-1, x.shape[-1]), smooth, stages


def linear(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor,
    row_rotation: Any, bias: Any, features: int,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """A whole layer: the transform, which also writes the product's zeros, and the product."""
    grid = (act_bits, act_symmetric, act_clip, act_scale, act_zero)
    if w_scale.shape[1] > 1 or not _possible(x, width, act_bits):
        return by_torch.linear(
            x, smooth, stages, width, *grid, codes, w_scale, w_zero, w_sum, row_rotation, bias, features
        )
    inside = row_rotation is None or gemm.restores(row_rotation)
    out = x.new_empty(x.numel() // x.shape[-1], features, dtype=x.dtype)
    if not inside:
        out = x.new_empty(len(out), w_scale.shape[0], dtype=torch.float32)
    last = (row_rotation, bias) if inside else (None, None)
    factor = gemm.Factor(codes, w_scale, w_zero, w_sum, *last, out)
    _multiply(x, smooth, [(stages, act_scale)], width, grid, [factor], tile)
    if not inside:
        out = _restored(out, row_rotation, bias, features, x.dtype)
    return out.reshape(*x.shape[:-1], features)


def _restored(y: Tensor, rotation: Any, bias: Any, features: int, dtype: torch.dtype) -> Tensor:
    """Rows of a product rotated back (by a transform), cut to size, with the bias."""
    if rotation is None or transform.obstacle([rotation], y.shape[1]):
        y = y.to(torch.promote_types(y.dtype, torch.float32))
    else:
        wide = torch.float32 if bias is not None else dtype
        y, rotation = transform_rows(y, None, [rotation], y.shape[1], wide), None
    return arithmetic.restore_rows(y, rotation, bias, features).to(dtype).contiguous()


def linears(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Sequence[Tensor], act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    row_rotation: Sequence[Tensor], bias: Sequence[Tensor], features: Sequence[int],
    tile: Any = None,
) -> list[Tensor]:  # fmt: skip
    """Layers with the same input: one transform and one product for all."""
    before = (act_bits, act_symmetric, act_clip)
    rest = (codes, w_scale, w_zero, w_sum, row_rotation, bias, features)
    if not _possible(x, width, act_bits):
        return by_torch.linears(x, smooth, stages, width, *before, act_scale, act_zero, *rest)
    every, weights = turns_of(stages, act_scale, len(codes)), list(members(*rest))
    together = all(map(gemm.restores, row_rotation))
    if len(act_scale) > 1:
        together = together and not w_zero and all(turns.suits(smooth, *mine, width) for mine in every)
    if not together:
        return [
            linear(x, smooth, own, width, *before, scale, act_zero, *weight)
            for (own, scale), weight in zip(every, weights, strict=True)
        ]
    tokens = x.numel() // x.shape[-1]
    factors = [gemm.Factor(*weight[:6], x.new_empty(tokens, weight[6])) for weight in weights]
    grid = (*before, every[0][1], act_zero)
    _multiply(x, smooth, every if len(act_scale) > 1 else every[:1], width, grid, factors, tile)
    return [factor.out.reshape(*x.shape[:-1], factor.out.shape[1]) for factor in factors]


def rounded_apart(
    x: Tensor, stages: Sequence[Tensor], width: int, act_bits: int, act_symmetric: bool,
    act_scale: Sequence[Tensor],
) -> Tensor:  # fmt: skip
    """What codes of rows stand for that each layer transforms in its own way."""
    every = turns_of(stages, act_scale, len(act_scale))
    if not all(turns.suits(None, *mine, width) for mine in every):
        return by_torch.rounded_apart(x, stages, width, act_bits, act_symmetric, act_scale)
    rows = x.reshape(-1, x.shape[-1])
    return _turned(rows, every, width, Grid(act_bits, act_symmetric), x.dtype, None)


def _turned(
    rows: Tensor, every: Sequence[Turn], width: int, grid: Grid, dtype: torch.dtype, work: Tensor | None
) -> Tensor:  # fmt: skip
    """Rows by each layer's stages and scales, of shape ``(layers, tokens, width)``."""
    found = rows.new_empty(len(every), rows.shape[0], width, dtype=dtype)
    if rows.shape[0]:
        with torch.cuda.device_of(rows):
            turns.launch(transform.aligned(rows), every, found, work, grid)
    return found


def _possible(x: Tensor, width: int, act_bits: int) -> bool:
    """Whether kernels take rows of that width; float32 rows must be quantized."""
    exact = act_bits >= UNQUANTIZED and x.dtype in (torch.float32, torch.float64)
    return transform.holds(width) and not exact


def _multiply(
    x: Tensor, smooth: Any, every: Sequence[Turn], width: int, grid: tuple[Any, ...],
    factors: Sequence[gemm.Factor], tile: Tile | None,
) -> None:  # fmt: skip
    """Transform, quantize, and multiply with weights."""
    stages, scale = every[0]
    bits, symmetric = grid[:2]
    apart = factors[0].zero is None and turns.suits(smooth, stages, scale, width)
    rows, smooth, stages = _left(x, smooth, stages, width)
    tokens, sizes = rows.shape[0], tuple(len(factor.scale) for factor in factors)
    if tokens == 0 or sum(sizes) == 0:
        return
    whole = bits >= UNQUANTIZED
    tile = tile or gemm.tile_for(x, tokens, sizes, width, stored_bits(factors[0].codes), whole, apart)
    room = tile.workspace(tokens, *sizes)
    work = x.new_empty(room, dtype=torch.int32) if room else None
    with torch.cuda.device_of(x):
        if apart:
            found = _turned(rows, every, width, Grid(bits, symmetric), torch.int8, work)
            found = found if len(every) > 1 else found[0]
            gemm.launch(found, None, None, None, factors, work, tile)
            return
        to = floating(rows, width, x.dtype) if whole else quantizing(rows, width, *grid)
        transform.launch(rows, smooth, stages, to, work, tile.pdl)
        scales = (None, None) if whole else (to.scale, to.zero)
        gemm.launch(to.rows, *scales, to.total, factors, work, tile)
