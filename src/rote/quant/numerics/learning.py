"""Learned clipping: how far each row's range is cut, trained on the output of the layer.

Two factors per piece, ``sigmoid(u)`` of the largest and ``sigmoid(l)`` of the smallest entry, start at 0.982
and are trained with AdamW on the square error of the layer's output; rounding passes gradients straight
through. The best of all steps is kept, plain minimum and maximum among them, so the result is never worse
than these on what it was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .grid import Grid, Parameters, best_of

STEPS = 100
RATE = 0.03
START = 4.0
"""Of the factors before the sigmoid, as published."""


def learned_parameters(parts: Tensor, grid: Grid, rows: Tensor, seen: Tensor) -> Parameters:
    """Scales and zero points, of shape ``(parts, groups, 1)``, with trained clipping.

    Args:
        parts: The weight as ``(parts, groups, columns)``.
        grid: Of the weight.
        rows: Transformed inputs, of shape ``(rows, width)``.
        seen: The same as the layer will see them, quantized.
    """
    width = rows.shape[1]
    # Copies: tensors made in inference mode cannot be saved for a backward.
    parts, rows, seen = (t.detach().to(parts, copy=True) for t in (parts, rows, seen))
    target = rows @ parts.reshape(-1, width).T
    lowest, highest = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)

    def error(scale: Tensor, zero: Tensor) -> Tensor:
        """Of each output channel, of shape ``(out,)``."""
        return (seen @ grid.fake(parts, scale, zero).reshape(-1, width).T - target).square().mean(0)

    def offer(scale: Tensor, zero: Tensor, loss: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same without gradients, and with the error of each part: one row, or all of the tensor."""
        each = loss.detach().reshape(len(parts), -1).sum(1)[:, None, None]
        return scale.detach(), zero.detach(), each

    def tried() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        plain = grid.parameters(lowest, highest)
        yield offer(*plain, error(*plain))
        upper = torch.full_like(highest, START, requires_grad=True)
        lower = torch.full_like(lowest, START, requires_grad=True)
        optimizer = torch.optim.AdamW([upper, lower], lr=RATE, weight_decay=0.0)
        for _ in range(STEPS):
            with torch.enable_grad():
                scale, zero = grid.parameters(lowest * torch.sigmoid(lower), highest * torch.sigmoid(upper))
                loss = error(scale, zero)
                upper.grad, lower.grad = torch.autograd.grad(loss.sum(), (upper, lower))
            yield offer(scale, zero, loss)
            optimizer.step()

    return best_of(tried())
