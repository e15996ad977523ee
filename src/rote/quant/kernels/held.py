"""Launches of the kernel that takes wide rows one at a time and holds the permutation and the matrices.

It is faster than :mod:`~.jit.transform`, and takes only bfloat16 rows of whole blocks, without smoothing, to
codes of 8 bits with a scale for each row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .launching import gpu, interpreted, module, starts_early
from .table import RowCut, bucket
from .target import ASYMMETRIC, SYMMETRIC, RowTarget


def suits(x: Tensor, smooth: Tensor | None, r1: Tensor, r2: Tensor, to: RowTarget) -> bool:
    """Whether the kernel does a transform."""
    width, size = to.rows.shape[1], r1.shape[-1]
    blocks = width // size
    if smooth is not None or size not in (64, 128) or r2.shape[-1] != size or x.shape[1] != width:
        return False
    if to.mode not in (SYMMETRIC, ASYMMETRIC) or (to.low, to.high) != (-128, 127):
        return False
    if blocks < 16 or blocks & (blocks - 1) or blocks * size != width or width > 16384:
        return False
    plain = {x.dtype, r1.dtype, r2.dtype} == {torch.bfloat16}
    return plain or interpreted(module("held").held)


def launch(
    x: Tensor, r1: Tensor, order: Tensor, r2: Tensor, to: RowTarget, work: Tensor | None, pdl: bool,
    cut: RowCut,
) -> None:  # fmt: skip
    """Rotate, permute and rotate rows to int8 codes, and write zeros to ``work``.

    Rotations have the shape ``(1, size, size)``. With ``pdl`` the successor starts early.
    """
    kernel = module("held").held
    exact = interpreted(kernel)
    early = starts_early(x, kernel)
    tokens, width = to.rows.shape
    size = r1.shape[-1]
    programs = gpu(x)[1] * cut.programs
    constants: dict[str, Any] = {
        "B": size, "STEP": size.bit_length() - 1, "NB": width // size, "MODE": to.mode,
        "MANY": bucket(tokens) > programs, "EXACT": exact, "WAIT": early, "PDL": pdl and early,
        "ZERO": to.zero.numel() > 0, "num_warps": cut.warps, "num_stages": 1, "launch_pdl": early,
    }  # fmt: skip
    kernel[(min(tokens, programs),)](
        x, r1, order, r2, to.rows, to.scale, to.zero, to.total, to.total if work is None else work, tokens,
        0 if work is None else work.numel(), width, to.clip, **constants,
    )  # fmt: skip
