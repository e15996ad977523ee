"""The operators by torch, for the CPU and as the reference of the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from ..config import UNQUANTIZED
from ..numerics import Quantized, arithmetic, codes_of


def transform_rows(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows."""
    rows = arithmetic.transform_rows(x, smooth, stages, width).to(dtype)
    # An operator returns no view of its input.
    return rows.clone() if rows.data_ptr() == x.data_ptr() else rows


def quantize_rows(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Quantized:
    """Codes of transformed rows."""
    return arithmetic.quantize_rows(arithmetic.transform_rows(x, smooth, stages, width), *grid)


def rounded_rows(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Tensor:
    """What codes of transformed rows stand for; with scales of channels the codes themselves."""
    codes, scale, zero, _ = quantize_rows(x, smooth, stages, width, *grid)
    origin = zero[:, None] if zero.numel() else 0
    return ((codes.float() - origin) * scale[:, None]).to(x.dtype)


def product(
    x: Tensor, scale: Tensor, zero: Tensor, total: Tensor,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Codes times a weight."""
    if dtype == torch.int32:
        return arithmetic.int_matmul(x, codes_of(codes, x.shape[1]))
    y = arithmetic.integer_product((x, scale, zero, total), codes, w_scale, w_zero, w_sum)
    return arithmetic.restore_rows(y, None, bias, w_scale.shape[0]).to(dtype)


def linear(x: Tensor, *operands: Any) -> Tensor:
    """A whole layer by PyTorch's operators: what ``torch.ops.rote_quant.linear`` gives.

    Args:
        x: The input.
        operands: The rest of what the operator takes.
    """

    def listed(part: Any) -> list[Any]:
        return [] if part is None else [part]

    *shared, scale, zero = operands[:8]
    group: list[Any] = [*shared, listed(scale), zero, *map(listed, operands[8:])]
    return linears(x, *group)[0]


def linears(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Sequence[Tensor], act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    row_rotation: Sequence[Tensor], bias: Sequence[Tensor], features: Sequence[int],
) -> list[Tensor]:  # fmt: skip
    """Layers with the same input: a shared transform once, then one product after the other."""
    found: list[Tensor] = []
    rows: Tensor | None = None
    quantized: Quantized | None = None
    apart = len(act_scale) > 1
    weights = members(codes, w_scale, w_zero, w_sum, row_rotation, bias, features)
    for (mine, scale), weight in zip(turns_of(stages, act_scale, len(codes)), weights, strict=True):
        packed, w_factor, zero, sums, turn, added, size = weight
        if rows is None or apart:
            rows = arithmetic.transform_rows(x, smooth, mine, width)
            if act_bits < UNQUANTIZED:
                quantized = arithmetic.quantize_rows(rows, act_bits, act_symmetric, act_clip, scale, act_zero)
        if quantized is None:
            y = arithmetic.float_product(rows.to(x.dtype), packed, w_factor, zero)
        else:
            y = arithmetic.integer_product(quantized, packed, w_factor, zero, sums)
        y = arithmetic.restore_rows(y, turn, added, size).to(x.dtype).contiguous()
        found.append(y.reshape(*x.shape[:-1], size))
    return found


def rounded_apart(
    x: Tensor, stages: Sequence[Tensor], width: int, act_bits: int, act_symmetric: bool,
    act_scale: Sequence[Tensor],
) -> Tensor:  # fmt: skip
    """What codes of rows stand for that each layer transforms in its own way."""
    every = turns_of(stages, act_scale, len(act_scale))
    grid = (act_bits, act_symmetric, 1.0)
    return torch.stack([rounded_rows(x, None, mine, width, *grid, scale, None) for mine, scale in every])


Member = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None, int]
"""Codes, scale, zero points, sums, row rotation and bias of a layer, and the width of its output."""


def members(codes: Sequence[Tensor], *parts: Sequence[Any]) -> Iterator[Member]:
    """The layers of a group, from the lists of their parts; an empty list stands for what none has."""
    none = [None] * len(codes)
    return cast(Iterator[Member], zip(codes, *(part or none for part in parts), strict=True))


def turns_of(
    stages: Sequence[Tensor], scales: Sequence[Tensor], count: int
) -> list[tuple[Sequence[Tensor], Tensor | None]]:
    """The stages and the static scale of each layer: its own where there are several scales."""
    if len(scales) < 2:
        return [(stages, scales[0] if scales else None)] * count
    size = len(stages) // count
    return [(stages[i * size : (i + 1) * size], scale) for i, scale in enumerate(scales)]
