"""Launches of the kernels that spread each row over programs: one for each rotation, and one for codes.

They pay where rows are wide and few. The price is float32 rows in memory between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .launching import interpreted, module, starts_early
from .table import RowCut
from .target import ASYMMETRIC, SYMMETRIC, RowTarget

CHANNELS = 2048
"""Channels of a row that one program turns to codes."""


def launch(
    x: Tensor, smooth: Tensor | None, r1: Tensor, order: Tensor, r2: Tensor, to: RowTarget,
    work: Tensor | None, cut: RowCut,
) -> None:  # fmt: skip
    """Rotate, permute and rotate rows to int8 codes, and write zeros to ``work``.

    Rotations have the shape ``(1, size, size)``.
    """
    kernels = module("spread")
    exact = interpreted(kernels.first)
    early = starts_early(x, kernels.first)
    tokens, width = to.rows.shape
    size = r1.shape[-1]
    blocks, tiles = width // size, -(-tokens // cut.tokens)
    dynamic = to.mode in (SYMMETRIC, ASYMMETRIC)
    turned = x.new_empty(tiles * cut.tokens * width, dtype=torch.float32)
    rows = x.new_empty(tokens * width if dynamic else 0, dtype=torch.float32)
    ranges = x.new_empty(2 * tokens * blocks if dynamic else 0, dtype=torch.float32)
    common: dict[str, Any] = {"total": to.total, "M": tokens, "K": width, "PDL": early, "launch_pdl": early}
    tile: dict[str, Any] = {
        "turned": turned, "B": size, "T": cut.tokens, "EXACT": exact, "num_warps": cut.warps, "num_stages": 1
    }  # fmt: skip
    grid: dict[str, Any] = {
        "rows": rows, "ranges": ranges, "q": to.rows, "scale": to.scale, "zero": to.zero, "MODE": to.mode,
        "LOW": to.low, "HIGH": to.high, "ZERO": to.zero.numel() > 0,
    }  # fmt: skip
    kernels.first[(blocks, tiles)](
        x=x, smooth=smooth, r1=r1, work=to.total if work is None else work,
        COUNT=0 if work is None else work.numel(), WIDTH=x.shape[1], SMOOTH=smooth is not None,
        SPLIT_X=x.dtype != torch.bfloat16 or smooth is not None, SPLIT_R=r1.dtype != torch.bfloat16,
        **common, **tile,
    )  # fmt: skip
    kernels.second[(blocks, tiles)](
        order=order, r2=r2, static_scale=to.static_scale, static_zero=to.static_zero,
        ORIGIN=to.static_zero is not None, SPLIT_R=r2.dtype != torch.bfloat16, **common, **tile, **grid,
    )  # fmt: skip
    if dynamic:
        channels = min(CHANNELS, 1 << (width - 1).bit_length())
        kernels.codes[(-(-width // channels), tokens)](
            BLOCKS=blocks, P=1 << (blocks - 1).bit_length(), clip=to.clip, CHANNELS=channels, num_warps=4,
            **common, **grid,
        )  # fmt: skip
