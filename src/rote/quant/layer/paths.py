"""The readable way to transform rows: one block after the other, with nothing clever."""

from __future__ import annotations

import torch
from torch import Tensor

from ..numerics import Permutation, Rotation, Transform, at_least_float32
from .buffers import InputTransform


def reference_rows(rows: Tensor, transform: InputTransform) -> Tensor:
    """Padded rows ``(rows, width)``, transformed stage by stage and block by block."""
    rows = at_least_float32(rows)
    for stage in transform.chain().stages:
        rows = _reference_stage(rows, stage)
    return rows


def _reference_stage(rows: Tensor, stage: Transform) -> Tensor:
    if isinstance(stage, Permutation):
        return rows[:, stage.order]
    if isinstance(stage, Rotation):
        size, shared = stage.blocks.shape[-1], len(stage.blocks) == 1
        parts = [
            rows[:, i * size : (i + 1) * size] @ stage.blocks[0 if shared else i].to(rows)
            for i in range(rows.shape[1] // size)
        ]
        return torch.cat(parts, dim=1)
    return stage.apply(rows)
