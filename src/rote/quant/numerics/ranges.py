"""Ranges of activations, and the static scales that cover them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .grid import Grid

SMALLEST_STATIC = 1e-6
"""The smallest static scale: channels that were silent in calibration do not explode later."""

SEARCHED = tuple(1.0 - 0.02 * step for step in range(36))
"""Factors on the range that the search for the smallest square error tries: 1.0 down to 0.3."""

QUANTILE_LIMIT = 1 << 24
"""Entries that ``torch.quantile`` takes at once in versions that have a limit."""


def bounds_of(rows: Tensor, config: DuQuantConfig) -> tuple[Tensor, Tensor]:
    """Smallest and largest value, each ``(width,)``, that static scales must cover in transformed rows.

    A percentile is of absolute values, and covers both sides.
    """
    if not len(rows):
        zero = rows.new_zeros(rows.shape[1])
        return zero, zero
    if config.act_range == "percentile":
        bound = percentile(rows.abs(), config.act_percentile)
        return -bound, bound
    return rows.amin(0), rows.amax(0)


def percentile(rows: Tensor, percent: float) -> Tensor:
    """A percentile of every column, linearly interpolated, of shape ``(width,)``."""
    columns = max(1, QUANTILE_LIMIT // max(1, len(rows)))
    parts = [torch.quantile(part, percent / 100, dim=0) for part in rows.float().split(columns, dim=1)]
    return torch.cat(parts)


def activation_parameters(
    low: Tensor, high: Tensor, rows: Tensor, config: DuQuantConfig
) -> tuple[Tensor, Tensor]:
    """Static scales and zero points, of shape ``(width,)``, or ``(1,)`` per tensor.

    ``low`` and ``high`` have the shape ``(width,)``; the search for the least square error uses ``rows``.
    """
    grid = Grid(config.act_bits, config.act_symmetric)
    if config.act_granularity == "tensor":
        low, high, rows = low.amin().reshape(1), high.amax().reshape(1), rows.reshape(-1, 1)
    low, high = low * config.act_clip, high * config.act_clip
    tried = (grid.parameters(low * ratio, high * ratio) for ratio in SEARCHED)
    search = config.act_range == "mse" and len(rows)
    scale, zero = grid.closest(rows, tried, 0) if search else grid.parameters(low, high)
    return scale.clamp(min=SMALLEST_STATIC), zero
