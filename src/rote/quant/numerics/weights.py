"""Weights to integer codes: the range of each row (or group, or the tensor), and the codes.

There are four ways to choose a range: minimum and maximum, a search for the clipping ratio with the least
square error, the coarse search of the policy variant, and clipping learned on the layer's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .grid import Grid, Parameters, best_of, values

RATIOS = tuple(1.0 - 0.05 * step for step in range(15))
"""Clipping ratios that the search for the smallest square error tries: 1.0 down to 0.3."""

COARSE = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Divisors of the scale that the policy variant tries."""

STEPS, RATE, START = 100, 0.03, 4.0
"""Of learned clipping; both factors start at ``sigmoid(START)``, 0.982, as published."""


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


def learned_parameters(parts: Tensor, grid: Grid, rows: Tensor, seen: Tensor) -> Parameters:
    """Scales and zero points, of shape ``(parts, groups, 1)``, with learned clipping.

    Two factors per piece, ``sigmoid(u)`` of the largest and ``sigmoid(l)`` of the smallest entry, are trained
    with AdamW on the square error of the layer's output; rounding passes gradients straight through. The best
    of all steps is kept, plain minimum and maximum among them, so the result is never worse than these on
    what it was trained on.

    ``parts`` is the weight as ``(parts, groups, columns)``; ``rows`` and ``seen`` are transformed inputs
    ``(rows, width)``, as they are and as the layer will see them, quantized.
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
