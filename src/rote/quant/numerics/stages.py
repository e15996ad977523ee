"""Which stages a configuration's transform has, and how the tensors that hold them become a chain again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .transforms import Chain, Permutation, Rotation, Smoothing


def padded(size: int, block: int) -> int:
    """The next multiple of a block."""
    return -(-size // block) * block


def stage_counts(config: DuQuantConfig) -> tuple[int, int]:
    """How many rotations and how many permutations a transform has."""
    permutations = 0 if config.permutation == "none" else config.permutation_rounds
    if config.rotation == "none":
        return 0, min(permutations, 1)  # one after the other they would be one
    return (1 if config.permute_first else permutations + 1), permutations


def chain_of(smooth: Tensor | None, stages: Sequence[Tensor]) -> Chain:
    """A chain from its tensors: smoothing, then rotations (3 dimensions) and permutations (1 dimension)."""
    found = [Rotation(stage) if stage.dim() == 3 else Permutation(stage) for stage in stages]
    return Chain((*([] if smooth is None else [Smoothing(smooth)]), *found))


def rotation_dtype(config: DuQuantConfig) -> torch.dtype:
    """The type rotations are rounded to."""
    return getattr(torch, config.transform_dtype)
