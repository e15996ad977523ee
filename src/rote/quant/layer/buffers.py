"""Modules whose buffers keep their types.

``model.to(torch.bfloat16)`` casts every floating buffer, and the weight was not quantized with scales or
rotations in bfloat16. Modules here move between devices and keep their types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..config import DuQuantConfig
from ..kernels import exact, obstacle
from ..numerics import (
    Chain,
    Permutation,
    Rotation,
    Smoothing,
    at_least_float32,
    chain_of,
    padded,
    rotation_dtype,
    stage_kinds,
)


class FixedTypes(nn.Module):
    """A module whose own buffers keep their types, except for ``free_buffers``."""

    free_buffers: frozenset[str] = frozenset()

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> FixedTypes:
        held = {name: tensor for name, tensor in self._buffers.items() if tensor is not None}
        super()._apply(fn, recurse)
        for name, before in held.items():
            after = self._buffers[name]
            assert after is not None
            if name not in self.free_buffers and after.dtype != before.dtype:
                empty = before.is_meta  # to_empty: there is nothing to keep
                self._buffers[name] = (
                    torch.empty_like(before, device=after.device) if empty else before.to(after.device)
                )
        return self


class InputTransform(FixedTypes):
    """The transform of a layer's input, which a group of layers may share; an empty one only pads."""

    smooth: Tensor | None
    is_exact: bool
    """Whether kernels do all of it, and multiply in float32."""

    def __init__(self, features: int, config: DuQuantConfig, device: torch.device | None = None) -> None:
        super().__init__()
        self.features = features
        self.width = padded(features, config.block_size)
        sets = 1 if config.shared_rotation else self.width // config.block_size
        divides = config.smooth_alpha is not None and not config.fold_smoothing
        ones = torch.ones(self.width, device=device, dtype=torch.float32)
        self.register_buffer("smooth", ones if divides else None)
        self.names: list[str] = []
        for kind in stage_kinds(config):
            if kind == "rotation":
                eye = torch.eye(config.block_size, device=device, dtype=rotation_dtype(config))
                stage = eye.repeat(sets, 1, 1)
            else:
                stage = torch.arange(self.width, device=device, dtype=torch.int32)
            self.names.append(f"{kind}_{len(self._of(kind))}")
            self.register_buffer(self.names[-1], stage)
        self.is_exact = exact(self.stages) and not obstacle(self.stages, self.width)

    def _of(self, kind: str) -> list[Tensor]:
        return [getattr(self, name) for name in self.names if name.startswith(kind)]

    @property
    def rotations(self) -> list[Tensor]:
        """The matrices of each rotation, in order."""
        return self._of("rotation")

    @property
    def orders(self) -> list[Tensor]:
        """The permutations, in order."""
        return self._of("order")

    @property
    def stages(self) -> list[Tensor]:
        """Rotations and permutations, as they follow each other."""
        held = self._buffers  # getattr takes a microsecond each
        return [cast(Tensor, held[name]) for name in self.names]

    def chain(self) -> Chain:
        """The transform as a value."""
        return chain_of(self.smooth, self.stages)

    def reference(self, rows: Tensor) -> Tensor:
        """Padded rows, transformed one block after the other, with nothing clever."""
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
        held = iter(self.stages)
        for stage in chain.stages:
            if isinstance(stage, Smoothing):
                if self.smooth is not None:
                    self.smooth.copy_(stage.scale)
            else:
                next(held).copy_(stage.blocks if isinstance(stage, Rotation) else stage.order)

    def extra_repr(self) -> str:
        """Widths and stages."""
        smooth = "" if self.smooth is None else ", smoothed"
        counts = f"rotations={len(self.rotations)}, permutations={len(self.orders)}"
        return f"{self.features} -> {self.width}, {counts}{smooth}"
