"""Launches of the kernel for rotations with a matrix for each block, under static scales of channels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..numerics import Grid
from .gemm import MOST_WEIGHTS
from .launching import launch as jit_launch
from .launching import module, starts_early

Turn = tuple[Sequence[Tensor], Tensor | None]
"""A layer's stages, and the static scale of its input."""

SMALLEST, LARGEST = 16, 64
"""Channels in a block."""


def suits(smooth: Tensor | None, stages: Sequence[Tensor], scale: Tensor | None, width: int) -> bool:
    """Whether the kernel does a transform: a permutation or none, then a matrix for each block."""
    if smooth is not None or scale is None or scale.numel() != width or not 1 <= len(stages) <= 2:
        return False
    *before, last = stages
    size = last.shape[-1]
    each = last.dim() == 3 and last.shape[0] * size == width and last.shape[0] > 1
    return each and SMALLEST <= size <= LARGEST and all(stage.dim() == 1 for stage in before)


def launch(x: Tensor, every: Sequence[Turn], out: Tensor, work: Tensor | None, grid: Grid) -> None:
    """Transform and quantize rows ``(tokens, features)`` for up to three layers.

    ``out`` has the shape ``(layers, tokens, width)``: int8 gets codes, floating types what they stand for.
    ``work`` is filled with zeros, for the product that follows.
    """
    kernel = module("turns").turn
    early = starts_early(x, kernel)
    tokens, width = x.shape[0], out.shape[-1]
    matrices, moved = every[0][0][-1], len(every[0][0]) > 1
    size = matrices.shape[-1]
    bm, warps = (16, 2) if tokens <= 16 else (32, 4)
    members: list[Tensor | None] = []
    for stages, scale in every:
        members += [stages[0] if moved else None, stages[-1], scale]
    members += [None] * (3 * MOST_WEIGHTS - len(members))
    count = 0 if work is None else work.numel()
    constants = (len(every), moved, count > 0, size, bm, grid.low, grid.high, early)
    key = (x.device.index, x.dtype, matrices.dtype, out.dtype, x.shape[1], width, warps, *constants)
    programs = (width // size, -(-tokens // bm), len(every))
    values = (x, *members, out, work, tokens, count, x.shape[1], width, *constants)
    jit_launch(kernel, programs, values, key, {"num_warps": warps, "launch_pdl": early})
