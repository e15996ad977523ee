"""The kernels' arithmetic in plain torch: what they are tested against, and what runs on a CPU.

Transforms are float32. Codes follow from them by true division and rounding half to even. Sums are integers,
exact, and the few operations that turn them into outputs come in the same order as in the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .packing import codes_of

SMALLEST_SCALE = 1e-9
EXACT_COLUMNS = 1024
"""Products of two int8 numbers that float32 adds exactly, in any order: 2^7 * 2^7 * 2^10 = 2^24."""

Quantized = tuple[Tensor, Tensor, Tensor, Tensor]


def transform(x: Tensor, smooth: Tensor | None, stages: Sequence[Tensor], width: int) -> Tensor:
    """Rows of shape ``(tokens, features)`` transformed, float32, of shape ``(tokens, width)``."""
    v = x.float()
    if smooth is not None:
        v = v / smooth.float()[: v.shape[1]]
    v = torch.nn.functional.pad(v, (0, width - v.shape[1]))
    for stage in stages:
        v = v.index_select(1, stage.long()) if stage.dim() == 1 else _rotate(v, stage.float())
    return v


def _rotate(v: Tensor, blocks: Tensor) -> Tensor:
    size = blocks.shape[-1]
    if blocks.shape[0] == 1:
        return (v.reshape(-1, size) @ blocks[0]).reshape(v.shape)
    rows = v.reshape(v.shape[0], blocks.shape[0], size).transpose(0, 1)
    return torch.bmm(rows, blocks).transpose(0, 1).reshape(v.shape)


def quantize(
    v: Tensor,
    low: int,
    high: int,
    symmetric: bool,
    clip: float,
    static_scale: Tensor | None,
    static_zero: Tensor | None,
) -> Quantized:
    """Codes, and for each token its scale, its zero point (none if symmetric) and its sum of codes."""
    tokens = v.shape[0]
    scale, zero, divisor = _grid(v, low, high, symmetric, clip, static_scale, static_zero)
    codes = ((v / divisor).round() + zero[:, None]).clamp(low, high).to(torch.int8)
    kept = zero.to(torch.int32) if has_zero(symmetric, static_scale) else zero.new_empty(0, dtype=torch.int32)
    return codes, scale.reshape(tokens), kept, codes.sum(1, dtype=torch.int32)


def has_zero(symmetric: bool, static_scale: Tensor | None) -> bool:
    """Whether activations have zero points; scales of channels go without."""
    return not symmetric and (static_scale is None or static_scale.numel() == 1)


def _grid(
    v: Tensor,
    low: int,
    high: int,
    symmetric: bool,
    clip: float,
    static_scale: Tensor | None,
    static_zero: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scales as the product takes them, zero points, and what the rows are divided by."""
    none = v.new_zeros(v.shape[0])
    if static_scale is not None and static_scale.numel() > 1:
        return none + 1, none, static_scale.float()[None, :]
    if static_scale is not None:
        scale = none + static_scale.float().reshape(())
        zero = none if symmetric or static_zero is None else none + static_zero.float().reshape(())
        return scale, zero, scale[:, None]
    if symmetric:
        scale = (v.abs().amax(1) * clip / high).clamp(min=SMALLEST_SCALE)
        return scale, none, scale[:, None]
    lowest, highest = v.amin(1).clamp(max=0) * clip, v.amax(1).clamp(min=0) * clip
    scale = ((highest - lowest) / (high - low)).clamp(min=SMALLEST_SCALE)
    zero = (low - (lowest / scale).round()).clamp(low, high)
    return scale, zero, scale[:, None]


def integer_sums(codes: Tensor, packed: Tensor, rows: int, bits: int) -> Tensor:
    """The exact product of int8 rows and a packed weight, int32, of shape ``(tokens, rows)``."""
    weight = codes_of(packed, rows, codes.shape[1], bits)
    if codes.device.type != "cpu":
        return (codes.double() @ weight.double().t()).to(torch.int32)  # exact up to 2^53
    sums = torch.zeros(codes.shape[0], rows, dtype=torch.int32)
    for start in range(0, codes.shape[1], EXACT_COLUMNS):
        part = slice(start, start + EXACT_COLUMNS)
        sums += (codes[:, part].float() @ weight[:, part].float().t()).to(torch.int32)
    return sums


def finish(
    sums: Tensor,
    columns: int,
    scale: Tensor,
    zero: Tensor,
    total: Tensor,
    w_scale: Tensor,
    w_zero: Tensor | None,
    w_sum: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Integer sums with zero points taken out, scaled, and the bias added."""
    if zero.numel():
        sums = sums - zero[:, None] * w_sum[None, :]
        total = total - columns * zero
    if w_zero is not None:
        sums = sums - total[:, None] * w_zero.to(torch.int32)[None, :]
    y = sums.float() * scale[:, None] * w_scale[None, :]
    return (y if bias is None else y + bias.float()).to(dtype)


def float_product(
    rows: Tensor, packed: Tensor, w_scale: Tensor, w_zero: Tensor | None, bias: Tensor | None, bits: int
) -> Tensor:
    """Rows that are not quantized times the weight, in float32, of the rows' type."""
    codes = codes_of(packed, w_scale.shape[0], rows.shape[1], bits).float()
    if w_zero is not None:
        codes = codes - w_zero.float()[:, None]
    y = (rows.float() @ codes.t()) * w_scale
    return (y if bias is None else y + bias.float()).to(rows.dtype)
