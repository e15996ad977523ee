"""The arithmetic of a layer in plain torch: the reference of the kernels, and what runs on a CPU.

A row of activations is ``sx (q - zx)``, a row of weights ``sw (w - zw)``, with int8 codes ``q`` and ``w``.
Their product is

    sx sw ( sum q w  -  zw sum q  -  zx sum w  +  K zx zw )

and everything in the parentheses is exact, in int32; then two float32 factors follow, the activation's first.
With groups there is such a sum for each group of columns, and their products are added up in order. So
results do not depend on the order of summation, and kernels can be compared bit by bit.

On the CPU the sums are float32 products of at most 1024 columns: every partial sum is below 2^24 and thus
exact, in any order and with any instruction set (int8 products of oneDNN saturate on processors without
VNNI). On CUDA they go through the int8 tensor cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .grid import Grid
from .packing import codes_of
from .torch_private import tensor_core_product
from .transforms import at_least_float32, chain_of, multiply_blocks, pad_columns

EXACT_COLUMNS = 1024
"""Products of two int8 numbers that float32 adds exactly: 2^7 * 2^7 * 2^10 = 2^24."""

Quantized = tuple[Tensor, Tensor, Tensor, Tensor]
"""Rows of codes (int8), and each row's scale (float32), zero point (int32; empty for none) and sum of codes
(int32)."""


def transform_rows(x: Tensor, smooth: Tensor | None, stages: Sequence[Tensor], width: int) -> Tensor:
    """Inputs of shape ``(..., in)`` as transformed rows ``(rows, width)``, at least float32."""
    rows = pad_columns(x.reshape(-1, x.shape[-1]), width)
    return chain_of(smooth, stages).apply(rows)


def quantize_rows(
    x: Tensor, bits: int, symmetric: bool, clip: float, scale: Tensor | None, zero: Tensor | None
) -> Quantized:
    """Transformed activations ``(rows, width)`` to codes.

    Without a ``scale`` each row's range, times ``clip``, gives one. ``zero`` is the zero point of one scale
    for the tensor. The weight has absorbed scales for columns, so rows of codes then have scale 1.
    """
    grid, rows = Grid(bits, symmetric), x.shape[0]
    if scale is None:
        step, origin = row_parameters(x, grid, clip)
        codes = grid.codes(x, step, origin).to(torch.int8)
        step, origin = step[:, 0].float(), origin[:, 0]
    else:
        origin = x.new_zeros(()) if zero is None else zero
        codes = grid.codes(x, scale, origin).to(torch.int8)
        step = torch.ones_like(scale[:1]) if scale.numel() > 1 else scale
        step, origin = step.float().expand(rows).contiguous(), origin.expand(rows)
    kept = origin.to(torch.int32).contiguous() if has_zero(symmetric, scale) else x.new_empty(0).int()
    return codes, step, kept, codes.sum(1, dtype=torch.int32)


def has_zero(symmetric: bool, scale: Tensor | None) -> bool:
    """Whether activations have zero points; with scales of channels they have none."""
    return not symmetric and (scale is None or scale.numel() == 1)


def row_parameters(x: Tensor, grid: Grid, clip: float) -> tuple[Tensor, Tensor]:
    """Scale and zero point of every row, each of shape ``(rows, 1)``, without gradients."""
    low, high = torch.aminmax(x.detach(), dim=-1, keepdim=True)
    return grid.parameters(low, high) if clip == 1 else grid.parameters(low * clip, high * clip)


def integer_product(
    rows: Quantized, codes: Tensor, scale: Tensor, zero: Tensor | None, sums: Tensor
) -> Tensor:
    """Rows of codes times a quantized weight, float32, of shape ``(rows, out)``.

    ``codes`` are the weight's in their layout in memory. ``scale`` (float32), ``zero`` (int8, or None for
    zeros) and ``sums`` of the codes of each group (int32) have the shape ``(out, groups)``.
    """
    x, x_scale, x_zero, total = rows
    out, groups = scale.shape
    weight = codes_of(codes, x.shape[1])
    columns = x.shape[1] // groups
    result = x_scale.new_zeros(x.shape[0], out)
    for group in range(groups):
        part = slice(group * columns, (group + 1) * columns)
        found = int_matmul(x[:, part], weight[:, part])
        total = total if groups == 1 else x[:, part].sum(1, dtype=torch.int32)
        if x_zero.numel():
            found = found - x_zero[:, None] * sums[:, group]
            total = total - columns * x_zero
        if zero is not None:
            found = found - total[:, None] * zero[:, group].to(torch.int32)
        result = result + found.float() * x_scale[:, None] * scale[:, group]
    return result


def float_product(rows: Tensor, codes: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Rows that are not quantized times the weight, in float32 at least, of shape ``(rows, out)``."""
    rows = at_least_float32(rows)
    return rows @ dense_weight(codes, scale, zero, rows.shape[1]).to(rows).T


def dense_weight(codes: Tensor, scale: Tensor, zero: Tensor | None, columns: int) -> Tensor:
    """The weight that codes stand for, float32, of shape ``(out, columns)``."""
    out, groups = scale.shape
    parts = codes_of(codes, columns).float().reshape(out, groups, -1)
    if zero is not None:
        parts = parts - zero.float()[:, :, None]
    return (parts * scale[:, :, None]).reshape(out, -1)


def int_matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T`` of int8 matrices, exactly, in int32."""
    if a.device.type == "cuda":
        return tensor_core_product(a, b)
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int32, device=a.device)
    for start in range(0, a.shape[1], EXACT_COLUMNS):
        part = slice(start, start + EXACT_COLUMNS)
        total += (a[:, part].float() @ b[:, part].float().T).to(torch.int32)
    return total


def restore_rows(y: Tensor, rotation: Tensor | None, bias: Tensor | None, features: int) -> Tensor:
    """A layer's output from the product with its weight: rotated back, cut to size, plus bias."""
    if rotation is not None:
        y = multiply_blocks(y, rotation.to(y))
    y = y[..., :features]
    return y if bias is None else y + bias.to(y)
