"""The tensors that transforms write: codes with scales, zero points and sums, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..numerics import Grid, Quantized, has_zero

FLOAT, SYMMETRIC, ASYMMETRIC, STATIC, FOLDED = range(5)
"""How rows are quantized, as the kernels number it."""


@dataclass(frozen=True)
class RowTarget:
    """The output of a transform's last launch, and its grid.

    Attributes:
        rows: Codes (int8) or transformed rows (floating), of shape ``(tokens, width)``.
        scale: float32, of shape ``(tokens,)``, or empty.
        zero: int32, of shape ``(tokens,)``, or empty.
        total: Sums of codes (int32) or of numbers (float32), of shape ``(tokens,)``.
        mode: How rows are quantized, as in the kernels.
        clip: Factor on a token's range.
        static_scale: One scale, or one for each channel.
        static_zero: A zero point for one scale.
    """

    rows: Tensor
    scale: Tensor
    zero: Tensor
    total: Tensor
    mode: int = FLOAT
    low: int = 0
    high: int = 0
    clip: float = 1.0
    static_scale: Tensor | None = None
    static_zero: Tensor | None = None

    @property
    def quantized(self) -> Quantized:
        """The codes, with what belongs to them."""
        return self.rows, self.scale, self.zero, self.total


def quantizing(
    x: Tensor, width: int, bits: int, symmetric: bool, clip: float, scale: Any, zero: Any,
    dtype: torch.dtype = torch.int8,
) -> RowTarget:  # fmt: skip
    """Room for the codes of rows; in a floating type, for what the codes stand for."""
    tokens, grid, shifted = x.shape[0], Grid(bits, symmetric), has_zero(symmetric, scale)
    if scale is None:
        mode = ASYMMETRIC if shifted else SYMMETRIC
    else:
        mode = FOLDED if scale.numel() > 1 else STATIC
    return RowTarget(
        rows=x.new_empty(tokens, width, dtype=dtype),
        scale=x.new_empty(tokens, dtype=torch.float32),
        zero=x.new_empty(tokens if shifted else 0, dtype=torch.int32),
        total=x.new_empty(tokens, dtype=torch.int32),
        mode=mode, low=grid.low, high=grid.high, clip=clip, static_scale=scale,
        static_zero=zero if shifted else None,
    )  # fmt: skip


def floating(x: Tensor, width: int, dtype: torch.dtype) -> RowTarget:
    """Room for transformed rows that stay numbers."""
    none = x.new_empty(0, dtype=torch.float32)
    total = x.new_empty(x.shape[0], dtype=torch.float32)
    return RowTarget(x.new_empty(x.shape[0], width, dtype=dtype), none, none, total)
