"""From a dense layer and what its inputs look like to a quantized one: search, fold, quantize, fill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from .buffers import InputTransform
from .config import UNQUANTIZED, DuQuantConfig
from .linear import DuQuantLinear
from .permutations import alternating, column_energy, zigzag
from .ranges import activation_parameters, bounds_of
from .rotations import block_basis, greedy_rotation, hadamard
from .stages import padded, rotation_dtype, stage_counts
from .transforms import Chain, Permutation, Rotation, Smoothing, Transform, at_least_float32, pad_columns
from .weights import quantize_weight

SMALLEST_DIVISOR = 1e-5


@dataclass(frozen=True)
class Seen:
    """What is known about the inputs of a group of layers.

    Attributes:
        rows: Some input rows, of shape ``(rows, in)``.
        peak: The largest absolute value of every channel, of shape ``(in,)``.
        bounds: Smallest and largest value of every channel behind the transform that a static scale has to
            cover, each of shape ``(width,)``; None to take them from ``rows``.
    """

    rows: Tensor
    peak: Tensor
    bounds: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, rows: Tensor) -> Seen:
        """All there is to know is some rows."""
        peak = rows.abs().amax(0) if len(rows) else rows.new_zeros(rows.shape[1])
        return cls(rows, peak)


def build_layer(linear: nn.Linear, config: DuQuantConfig, rows: Tensor | Seen) -> DuQuantLinear:
    """Quantize one layer.

    Args:
        linear: The dense layer, which stays as it is.
        config: How.
        rows: Input rows of shape ``(rows, in)``, or what else is known about them.
    """
    seen = rows if isinstance(rows, Seen) else Seen.of(rows)
    chain = find_transform([linear.weight], config, seen)
    transform = InputTransform(linear.in_features, config, linear.weight.device)
    transform.fill(chain)
    return fill_layer(linear, config, seen, transform)


@torch.no_grad()
def find_transform(
    weights: Sequence[Tensor], config: DuQuantConfig, seen: Seen | None, *, scale: Tensor | None = None
) -> Chain:
    """The transform of the input that some layers share.

    Args:
        weights: Their weights, each of shape ``(out, in)``.
        config: Which stages there are.
        seen: Their input; None only if the configuration does not look at it.
        scale: The divisors of smoothing that is left to the module before, of shape ``(in,)``.
    """
    features, size = weights[0].shape[1], config.block_size
    width = padded(features, size)
    weight = torch.cat([pad_columns(w.detach().float(), width) for w in weights])
    rows = weight.new_zeros(0, width) if seen is None else pad_columns(seen.rows.to(weight), width)
    stages: list[Transform] = []
    search = _Search(config, features, width // size)

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


class _Search:
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

    Args:
        peak: The largest absolute activation of every channel, of shape ``(in,)``.
        reach: The largest absolute weight of every channel, in all layers behind it, of shape ``(in,)``.
        alpha: 0 moves no difficulty to the weight, 1 moves all.
    """
    scale = peak.pow(alpha) / reach.pow(1 - alpha)
    usable = (peak > 0) & (reach > 0)
    return torch.where(usable, scale.clamp(min=SMALLEST_DIVISOR), torch.ones_like(scale))


@torch.no_grad()
def fill_layer(
    linear: nn.Linear,
    config: DuQuantConfig,
    seen: Seen | None,
    transform: InputTransform,
    *,
    chain: Chain | None = None,
    rows_over: Tensor | None = None,
    weight_bits: int | None = None,
) -> DuQuantLinear:
    """Quantize a layer whose transform is known.

    Args:
        linear: The dense layer, which stays as it is.
        config: How.
        seen: Its input; None only if the configuration does not look at it.
        transform: What the layer does to its input.
        chain: What is done to it in all, where smoothing is left to the module before.
        rows_over: Divisors of the outputs, of shape ``(out,)``: smoothing of the layers behind.
        weight_bits: In place of the configuration's.
    """
    weight: Tensor = linear.weight.detach()
    bias: Tensor | None = cast(Any, linear).bias
    over = None if rows_over is None else rows_over.to(weight.device)
    layer = DuQuantLinear(
        linear.in_features, linear.out_features, config, bias=bias is not None, weight_bits=weight_bits,
        transform=transform, device=weight.device, dtype=weight.dtype,
    )  # fmt: skip
    layer.train(linear.training)
    if bias is not None:
        assert layer.bias is not None
        layer.bias.copy_(bias if over is None else at_least_float32(bias) / over)
    weight = rows_divided(weight, over)
    chain = chain or transform.chain()
    folded = chain.fold_into(pad_columns(weight, transform.width))
    if layer.row_rotation is not None:
        folded = _rotate_rows(folded, weight, layer.row_rotation)
    rows = None if seen is None else chain.apply(pad_columns(seen.rows.to(folded), transform.width))
    inputs = None if rows is None or layer.act_scale is not None else layer.on_grid(rows)
    if layer.act_scale is not None:
        assert rows is not None and seen is not None
        low, high = seen.bounds or bounds_of(rows, config)
        scale, zero = activation_parameters(low.to(folded), high.to(folded), rows, config)
        layer.act_scale.copy_(scale)
        if layer.act_zero is not None:
            layer.act_zero.copy_(zero)
        inputs = layer.on_grid(rows, codes=layer.folds)
        if layer.folds:
            folded, rows = folded * layer.act_scale, rows / layer.act_scale
    if layer.weight_bits >= UNQUANTIZED:
        layer.fill(folded)
    else:
        layer.fill(quantize_weight(folded, layer.weight_bits, config, rows=rows, seen=inputs))
    return layer


def rows_divided(weight: Tensor, over: Tensor | None) -> Tensor:
    """A weight with its rows over some numbers, in float32 at least."""
    weight = at_least_float32(weight)
    return weight if over is None else weight / over.to(weight)[:, None]


def _rotate_rows(folded: Tensor, weight: Tensor, rotation: Tensor) -> Tensor:
    """The weight with rotated rows; fills ``rotation`` with what restores the output.

    With ``y = y_t U`` for each block of outputs the weight's rows become ``U^-T W``.
    """
    basis = block_basis(weight.detach().T, rotation.shape[-1])
    rotation.copy_(basis)
    columns = pad_columns(folded.T, rotation.shape[0] * rotation.shape[-1])
    return Rotation(rotation).inverse(columns).T.contiguous()
