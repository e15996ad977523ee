"""Which stages a configuration's transform has, and the chain that their tensors make."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .transforms import Chain, Permutation, Rotation, Smoothing


def padded(size: int, block: int) -> int:
    """The next multiple of a block."""
    return -(-size // block) * block


def stage_kinds(config: DuQuantConfig) -> list[str]:
    """The rotations and permutations (orders of channels) of a transform, as they follow each other."""
    permutations = 0 if config.permutation == "none" else config.permutation_rounds
    if config.rotation == "none":
        return ["order"] * min(permutations, 1)  # several in a row would be one
    if config.permute_first:
        return ["order"] * permutations + ["rotation"]
    return ["rotation", *["order", "rotation"] * permutations]


def chain_of(smooth: Tensor | None, stages: Sequence[Tensor]) -> Chain:
    """A chain from its tensors: smoothing, then rotations (3 dimensions) and permutations (1 dimension)."""
    found = [Rotation(stage) if stage.dim() == 3 else Permutation(stage) for stage in stages]
    return Chain((*([] if smooth is None else [Smoothing(smooth)]), *found))


def rotation_dtype(config: DuQuantConfig) -> torch.dtype:
    """The type rotations are rounded to."""
    return getattr(torch, config.transform_dtype)
