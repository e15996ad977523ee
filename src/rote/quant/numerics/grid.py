"""Grids of integers, and the way from numbers to codes and back.

All codes are signed: ``bits`` bits from ``-2^(bits-1)`` to ``2^(bits-1) - 1``, and a code ``q`` stands for
``scale * (q - zero)``. An unsigned grid with zero point z' is the same one, moved by half its size. Every
range contains zero, so zero is exact (padding, pruned weights) and the zero point is itself a code, which
keeps all sums of an integer product inside int32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST_SCALE = 1e-9
"""The smallest scale: rows that are all zero get it, and stay zero."""

Parameters = tuple[Tensor, Tensor]
"""Scales and zero points."""


@dataclass(frozen=True)
class Grid:
    """A signed integer grid of 2 to 8 bits; a symmetric one has no zero point."""

    bits: int
    symmetric: bool

    @property
    def low(self) -> int:
        """The smallest code."""
        return -(1 << (self.bits - 1))

    @property
    def high(self) -> int:
        """The largest code."""
        return (1 << (self.bits - 1)) - 1

    def parameters(self, lowest: Tensor, highest: Tensor) -> Parameters:
        """The scale and the zero point (a whole number, floating) of a range, widened to contain zero."""
        lowest, highest = lowest.clamp(max=0), highest.clamp(min=0)
        if self.symmetric:
            scale = (torch.maximum(-lowest, highest) / self.high).clamp(min=SMALLEST_SCALE)
            return scale, torch.zeros_like(scale)
        scale = ((highest - lowest) / (self.high - self.low)).clamp(min=SMALLEST_SCALE)
        return scale, (self.low - round_through(lowest / scale)).clamp(self.low, self.high)

    def closest(self, x: Tensor, tried: Iterable[Parameters], dim: int) -> Parameters:
        """Of several parameters those with the smallest mean square error; the first of equals."""

        def error(scale: Tensor, zero: Tensor) -> Tensor:
            return (self.fake(x, scale, zero) - x).square().mean(dim, keepdim=True).reshape(scale.shape)

        return best_of((scale, zero, error(scale, zero)) for scale, zero in tried)

    def codes(self, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """The codes of numbers, as whole floating numbers; gradients pass where nothing is clipped."""
        place = round_through(x / scale)
        return (place if self.symmetric else place + zero).clamp(self.low, self.high)

    def fake(self, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """The nearest numbers on the grid."""
        codes = self.codes(x, scale, zero)
        return codes * scale if self.symmetric else values(codes, scale, zero)

    def clipped(self, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """Which numbers are outside the grid by more than half a step."""
        place = torch.round(x / scale) + zero
        return (place < self.low) | (place > self.high)


def best_of(tried: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Parameters:
    """Of several scales, zero points and errors those with the smallest error; the first of equals."""
    rest = iter(tried)
    scale, zero, least = next(rest)
    for other, origin, error in rest:
        better = error < least
        scale, zero = torch.where(better, other, scale), torch.where(better, origin, zero)
        least = torch.minimum(error, least)
    return scale, zero


def values(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """What codes stand for."""
    return (codes - zero) * scale


def round_through(x: Tensor) -> Tensor:
    """Round half to even; the gradient passes as if nothing was rounded.

    The sum is exact, because the difference of a number and its rounding is.
    """
    return x + (x.round() - x).detach() if x.requires_grad else x.round()
