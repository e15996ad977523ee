"""The policy variant, written down plainly: what public forks of openpi calculate under the name of DuQuant.

This is the oracle of ``DuQuantConfig.vla()`` and nothing else: loops over blocks, one small step after the
other, no sharing, no packing. Its parts, for a weight ``W`` of shape ``(out, in)``:

1. the input channels are ordered by the energy of their weight columns: largest, smallest, second largest,
   ... (the forks blend the energy with its mean first, ``lambda_smooth``; that cannot change an order, so it
   is left out);
2. each block of ordered columns is rotated by the left singular vectors of its transpose;
3. each block of rows is rotated by its left singular vectors, from the left;
4. each row is rounded with the best of five scales around ``max / 7``;
5. a call gathers and rotates its input, rounds it with one scale per channel (the largest of the calls'
   percentiles over 127, at least 1e-6), multiplies, rotates the output blocks back and adds the bias.

It is not DuQuant: nothing searches for outliers, the order does the opposite of levelling blocks, and bases
of the weight concentrate energy where DuQuant spreads it. On synthetic layers it does no better than no
transform at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rote.quant.numerics.rotations import fixed_signs
from rote.quant.numerics.weights import COARSE


@dataclass(frozen=True)
class PlainPolicyLayer:
    """A layer of the policy variant.

    Attributes:
        order: The order of the input channels.
        turns_in: One matrix for each block of ordered channels.
        turns_out: One matrix for each block of outputs; empty without row rotation.
        codes: Whole numbers, of shape ``(out, in)``.
        weight_scale: One number per row, of shape ``(out, 1)``.
        act_scale: One number per transformed channel, of shape ``(in,)``.
        folded: ``codes`` are those of the weight times ``act_scale``.
        bias: Of the layer.
        act_bits: Bits of an activation.
    """

    order: Tensor
    turns_in: tuple[Tensor, ...]
    turns_out: tuple[Tensor, ...]
    codes: Tensor
    weight_scale: Tensor
    act_scale: Tensor
    folded: bool
    bias: Tensor | None
    act_bits: int

    def act_codes(self, x: Tensor) -> Tensor:
        """The codes of inputs of shape ``(rows, in)``."""
        high = 2 ** (self.act_bits - 1) - 1
        moved = turned_columns(x[:, self.order], self.turns_in)
        return torch.clamp(torch.round(moved / self.act_scale), -high - 1, high)

    def __call__(self, x: Tensor) -> Tensor:
        """The output for inputs of shape ``(rows, in)``."""
        seen = self.act_codes(x)
        if not self.folded:
            seen = seen * self.act_scale
        y = seen @ (self.codes * self.weight_scale).T
        if self.turns_out:
            y = turned_columns(y, self.turns_out)
        return y if self.bias is None else y + self.bias


def plain_policy_layer(
    weight: Tensor,
    bias: Tensor | None,
    calls: Sequence[Tensor],
    *,
    weight_bits: int = 4,
    act_bits: int = 8,
    block: int = 16,
    percentile: float = 99.9,
    row_rotation: bool = True,
    folded: bool = False,
) -> PlainPolicyLayer:
    """Quantize one layer.

    Args:
        weight: Of shape ``(out, in)``.
        bias: Of shape ``(out,)``.
        calls: The inputs of the calibration's calls, each of shape ``(rows, in)``.
        weight_bits: Bits of a weight.
        act_bits: Bits of an activation.
        block: Channels in a block, of inputs and of outputs.
        percentile: Of the absolute values of a channel in a call.
        row_rotation: Rotate rows, and restore the output.
        folded: Multiply the activation's scales into the weight before it is rounded, as integers need it.
    """
    order = alternating_order(weight.double().square().mean(0).tolist())
    moved = weight[:, order]
    turns_in = tuple(left_basis(part.T).to(weight) for part in moved.split(block, dim=1))
    moved = turned_columns(moved, turns_in)
    turns_out: tuple[Tensor, ...] = ()
    if row_rotation:
        turns_out = tuple(left_basis(part).to(weight) for part in weight.split(block, dim=0))
        parts = [turn @ part for turn, part in zip(turns_out, moved.split(block, dim=0), strict=True)]
        moved = torch.cat(parts)
    high = 2 ** (act_bits - 1) - 1
    bounds = [
        torch.quantile(turned_columns(x[:, order], turns_in).abs(), percentile / 100, dim=0) for x in calls
    ]
    act_scale = torch.clamp(torch.stack(bounds).amax(0) / high, min=1e-6)
    codes, scale = rounded_rows(moved * act_scale if folded else moved, weight_bits)
    return PlainPolicyLayer(order, turns_in, turns_out, codes, scale, act_scale, folded, bias, act_bits)


def alternating_order(energy: Sequence[float]) -> Tensor:
    """Largest, smallest, second largest, second smallest, ..."""
    ranked = sorted(range(len(energy)), key=lambda channel: -energy[channel])
    order: list[int] = []
    while ranked:
        order.append(ranked.pop(0))
        if ranked:
            order.append(ranked.pop())
    return torch.tensor(order)


def left_basis(block: Tensor) -> Tensor:
    """The left singular vectors of a block, the strongest first, with signs of their own rule."""
    left, _, _ = torch.linalg.svd(block.double(), full_matrices=True)
    return fixed_signs(left)


def turned_columns(x: Tensor, turns: Sequence[Tensor]) -> Tensor:
    """Each block of columns times its matrix."""
    sizes = [len(turn) for turn in turns]
    parts = x.split(sizes, dim=1)
    return torch.cat([part @ turn for part, turn in zip(parts, turns, strict=True)], dim=1)


def rounded_rows(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes and the scale of every row, the best of five."""
    high = 2 ** (bits - 1) - 1
    codes, scales = torch.empty_like(weight), weight.new_empty(len(weight), 1)
    for i, row in enumerate(weight):
        least = None
        for divisor in COARSE:
            scale = row.abs().max() / high / divisor
            found = torch.clamp(torch.round(row / scale), -high - 1, high)
            error = (found * scale - row).square().mean()
            if least is None or error < least:
                least, codes[i], scales[i] = error, found, scale
    return codes, scales
