"""From a dense layer and a sample of its inputs to a quantized one: search, fold, quantize, fill."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ..config import UNQUANTIZED, DuQuantConfig
from ..layer import DuQuantLinear, InputTransform
from ..numerics import (
    Chain,
    InputSample,
    Rotation,
    activation_parameters,
    at_least_float32,
    block_basis,
    bounds_of,
    find_transform,
    pad_columns,
    quantize_weight,
)


def build_layer(linear: nn.Linear, config: DuQuantConfig, rows: Tensor | InputSample) -> DuQuantLinear:
    """Quantize a copy of one layer, from input rows ``(rows, in)`` or a sample of them."""
    seen = rows if isinstance(rows, InputSample) else InputSample.of(rows)
    chain = find_transform([linear.weight], config, seen)
    transform = InputTransform(linear.in_features, config, linear.weight.device)
    transform.fill(chain)
    return fill_layer(linear, config, seen, transform)


@torch.no_grad()
def fill_layer(
    linear: nn.Linear,
    config: DuQuantConfig,
    seen: InputSample | None,
    transform: InputTransform,
    *,
    chain: Chain | None = None,
    rows_over: Tensor | None = None,
    weight_bits: int | None = None,
) -> DuQuantLinear:
    """Quantize a copy of a layer whose transform is known."""
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
        low, high = bounds_of(rows, config) if seen.bounds is None else seen.bounds
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
    """A weight with divided rows, in float32 at least."""
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
