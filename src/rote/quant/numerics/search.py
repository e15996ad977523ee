"""The search for the stages of a transform, from weights and from what is known about their input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .permutations import alternating, column_energy, zigzag
from .rotations import block_basis, greedy_rotation, hadamard
from .stages import padded, rotation_dtype, stage_counts
from .transforms import Chain, Permutation, Rotation, Smoothing, Transform, pad_columns

SMALLEST_DIVISOR = 1e-5


@dataclass(frozen=True)
class InputSample:
    """What is known about the inputs of a group of layers.

    Attributes:
        rows: Some input rows, of shape ``(rows, in)``.
        peak: The largest absolute value of every channel, of shape ``(in,)``.
        bounds: Smallest and largest value, ``(width,)``, of every transformed channel that a static scale
            has
            to cover; None to take them from ``rows``.
    """

    rows: Tensor
    peak: Tensor
    bounds: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, rows: Tensor) -> InputSample:
        """All there is to know is some rows."""
        peak = rows.abs().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
        return cls(rows, peak)


@torch.no_grad()
def find_transform(
    weights: Sequence[Tensor], config: DuQuantConfig, seen: InputSample | None, *, scale: Tensor | None = None
) -> Chain:
    """The transform of the input that layers with ``weights``, each ``(out, in)``, share.

    ``seen`` is None only if the configuration does not look at the input. ``scale`` are the divisors of
    smoothing that is left to the module before, of shape ``(in,)``.
    """
    features, size = weights[0].shape[1], config.block_size
    width = padded(features, size)
    weight = torch.cat([pad_columns(w.detach().float(), width) for w in weights])
    rows = weight.new_zeros(0, width) if seen is None else pad_columns(seen.rows.to(weight), width)
    stages: list[Transform] = []
    search = _StageSearch(config, features, width // size)

    def add(stage: Transform) -> None:
        nonlocal rows, weight
        stages.append(stage)
        rows, weight = stage.apply(rows), stage.fold_into(weight)

    if scale is not None:
        add(Smoothing(torch.cat([scale.to(weight), weight.new_ones(width - features)])))
    elif config.smooth_alpha is not None and not config.fold_smoothing:
        assert seen is not None
        peak = pad_columns(seen.peak.to(weight), width)
        add(Smoothing(smoothing_scale(peak, weight.abs().amax(0), config.smooth_alpha)))
    turns, moves = stage_counts(config)
    for i in range(max(turns, moves)):
        kinds = ("move", "turn") if config.permute_first else ("turn", "move")
        for kind in kinds:
            if kind == "turn" and i < turns:
                add(search.rotation(rows, weight))
            if kind == "move" and i < moves:
                add(search.permutation(rows, weight))
    return Chain(tuple(stages))


class _StageSearch:
    """Finds one stage after the other."""

    def __init__(self, config: DuQuantConfig, features: int, blocks: int) -> None:
        self.config, self.features, self.blocks = config, features, blocks
        self.generator = torch.Generator().manual_seed(config.seed)

    def rotation(self, rows: Tensor, weight: Tensor) -> Rotation:
        config, size = self.config, self.config.block_size
        if config.rotation == "svd":
            found = block_basis(weight[:, : self.features], size)
        elif config.rotation == "hadamard":
            found = hadamard(size).repeat(1 if config.shared_rotation else self.blocks, 1, 1)
        else:
            sets = rows.reshape(1, -1, size)
            if not config.shared_rotation:
                sets = rows.reshape(-1, self.blocks, size).transpose(0, 1)
            found = greedy_rotation(sets, config.rotation_steps, self.generator)
        return Rotation(found.to(weight.device, rotation_dtype(config)))

    def permutation(self, rows: Tensor, weight: Tensor) -> Permutation:
        if self.config.permutation == "energy":  # padding stays behind the channels
            order = alternating(column_energy(weight[:, : self.features]))
            order = torch.cat([order, torch.arange(self.features, weight.shape[1])])
        else:
            sizes = rows.abs().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
            order = zigzag(sizes, self.blocks)
        return Permutation(order.to(weight.device, torch.int32))


def smoothing_scale(peak: Tensor, reach: Tensor, alpha: float) -> Tensor:
    """``peak^alpha / reach^(1 - alpha)``, 1 for channels that are always zero.

    ``peak`` is the largest absolute activation of every channel, ``reach`` the largest absolute weight,
    both of shape ``(in,)``. With ``alpha=0`` no difficulty moves to the weight, with 1 all.
    """
    scale = peak.pow(alpha) / reach.pow(1 - alpha)
    usable = (peak > 0) & (reach > 0)
    return torch.where(usable, scale.clamp(min=SMALLEST_DIVISOR), torch.ones_like(scale))
