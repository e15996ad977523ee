"""Which stages a configuration's transform has, and how the tensors that hold them become a chain again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from .config import DuQuantConfig
from .transforms import Chain, Permutation, Rotation, Smoothing, Transform


def padded(size: int, block: int) -> int:
    """The next multiple of a block."""
    return -(-size // block) * block


def stage_counts(config: DuQuantConfig) -> tuple[int, int]:
    """How many rotations and how many permutations a transform has."""
    permutations = 0 if config.permutation == "none" else config.permutation_rounds
    if config.rotation == "none":
        return 0, min(permutations, 1)  # one after the other they would be one
    return (1 if config.permute_first else permutations + 1), permutations


def chain_of(
    smooth: Tensor | None, rotations: Sequence[Tensor], orders: Sequence[Tensor], permute_first: bool
) -> Chain:
    """A chain from its tensors: smoothing, then rotations and permutations in turn."""
    turns: list[Transform] = [Rotation(blocks) for blocks in rotations]
    moves: list[Transform] = [Permutation(order) for order in orders]
    first, second = (moves, turns) if permute_first else (turns, moves)
    mixed = [stage for pair in zip_longest(first, second) for stage in pair if stage is not None]
    return Chain((*([] if smooth is None else [Smoothing(smooth)]), *mixed))


def rotation_dtype(config: DuQuantConfig) -> torch.dtype:
    """The type rotations are rounded to."""
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
        config.transform_dtype
    ]
