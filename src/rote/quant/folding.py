"""Smoothing that costs nothing at run time: its divisors go into the norm before a group of layers.

Calibration says which norm a layer's input came from, as the very same tensor, in every call, and whether
something else reads the norm's output too (a residual that leaves behind the norm, a router written by hand;
see ``readers``). A norm is folded into if it feeds one group only, and nothing else.

Whether a norm multiplies by its weight ``w`` or by ``1 + w`` (Gemma) is found out by trying it on random
rows; one that does neither is left alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from .stats import CalibrationStats

OTHERS = ""
"""In ``stats.sources``, in place of a layer's name: whatever else reads a norm's output."""

PROBES = 4
"""Random rows that a norm is tried on."""


@dataclass(frozen=True)
class Fold:
    """New parameters of a norm.

    Attributes:
        norm: The module.
        weight: Its new weight.
        bias: Its new bias, if it has one.
    """

    norm: nn.Module
    weight: Tensor
    bias: Tensor | None

    @torch.no_grad()
    def apply(self) -> None:
        """Write them."""
        module: Any = self.norm
        module.weight.copy_(self.weight)
        if self.bias is not None:
            module.bias.copy_(self.bias)


def is_norm(module: nn.Module) -> bool:
    """Whether a module looks like a norm: by the name of its class, with a vector of weights."""
    weight = getattr(module, "weight", None)
    return "Norm" in type(module).__name__ and isinstance(weight, nn.Parameter) and weight.ndim == 1


def source_of(group: Sequence[str], stats: CalibrationStats) -> str | None:
    """The norm that feeds a group of layers, in every call, and nothing else."""
    found = {norm for layer in group for norm in stats.sources.get(layer, {})}
    if len(found) != 1:
        return None
    (norm,) = found
    if any(stats.sources.get(layer, {}).get(norm) != stats.layers[layer].calls for layer in group):
        return None
    fed = {layer for layer, norms in stats.sources.items() if norm in norms}
    return norm if fed == set(group) else None


@torch.no_grad()
def find_fold(norm: nn.Module, scale: Tensor) -> Fold | None:
    """How a norm's output is divided by some numbers.

    Args:
        norm: Stays as it is.
        scale: The divisors, of shape ``(features,)``.

    Returns:
        None if it is no norm that multiplies by its weight, or by one plus it.
    """
    module = cast(Any, norm)
    weight: Tensor = module.weight
    bias: Tensor | None = getattr(module, "bias", None)
    if weight.shape != scale.shape:
        return None
    wide = scale.to(weight.device, torch.float32)
    new_bias = None if bias is None else (bias.float() / wide).to(bias.dtype)
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(PROBES, len(scale), generator=generator, dtype=torch.float32).to(weight)
    before = norm(probe).float()
    loose = 4 * torch.finfo(weight.dtype).eps
    for shift in (0.0, 1.0):
        fold = Fold(norm, ((weight.float() + shift) / wide - shift).to(weight.dtype), new_bias)
        with _tried(fold):
            after = norm(probe).float() * wide
        if torch.allclose(after, before, rtol=loose, atol=loose * float(before.abs().max())):
            return fold
    return None


@contextmanager
def _tried(fold: Fold) -> Generator[None]:
    """With the new parameters in place, for a moment."""
    module = cast(Any, fold.norm)
    bias = None if fold.bias is None else module.bias.detach().clone()
    before = Fold(fold.norm, module.weight.detach().clone(), bias)
    fold.apply()
    try:
        yield
    finally:
        before.apply()
