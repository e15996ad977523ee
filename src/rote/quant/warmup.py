"""Compiling kernels before a graph is captured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from ..base.errors import OptionError
from .linear import DuQuantLinear


@torch.no_grad()
def warmup(model: nn.Module, sizes: Iterable[int], *, dtype: torch.dtype | None = None) -> None:
    """Run every quantized layer once for each number of rows, so that no kernel is compiled later.

    Kernels differ by the bucket of the number of rows, by the shapes and options of a layer and by the type
    of its input. Layers of one kind share them, and the second costs a launch. Layers whose path is not
    ``"kernel"`` have nothing to prepare. On a CPU this only runs the layers.

    Args:
        model: With layers that :func:`~rote.quant.quantize_` made.
        sizes: Numbers of rows (batch times sequence) that the layers will get.
        dtype: Type of their inputs; None takes each layer's own.

    Raises:
        OptionError: A size is not a whole number of at least 1.
    """
    wanted: list[Any] = sorted(set(sizes))
    for size in wanted:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise OptionError(f"sizes: {size!r} must be a whole number of at least 1")
    layers = [m for m in model.modules() if isinstance(m, DuQuantLinear) and m.path == "kernel"]
    for layer in layers:
        kind = dtype or layer.marker.dtype
        for size in wanted:
            layer(torch.zeros(size, layer.in_features, device=layer.marker.device, dtype=kind))
    for device in {layer.marker.device for layer in layers if layer.marker.is_cuda}:
        torch.cuda.synchronize(device)
