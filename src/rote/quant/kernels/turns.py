"""Launches of the kernel for rotations with a matrix for each block, under static scales of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from .gemm import MOST_WEIGHTS
from .jit import interpreted, module

Turn = tuple[Sequence[Tensor], Tensor | None]
"""A layer's stages, and the static scale of its input."""

SMALLEST, LARGEST = 16, 64
"""Channels in a block."""


def suits(smooth: Tensor | None, stages: Sequence[Tensor], scale: Tensor | None, width: int) -> bool:
    """Whether the kernel does a transform: maybe a permutation, then matrices of their own for the blocks."""
    if smooth is not None or scale is None or scale.numel() != width or not 1 <= len(stages) <= 2:
        return False
    *before, last = stages
    size = last.shape[-1]
    each = last.dim() == 3 and last.shape[0] * size == width and last.shape[0] > 1
    return each and SMALLEST <= size <= LARGEST and all(stage.dim() == 1 for stage in before)


def launch(
    x: Tensor, every: Sequence[Turn], out: Tensor, work: Tensor | None, grid: Grid, pdl: bool,
    early: int = 0, bm: int = 16, warps: int = 1,
) -> None:  # fmt: skip
    """Transform and quantize rows for up to three layers.

    Args:
        x: Of shape ``(tokens, features)``.
        every: What each layer does to them.
        out: Codes (int8), or the same as numbers (floating), of shape ``(layers, tokens, width)``.
        work: Filled with zeros, for the product that follows.
        grid: Of the codes.
        pdl: The next launch may start early.
    """
    kernels = module("jit_turns")
    real = not interpreted(kernels.turn)
    tokens, width = x.shape[0], out.shape[-1]
    size = every[0][0][-1].shape[-1]
    named: dict[str, Any] = {}
    for index in range(MOST_WEIGHTS):
        stages, scale = every[index] if index < len(every) else ((None, None), None)
        named |= {f"order_{index}": stages[0], f"matrices_{index}": stages[-1], f"divisor_{index}": scale}
    programs = (width // size, -(-tokens // bm), len(every))
    kernels.turn[programs](
        x=x, **named, q=out, scale=None, work=out if work is None else work, M=tokens,
        COUNT=0 if work is None else work.numel(), WIDTH=x.shape[1], K=width,
        MEMBERS=len(every), ORDER=len(every[0][0]) > 1, B=size, BM=bm, CHANNELS=size, LOW=grid.low,
        HIGH=grid.high, EARLY=early if real else 0, PDL=pdl and real, num_warps=warps,
        launch_pdl=bool(early) and real,
    )  # fmt: skip
