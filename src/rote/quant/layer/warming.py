"""Compiling kernels before a graph is captured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ...base import OptionError
from ..config import is_whole
from .fusion import Fused, together
from .linear import DuQuantLinear


@torch.no_grad()
def warmup(model: nn.Module, sizes: Iterable[int], *, dtype: torch.dtype | None = None) -> None:
    """Run every quantized layer once for each number of rows, so that no kernel is compiled later.

    A kernel is compiled for a bucket of row counts, the shapes and options of a layer, and the type of its
    input. Layers of one kind share kernels; fused groups have their own. Layers that launch no kernel of this
    package are skipped.

    Args:
        model: With layers that :func:`~..quantize_` made.
        sizes: Numbers of rows (batch times sequence) that the layers will get.
        dtype: Type of their inputs; None takes each layer's own.

    Raises:
        OptionError: A size is not a whole number of at least 1.
    """
    wanted: list[Any] = sorted(set(sizes))
    for size in wanted:
        if not is_whole(size) or size < 1:
            raise OptionError(f"sizes: {size!r} must be a whole number of at least 1")
    devices: set[torch.device] = set()
    for layers in _called(model):
        first = layers[0]
        devices.add(first.marker.device)
        for size in wanted:
            kind = dtype or first.marker.dtype
            x = torch.zeros(size, first.in_features, device=first.marker.device, dtype=kind)
            if all(layer.path == "kernel" or layer.goes_fast(x) for layer in layers):
                _ = first(x) if len(layers) == 1 else together(layers, x)
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _called(model: nn.Module) -> Iterator[list[DuQuantLinear]]:
    """Each layer alone, and the layers of each fused group."""
    for module in model.modules():
        if isinstance(module, DuQuantLinear):
            yield [module]
        if isinstance(module, Fused):
            for group in module.fused_groups:
                yield [getattr(module, name) for name in group]
