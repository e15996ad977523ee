"""Chains of tiny kernels: nothing but launches."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .place import place


def build(length: int = 100, small: bool = False, device: str | None = None) -> Any:
    """As many sines, one after another, of 1,024 numbers."""
    at = place(device, small)

    def chain(x: Tensor) -> Tensor:
        for _ in range(min(length, 20) if small else length):
            x = x.sin()
        return x

    return chain, (at.randn(1024),), {}
