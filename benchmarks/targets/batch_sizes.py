"""Serving as it comes: 128 batch sizes in random order through one model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .place import Place, frozen, place

SIZES = 128


def build(size: int = SIZES, small: bool = False, device: str | None = None) -> Any:
    """One batch of some size through four layers."""
    at = place(device, small)
    model, width = network(at, small)
    return model, (at.randn(4 if small else size, width),), {}


def stream(small: bool = False, device: str | None = None) -> tuple[nn.Module, tuple[list[Tensor]]]:
    """The model, and a list with one batch of each size from 1 on, in random order."""
    at = place(device, small)
    model, width = network(at, small)
    order = (torch.randperm(8 if small else SIZES) + 1).tolist()
    return model, ([at.randn(size, width) for size in order],)


def network(at: Place, small: bool) -> tuple[nn.Module, int]:
    """Four linear layers with ReLUs, and their width."""
    width = 16 if small else 1024
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    return frozen(nn.Sequential(*layers), at), width
