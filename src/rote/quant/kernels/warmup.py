"""Compiling everything before a graph is captured."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .ops import Grid, Transform, linear
from .packing import PackedWeight


def warmup(
    sizes: Iterable[int],
    change: Transform,
    grid: Grid,
    weight: PackedWeight,
    bias: Tensor | None = None,
    *,
    features: int,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Run a layer once for each number of rows, so that none of its kernels is compiled later.

    Kernels differ by the bucket of the number of rows, the shapes and the options of a layer; those of a
    second layer of the same kind are there already, and cost a launch.

    Args:
        sizes: Numbers of rows that the layer will get.
        change: The layer's transform.
        grid: The layer's grid.
        weight: The layer's weight.
        bias: The layer's bias.
        features: Features of the layer's input.
        dtype: Type of the layer's input.
    """
    device = weight.codes.device
    for tokens in sorted(set(sizes)):
        linear(torch.zeros(tokens, features, dtype=dtype, device=device), change, grid, weight, bias)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
