"""Weights to integer codes: the range of each row (or group, or the tensor), and the codes.

There are four ways to choose a range: minimum and maximum, a search for the clipping ratio with the least
square error, the coarse search of the policy variant, and learned clipping (see ``learning``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .grid import Grid, values
from .learning import learned_parameters

RATIOS = tuple(1.0 - 0.05 * step for step in range(15))
"""Clipping ratios that the search for the smallest square error tries: 1.0 down to 0.3."""

COARSE = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Divisors of the scale that the policy variant tries."""


@dataclass(frozen=True)
class QuantizedWeight:
    """Integer codes and their scales.

    ``codes`` are int8, of shape ``(out, width)``; ``scale`` (float32) and ``zero`` (int8) have the shape
    ``(out, groups)``, where groups are equal parts of a row.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor
    bits: int

    def values(self) -> Tensor:
        """What the codes stand for, float32, of shape ``(out, width)``."""
        rows, groups = self.scale.shape
        codes = self.codes.float().reshape(rows, groups, -1)
        return values(codes, self.scale[:, :, None], self.zero.float()[:, :, None]).reshape(self.codes.shape)


def quantize_weight(
    weight: Tensor, bits: int, config: DuQuantConfig, *, rows: Tensor | None = None,
    seen: Tensor | None = None,
) -> QuantizedWeight:  # fmt: skip
    """Quantize a transformed weight ``(out, width)`` to 2 to 8 bits.

    Learned clipping trains on transformed inputs ``rows``, of shape ``(rows, width)``, and on the same
    quantized, ``seen``.
    """
    grid = Grid(bits, config.weight_symmetric)
    parts = split(weight.float(), config)
    lowest, highest = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    if config.weight_range == "learned" and rows is not None and len(rows):
        scale, zero = learned_parameters(parts, grid, rows, rows if seen is None else seen)
    elif config.weight_range in ("mse", "learned"):
        tried = (grid.parameters(lowest * ratio, highest * ratio) for ratio in RATIOS)
        scale, zero = grid.closest(parts, tried, -1)
    elif config.weight_range == "grid":
        scale, zero = grid.parameters(lowest, highest)
        scale, zero = grid.closest(parts, ((scale / divisor, zero) for divisor in COARSE), -1)
    else:
        scale, zero = grid.parameters(lowest * config.weight_clip, highest * config.weight_clip)
    codes = grid.codes(parts, scale, zero).to(torch.int8).reshape(weight.shape)
    shape = (weight.shape[0], -1 if config.weight_granularity == "group" else 1)
    if config.weight_granularity == "tensor":
        scale, zero = (t.expand(weight.shape[0], 1, 1) for t in (scale, zero))
    flat = [t.reshape(shape).contiguous() for t in (scale, zero)]
    return QuantizedWeight(codes, flat[0].float(), flat[1].to(torch.int8), bits)


def split(weight: Tensor, config: DuQuantConfig) -> Tensor:
    """The weight as ``(parts, groups, columns)``, each ``columns`` long piece with a scale of its own."""
    if config.weight_granularity == "tensor":
        return weight.reshape(1, 1, -1)
    if config.weight_granularity == "channel":
        return weight.reshape(weight.shape[0], 1, -1)
    return weight.reshape(weight.shape[0], -1, config.weight_group_size or weight.shape[1])
