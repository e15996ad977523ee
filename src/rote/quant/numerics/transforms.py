"""Transforms of a layer's input that make it easier to quantize, and that its weight undoes.

A transform G acts on rows: ``apply(x) = x G``. A layer ``y = x W^T`` keeps its output when its weight becomes
``fold_into(W) = W G^-T``, since ``(x G)(W G^-T)^T = x W^T``. ``transposed(x) = x G^T`` takes the gradient
behind the transform to the one before it. All transforms of a chain work on rows of one width; callers pad
narrower rows with zeros, which no transform here mixes up with other channels.

Each transform is a frozen bundle of tensors without a type of its own: its methods work in the type of their
argument, at least float32, with the matrices as they are stored. That matters for rotations stored in
bfloat16: a rounded orthogonal matrix is no longer orthogonal, and a weight that absorbed the transpose of the
exact one would be off by 1.6e-3 (one rotation) before anything is quantized. So :meth:`Rotation.fold_into`
inverts what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import DuQuantConfig


@dataclass(frozen=True)
class Smoothing:
    """Divides each channel by a positive number, and multiplies the weight's column by it."""

    scale: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Divide the channels."""
        x = at_least_float32(x)
        return x / self.scale.to(x)

    def fold_into(self, weight: Tensor) -> Tensor:
        """Multiply the columns."""
        weight = at_least_float32(weight)
        return weight * self.scale.to(weight)

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

    def fold_into(self, weight: Tensor) -> Tensor:
        """The same gather: the inverse of a permutation is its transpose."""
        return self.apply(weight)

    def transposed(self, x: Tensor) -> Tensor:
        """Gather by the inverse permutation."""
        return at_least_float32(x).index_select(-1, torch.argsort(self.order))


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
        return multiply_blocks(x.double(), torch.linalg.inv(self.blocks.double())).to(x)

    def fold_into(self, weight: Tensor) -> Tensor:
        """Multiply the rows of the weight by the inverse transposed matrices."""
        weight = at_least_float32(weight)
        return multiply_blocks(weight.double(), torch.linalg.inv(self.blocks.double()).mT).to(weight)

    def transposed(self, x: Tensor) -> Tensor:
        """Multiply by the transposed matrices."""
        x = at_least_float32(x)
        return multiply_blocks(x, self.blocks.to(x).mT)


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


def chain_of(smooth: Tensor | None, stages: Sequence[Tensor]) -> Chain:
    """A chain from its tensors: smoothing, then rotations (3 dimensions) and permutations (1 dimension)."""
    found = [Rotation(stage) if stage.dim() == 3 else Permutation(stage) for stage in stages]
    return Chain((*([] if smooth is None else [Smoothing(smooth)]), *found))


def stage_kinds(config: DuQuantConfig) -> list[str]:
    """The rotations and permutations (orders of channels) of a transform, as they follow each other."""
    permutations = 0 if config.permutation == "none" else config.permutation_rounds
    if config.rotation == "none":
        return ["order"] * min(permutations, 1)  # several in a row would be one
    if config.permute_first:
        return ["order"] * permutations + ["rotation"]
    return ["rotation", *["order", "rotation"] * permutations]


def rotation_dtype(config: DuQuantConfig) -> torch.dtype:
    """The type rotations are rounded to."""
    return getattr(torch, config.transform_dtype)


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


def padded(size: int, block: int) -> int:
    """The next multiple of a block."""
    return -(-size // block) * block
