"""The operators by Triton; what its kernels do not do goes through torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import arithmetic
from ..arithmetic import Quantized
from ..config import UNQUANTIZED
from ..packing import stored_bits
from . import gemm, transform
from .by_torch import linear_torch, linears_torch, members, quantize_torch, rounded_torch, transform_torch
from .table import Tile


def transform_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows, by Triton."""
    if transform.obstacle(stages, width):
        return transform_torch(x, smooth, stages, width, dtype)
    target = transform.floating(x, width, dtype)
    if x.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(x, smooth, stages, target, None, False)
    return target.rows


def quantize_triton(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Quantized:
    """Codes of transformed rows, by Triton."""
    if not transform.holds(width):
        return quantize_torch(x, smooth, stages, width, *grid)
    x, smooth, stages = _left(x, smooth, stages, width)
    target = transform.quantizing(x, width, *grid)
    if x.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(x, smooth, stages, target, None, False)
    return target.rows, target.scale, target.zero, target.total


def rounded_triton(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Tensor:
    """What codes of transformed rows stand for, by Triton."""
    if not transform.holds(width):
        return rounded_torch(x, smooth, stages, width, *grid)
    rows, smooth, stages = _left(x, smooth, stages, width)
    target = transform.quantizing(rows, width, *grid, dtype=x.dtype)
    if rows.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(rows, smooth, stages, target, None, False)
    return target.rows


def restored_triton(y: Tensor, row_rotation: Any, bias: Any, features: int) -> Tensor:
    """The output of a layer from that of its transformed weight, by Triton."""
    found = _restored(y, row_rotation, bias, features, y.dtype)
    return found.clone() if found.data_ptr() == y.data_ptr() else found


def product_triton(
    x: Tensor, scale: Tensor, zero: Tensor, total: Tensor,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any, dtype: torch.dtype,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """Codes times a weight, by Triton; with the table's tiles unless some are given."""
    tokens, n = x.shape[0], w_scale.shape[0]
    out = x.new_empty(tokens, n, dtype=dtype)
    if tokens == 0 or n == 0:
        return out
    tile = (tile or gemm.tile_for(x, tokens, (n,), x.shape[1], stored_bits(codes), False)).alone()
    room = tile.workspace(tokens, n)
    work = x.new_zeros(room, dtype=torch.int32) if room else None
    rows = transform.aligned(x)
    with torch.cuda.device_of(x):
        factor = gemm.Factor(codes, w_scale, w_zero, w_sum, bias, out)
        gemm.launch(rows, scale, zero, total, [factor], work, tile)
    return out


def _left(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int
) -> tuple[Tensor, Any, Sequence[Tensor]]:
    """What is left to the kernels of rows and their transform: nothing where torch has to do it."""
    if transform.obstacle(stages, width):
        return arithmetic.transform_rows(x, smooth, stages, width), None, ()
    return x.reshape(-1, x.shape[-1]), smooth, stages


def linear_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor,
    row_rotation: Any, bias: Any, features: int,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """A whole layer, by Triton: the transform, and the product with its zeros already written."""
    grid = (act_bits, act_symmetric, act_clip, act_scale, act_zero)
    if w_scale.shape[1] > 1 or not _possible(x, width, act_bits):
        return linear_torch(
            x, smooth, stages, width, *grid, codes, w_scale, w_zero, w_sum, row_rotation, bias, features
        )
    whole = row_rotation is None and w_scale.shape[0] == features
    out = x.new_empty(x.numel() // x.shape[-1], w_scale.shape[0], dtype=x.dtype if whole else torch.float32)
    factor = gemm.Factor(codes, w_scale, w_zero, w_sum, bias if whole else None, out)
    _multiply(x, smooth, stages, width, grid, [factor], tile)
    if not whole:
        out = _restored(out, row_rotation, bias, features, x.dtype)
    return out.reshape(*x.shape[:-1], features)


def _restored(y: Tensor, rotation: Any, bias: Any, features: int, dtype: torch.dtype) -> Tensor:
    """Rows of a product rotated back (a transform like any other), cut to size, with the bias."""
    if rotation is None or transform.obstacle([rotation], y.shape[1]):
        y = y.to(torch.promote_types(y.dtype, torch.float32))
    else:
        wide = torch.float32 if bias is not None else dtype
        y, rotation = transform_triton(y, None, [rotation], y.shape[1], wide), None
    return arithmetic.restore_rows(y, rotation, bias, features).to(dtype).contiguous()


def linears_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    bias: Sequence[Tensor],
    tile: Any = None,
) -> list[Tensor]:  # fmt: skip
    """Layers with the same input, by Triton: one transform and one product for all."""
    grid = (act_bits, act_symmetric, act_clip, act_scale, act_zero)
    if not _possible(x, width, act_bits):
        return linears_torch(x, smooth, stages, width, *grid, codes, w_scale, w_zero, w_sum, bias)
    tokens = x.numel() // x.shape[-1]
    factors = [
        gemm.Factor(*member, x.new_empty(tokens, len(member[1])))
        for member in members(codes, w_scale, w_zero, w_sum, bias)
    ]
    _multiply(x, smooth, stages, width, grid, factors, tile)
    return [factor.out.reshape(*x.shape[:-1], factor.out.shape[1]) for factor in factors]


def _possible(x: Tensor, width: int, act_bits: int) -> bool:
    """Whether kernels take rows of that width; those that are not quantized must not be float32."""
    exact = act_bits >= UNQUANTIZED and x.dtype in (torch.float32, torch.float64)
    return transform.holds(width) and not exact


def _multiply(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, grid: tuple[Any, ...],
    factors: Sequence[gemm.Factor], tile: Tile | None,
) -> None:  # fmt: skip
    """Transform, quantize, and multiply with weights."""
    rows, smooth, stages = _left(x, smooth, stages, width)
    tokens, sizes = rows.shape[0], tuple(factor.out.shape[1] for factor in factors)
    if tokens == 0 or sum(sizes) == 0:
        return
    whole = grid[0] >= UNQUANTIZED
    tile = tile or gemm.tile_for(x, tokens, sizes, width, stored_bits(factors[0].codes), whole)
    to = transform.floating(rows, width, x.dtype) if whole else transform.quantizing(rows, width, *grid)
    room = tile.workspace(tokens, *sizes)
    work = x.new_empty(room, dtype=torch.int32) if room else None
    scale, zero = (None, None) if whole else (to.scale, to.zero)
    with torch.cuda.device_of(x):
        transform.launch(rows, smooth, stages, to, work, tile.pdl)
        gemm.launch(to.rows, scale, zero, to.total, factors, work, tile)
