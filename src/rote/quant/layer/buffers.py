"""Modules whose buffers keep their types.

``model.to(torch.bfloat16)`` casts every floating buffer, and scales or rotations in bfloat16 would no longer
be those that the weight was quantized with. Modules here move between devices and otherwise stay what they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..config import DuQuantConfig
from ..kernels import exact, obstacle
from ..numerics import (
    Chain,
    Permutation,
    Rotation,
    at_least_float32,
    chain_of,
    padded,
    rotation_dtype,
    stage_counts,
)


class FixedTypes(nn.Module):
    """A module whose own buffers keep their types, apart from those named in ``free_buffers``."""

    free_buffers: frozenset[str] = frozenset()

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> FixedTypes:
        held = {name: tensor for name, tensor in self._buffers.items() if tensor is not None}
        super()._apply(fn, recurse)
        for name, before in held.items():
            after = self._buffers[name]
            assert after is not None
            if name not in self.free_buffers and after.dtype != before.dtype:
                if before.is_meta:  # to_empty: there is nothing to keep
                    self._buffers[name] = torch.empty_like(before, device=after.device)
                else:
                    self._buffers[name] = before.to(after.device)
        return self


class InputTransform(FixedTypes):
    """The transform of a layer's input, which a group of layers may share.

    Until it is filled, it does nothing but pad.
    """

    smooth: Tensor | None
    is_exact: bool
    """Whether kernels do all of it, and multiply in float32."""

    def __init__(self, features: int, config: DuQuantConfig, device: torch.device | None = None) -> None:
        super().__init__()
        self.features = features
        self.width = padded(features, config.block_size)
        self.permute_first = config.permute_first
        self.turns, self.moves = stage_counts(config)
        size = config.block_size
        sets = 1 if config.shared_rotation else self.width // size
        ones = torch.ones(self.width, device=device, dtype=torch.float32)
        divides = config.smooth_alpha is not None and not config.fold_smoothing
        smooth = ones if divides else None
        self.register_buffer("smooth", smooth)
        for i in range(self.turns):
            eye = torch.eye(size, device=device, dtype=rotation_dtype(config))
            self.register_buffer(f"rotation_{i}", eye.repeat(sets, 1, 1))
        for i in range(self.moves):
            order = torch.arange(self.width, device=device, dtype=torch.int32)
            self.register_buffer(f"order_{i}", order)
        turns = [f"rotation_{i}" for i in range(self.turns)]
        moves = [f"order_{i}" for i in range(self.moves)]
        first, second = (moves, turns) if self.permute_first else (turns, moves)
        self._names = [name for pair in zip_longest(first, second) for name in pair if name is not None]
        self.is_exact = exact(self.stages) and not obstacle(self.stages, self.width)

    @property
    def rotations(self) -> list[Tensor]:
        """The matrices of each rotation, in order."""
        return [getattr(self, f"rotation_{i}") for i in range(self.turns)]

    @property
    def orders(self) -> list[Tensor]:
        """The permutations, in order."""
        return [getattr(self, f"order_{i}") for i in range(self.moves)]

    @property
    def stages(self) -> list[Tensor]:
        """Rotations and permutations, as they follow each other."""
        held = self._buffers  # getattr takes a microsecond each
        return [cast(Tensor, held[name]) for name in self._names]

    def chain(self) -> Chain:
        """The transform as a value."""
        return chain_of(self.smooth, self.stages)

    def reference(self, rows: Tensor) -> Tensor:
        """Padded rows, transformed in a readable way: one block after the other, with nothing clever."""
        rows = at_least_float32(rows)
        for stage in self.chain().stages:
            if isinstance(stage, Permutation):
                rows = rows[:, stage.order]
            elif isinstance(stage, Rotation):
                size, blocks = stage.blocks.shape[-1], stage.blocks.to(rows)
                parts = rows.split(size, dim=1)
                rows = torch.cat([part @ blocks[i % len(blocks)] for i, part in enumerate(parts)], dim=1)
            else:
                rows = stage.apply(rows)
        return rows

    def fill(self, chain: Chain) -> None:
        """Take over the tensors of a transform with the same stages (smoothing may be left to others)."""
        turns, moves = iter(self.rotations), iter(self.orders)
        for stage in chain.stages:
            if isinstance(stage, Rotation):
                next(turns).copy_(stage.blocks)
            elif isinstance(stage, Permutation):
                next(moves).copy_(stage.order)
            elif self.smooth is not None:
                self.smooth.copy_(stage.scale)

    def extra_repr(self) -> str:
        """Widths and stages."""
        smooth = "" if self.smooth is None else ", smoothed"
        return f"{self.features} -> {self.width}, rotations={self.turns}, permutations={self.moves}{smooth}"
