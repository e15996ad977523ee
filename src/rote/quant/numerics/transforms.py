"""What is done to a layer's input so that it can be quantized, and undone in its weight.

A transform G acts on rows: ``apply(x) = x G``. A layer ``y = x W^T`` stays what it is when its weight becomes
``fold_into(W) = W G^-T``, since ``(x G)(W G^-T)^T = x W^T``. ``inverse(x) = x G^-1`` undoes the transform,
and ``transposed(x) = x G^T`` is the gradient before it from that behind it. All transforms work on rows of
one width; whoever holds rows of another pads them with zeros, which no transform here mixes up with others.

Each transform is a frozen bundle of tensors without a type of its own: ``apply`` works in the type of its
argument, at least float32, with the matrices as they are stored. That matters for rotations that are stored
in bfloat16: a rounded orthogonal matrix is no longer orthogonal, and a weight that absorbed the transpose of
the exact one would be off by 1.6e-3 (one rotation) before anything is quantized. So
:meth:`Rotation.fold_into` inverts what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Smoothing:
    """Divides each channel by a positive number, which the weight's column is multiplied with."""

    scale: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Divide the channels."""
        x = at_least_float32(x)
        return x / self.scale.to(x)

    def inverse(self, x: Tensor) -> Tensor:
        """Multiply the channels."""
        x = at_least_float32(x)
        return x * self.scale.to(x)

    def fold_into(self, weight: Tensor) -> Tensor:
        """Multiply the columns."""
        return self.inverse(weight)

    def transposed(self, x: Tensor) -> Tensor:
        """Divide the channels: a diagonal matrix is its transpose."""
        return self.apply(x)


@dataclass(frozen=True)
class Permutation:
    """Reorders channels: channel ``order[j]`` goes to place ``j``."""

    order: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Gather."""
        return at_least_float32(x).index_select(-1, self.order)

    def inverse(self, x: Tensor) -> Tensor:
        """Gather by the inverse permutation."""
        return at_least_float32(x).index_select(-1, torch.argsort(self.order))

    def fold_into(self, weight: Tensor) -> Tensor:
        """The same gather: the inverse of a permutation is its transpose."""
        return self.apply(weight)

    def transposed(self, x: Tensor) -> Tensor:
        """The inverse."""
        return self.inverse(x)


@dataclass(frozen=True)
class Rotation:
    """Multiplies each block of channels by a matrix, orthogonal up to the rounding of its type.

    ``blocks`` has the shape ``(1, size, size)`` when all blocks share one, else ``(width / size, size,
    size)``.
    """

    blocks: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Multiply every block of a row from the right."""
        x = at_least_float32(x)
        return multiply_blocks(x, self.blocks.to(x))

    def inverse(self, x: Tensor) -> Tensor:
        """Multiply by the inverse matrices."""
        x = at_least_float32(x)
        return multiply_blocks(x.double(), self._inverted()).to(x)

    def fold_into(self, weight: Tensor) -> Tensor:
        """Multiply the rows of the weight by the inverse transposed matrices."""
        weight = at_least_float32(weight)
        return multiply_blocks(weight.double(), self._inverted().mT).to(weight)

    def transposed(self, x: Tensor) -> Tensor:
        """Multiply by the transposed matrices."""
        x = at_least_float32(x)
        return multiply_blocks(x, self.blocks.to(x).mT)

    def _inverted(self) -> Tensor:
        return torch.linalg.inv(self.blocks.double())


Transform = Smoothing | Permutation | Rotation


@dataclass(frozen=True)
class Chain:
    """Transforms one after the other, the first one first."""

    stages: tuple[Transform, ...]

    def apply(self, x: Tensor) -> Tensor:
        """Apply all, in order."""
        for stage in self.stages:
            x = stage.apply(x)
        return x

    def inverse(self, x: Tensor) -> Tensor:
        """Undo all, the last first."""
        for stage in reversed(self.stages):
            x = stage.inverse(x)
        return x

    def fold_into(self, weight: Tensor) -> Tensor:
        """Fold all, in order: ``W G1^-T G2^-T = W (G1 G2)^-T``."""
        for stage in self.stages:
            weight = stage.fold_into(weight)
        return weight

    def transposed(self, x: Tensor) -> Tensor:
        """All transposed, the last first."""
        for stage in reversed(self.stages):
            x = stage.transposed(x)
        return x


def multiply_blocks(x: Tensor, blocks: Tensor) -> Tensor:
    """Each block of each row ``(..., count * size)`` times its matrix, or the one that all share."""
    size = blocks.shape[-1]
    if blocks.shape[0] == 1:
        return (x.reshape(-1, size) @ blocks[0]).reshape(x.shape)
    rows = x.reshape(-1, blocks.shape[0], size)
    return torch.bmm(rows.transpose(0, 1), blocks).transpose(0, 1).reshape(x.shape)


def pad_columns(x: Tensor, width: int) -> Tensor:
    """Rows with zeros behind them, up to a width."""
    missing = width - x.shape[-1]
    return torch.nn.functional.pad(x, (0, missing)) if missing else x


def at_least_float32(x: Tensor) -> Tensor:
    """The same numbers in float32, or float64 if they are in that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
