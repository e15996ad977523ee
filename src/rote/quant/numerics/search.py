"""The search for the stages of a transform, from weights and samples of their input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import DuQuantConfig
from .rotations import block_basis, greedy_rotation, hadamard
from .transforms import (
    Chain,
    Permutation,
    Rotation,
    Smoothing,
    Transform,
    pad_columns,
    padded,
    rotation_dtype,
    stage_kinds,
)

SMALLEST_DIVISOR = 1e-5


@dataclass(frozen=True)
class InputSample:
    """A sample of the inputs of a group of layers.

    Attributes:
        rows: Some input rows, of shape ``(rows, in)``.
        peak: The largest absolute value of every channel, of shape ``(in,)``.
        bounds: Smallest and largest value, ``(2, width)``, that a static scale has to cover in every
            transformed channel; None to take them from ``rows``.
    """

    rows: Tensor
    peak: Tensor
    bounds: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor) -> InputSample:
        """A sample of which only the rows are known."""
        peak = rows.abs().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
        return cls(rows, peak)


@torch.no_grad()
def find_transform(
    weights: Sequence[Tensor], config: DuQuantConfig, seen: InputSample | None, *, scale: Tensor | None = None
) -> Chain:
    """The transform of the input that layers with ``weights``, each ``(out, in)``, share.

    ``seen`` is None only if the configuration does not look at the input. ``scale``, of shape ``(in,)``, are
    the divisors where the module before does the smoothing.
    """
    features = weights[0].shape[1]
    width = padded(features, config.block_size)
    weight = torch.cat([pad_columns(w.detach().float(), width) for w in weights])
    rows = weight.new_zeros(0, width) if seen is None else pad_columns(seen.rows.to(weight), width)
    stages: list[Transform] = []
    generator = torch.Generator().manual_seed(config.seed)

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
    for kind in stage_kinds(config):
        if kind == "rotation":
            add(_rotation(config, rows, weight, features, generator))
        else:
            add(_permutation(config, rows, weight, features))
    return Chain(tuple(stages))


def _rotation(
    config: DuQuantConfig, rows: Tensor, weight: Tensor, features: int, generator: torch.Generator
) -> Rotation:
    size, blocks = config.block_size, weight.shape[1] // config.block_size
    if config.rotation == "svd":
        found = block_basis(weight[:, :features], size)
    elif config.rotation == "hadamard":
        found = hadamard(size).repeat(1 if config.shared_rotation else blocks, 1, 1)
    else:
        sets = rows.reshape(1, -1, size)
        if not config.shared_rotation:
            sets = rows.reshape(-1, blocks, size).transpose(0, 1)
        found = greedy_rotation(sets, config.rotation_steps, generator)
    return Rotation(found.to(weight.device, rotation_dtype(config)))


def _permutation(config: DuQuantConfig, rows: Tensor, weight: Tensor, features: int) -> Permutation:
    width = weight.shape[1]
    if config.permutation == "energy":  # padding stays behind the channels
        order = alternating(column_energy(weight[:, :features]))
        order = torch.cat([order, torch.arange(features, width)])
    else:
        sizes = rows.abs().amax(0) if len(rows) else rows.new_zeros(width)
        order = zigzag(sizes, width // config.block_size)
    return Permutation(order.to(weight.device, torch.int32))


def smoothing_scale(peak: Tensor, reach: Tensor, alpha: float) -> Tensor:
    """``peak^alpha / reach^(1 - alpha)``, 1 for channels that are always zero.

    ``peak`` is the largest absolute activation of every channel, ``reach`` the largest absolute weight,
    both of shape ``(in,)``. With ``alpha=0`` no difficulty moves to the weight, with 1 all.
    """
    scale = peak.pow(alpha) / reach.pow(1 - alpha)
    usable = (peak > 0) & (reach > 0)
    return torch.where(usable, scale.clamp(min=SMALLEST_DIVISOR), torch.ones_like(scale))


def zigzag(sizes: Tensor, blocks: int) -> Tensor:
    """Deal channels, the largest first, to the blocks: 0, 1, ... K-1, K-1, ... 1, 0, 0, 1, ...

    ``sizes`` has the shape ``(width,)``, a multiple of ``blocks``. Inside a block the order descends; equal
    sizes keep their order. Place ``j`` takes channel ``order[j]``; the order is int64, on the CPU.
    """
    ranked = torch.sort(sizes.cpu(), descending=True, stable=True).indices
    rounds = ranked.reshape(-1, blocks).clone()
    rounds[1::2] = rounds[1::2].flip(1)
    return rounds.T.reshape(-1)


def alternating(energy: Tensor) -> Tensor:
    """The largest channel, the smallest, the second largest, the second smallest, and so on.

    The policy variant's order of channels by their ``energy``, of shape ``(width,)``; int64 on the CPU. It is
    the opposite of levelling blocks: the first one gets the extremes, the last one the middle.
    """
    ranked = torch.sort(energy.cpu(), descending=True, stable=True).indices
    order = torch.empty_like(ranked)
    half = (len(ranked) + 1) // 2
    order[0::2] = ranked[:half]
    order[1::2] = ranked[half:].flip(0)
    return order


def column_energy(weight: Tensor) -> Tensor:
    """The mean square of each column of a weight, float64, of shape ``(in,)``."""
    return weight.double().square().mean(0)
