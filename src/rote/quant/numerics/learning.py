"""Learned clipping: how far each row's range is cut, trained on the output of the layer.

Two factors per piece, ``sigmoid(u)`` of the largest and ``sigmoid(l)`` of the smallest entry, start at 0.982
and are trained with AdamW on the square error of the layer's output, rounding passed straight through. The
best of all steps is kept, the start and plain minimum and maximum among them, so the result is never worse on
what it was trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .grid import Grid

STEPS = 100
RATE = 0.03
START = 4.0
"""Of the factors before the sigmoid, as published."""


def learned_parameters(parts: Tensor, grid: Grid, rows: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and zero points, of shape ``(parts, groups, 1)``, with trained clipping.

    Args:
        parts: The weight as ``(parts, groups, columns)``.
        grid: Of the weight.
        rows: Transformed inputs, of shape ``(rows, width)``.
        seen: The same as the layer will see them, quantized.
    """
    width = rows.shape[1]
    # Copies, since what was made in inference mode cannot be saved for a backward.
    parts, rows, seen = (t.detach().to(parts, copy=True) for t in (parts, rows, seen))
    target = rows @ parts.reshape(-1, width).T
    lowest, highest = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)

    def error(scale: Tensor, zero: Tensor) -> Tensor:
        """Of each output channel, of shape ``(out,)``."""
        return (seen @ grid.fake(parts, scale, zero).reshape(-1, width).T - target).square().mean(0)

    best = _Best(parts, *grid.parameters(lowest, highest))
    best.offer(best.scale, best.zero, error(best.scale, best.zero))
    with torch.enable_grad():
        upper = torch.full_like(highest, START, requires_grad=True)
        lower = torch.full_like(lowest, START, requires_grad=True)
        optimizer = torch.optim.AdamW([upper, lower], lr=RATE, weight_decay=0.0)
        for _ in range(STEPS):
            scale, zero = grid.parameters(lowest * torch.sigmoid(lower), highest * torch.sigmoid(upper))
            loss = error(scale, zero)
            best.offer(scale, zero, loss)
            (upper.grad, lower.grad) = torch.autograd.grad(loss.sum(), (upper, lower))
            optimizer.step()
    return best.scale, best.zero


class _Best:
    """For each part the parameters with the smallest error so far."""

    def __init__(self, parts: Tensor, scale: Tensor, zero: Tensor) -> None:
        self.count = parts.shape[0]
        self.scale, self.zero = scale.detach(), zero.detach()
        self.error = parts.new_full((self.count,), torch.inf)

    def offer(self, scale: Tensor, zero: Tensor, error: Tensor) -> None:
        """Keep what is better. Output channels are those of a part: one row, or all of the tensor."""
        error = error.detach().reshape(self.count, -1).sum(1)
        better = error < self.error
        self.error = torch.where(better, error, self.error)
        self.scale = torch.where(better[:, None, None], scale.detach(), self.scale)
        self.zero = torch.where(better[:, None, None], zero.detach(), self.zero)
