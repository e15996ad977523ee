"""How operands and results look; tensors that look alike share one object in all calls of a tree.

Calls compare operations by their operands and results, so most comparisons are by identity.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

MAX_LOOKS = 4096
"""Looks that are remembered; then all are forgotten, and compare by value with later ones."""


class Look(NamedTuple):
    """Metadata of a tensor without its offset."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    on_host: bool


class Looks:
    """The looks of a tree's tensors."""

    def __init__(self) -> None:
        self._known: dict[Look, Look] = {}

    def of(self, tensor: torch.Tensor) -> Look:
        """What a tensor looks like.

        Raises:
            RuntimeError: It has memory, but no shape.
        """
        return self.shared(Look(tensor.dtype, tensor.shape, tensor.stride(), tensor.is_cpu))

    def shared(self, look: Look) -> Look:
        """The one object for all looks that are equal to this one."""
        found = self._known.get(look)
        if found is None:
            if len(self._known) >= MAX_LOOKS:
                self._known.clear()
            found = self._known[look] = look
        return found
