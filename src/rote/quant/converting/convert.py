"""``quantize_``: replace a model's linear layers by quantized ones, and report what was done to each.

Everything is built before anything is put in place, so an error at one layer leaves the model as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace as changed
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...base import MisuseError
from ..calibrating import (
    CalibrationStats,
    Candidate,
    Patterns,
    Smoothed,
    bytes_of,
    candidates,
    seen_together,
    share,
    smooth_group,
)
from ..config import UNQUANTIZED, DuQuantConfig
from ..layer import DuQuantLinear, InputTransform, fuse_, replace
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
from .measure import clipped_share, output_errors, stage_reports, weight_error
from .report import LayerReport, QuantReport


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


@torch.inference_mode(False)  # layers can be moved and differentiated later
@torch.no_grad()
def quantize_(
    model: nn.Module,
    config: DuQuantConfig,
    stats: CalibrationStats | None = None,
    *,
    include: Patterns = None,
    exclude: Patterns = None,
    dry_run: bool = False,
    stages: bool = False,
) -> QuantReport:
    """Quantize a model's linear layers, in place.

    Args:
        model: Its layers are replaced.
        config: How.
        stats: From :class:`~..calibrate`; None if the configuration needs none.
        include: Patterns of the layers to quantize; None is all. A pattern is a glob over the whole name, or
            a regular expression behind ``re:``.
        exclude: Patterns of layers that stay as they are.
        dry_run: Change nothing, and report what would be done.
        stages: Also report the input and the error behind every stage of the transforms, which takes longer.

    Returns:
        A row for every linear layer, quantized or with the reason why not, and for every module of another
        class that holds the weight of one.

    Raises:
        OptionError: A pattern fits no layer.
        MisuseError: Statistics are needed and missing, incomplete, or from another configuration or model.
    """
    found = candidates(model, config, include, exclude)
    if not dry_run:
        _check(config, stats)
    if stats is not None:
        found = [_seen(item, stats) for item in found]
    rows = {item.name: _row(item) for item in found}
    wanted = {item.name: item for item in found if not item.reason}
    groups = share({name: item.shape[1] for name, item in wanted.items()}, config, stats)
    smoothed = [smooth_group(model, group, config, stats, wanted) for group in groups]
    rows_over = {name: divisors for each in smoothed for name, divisors in each.rows.items()}
    layers: dict[str, DuQuantLinear] = {}
    for group, each in zip(groups, smoothed, strict=True):
        members = [wanted[name] for name in group]
        own = config.replace(fold_smoothing=False) if each.why_not else config  # divides its input itself
        if dry_run:
            made = _planned(members, own)
        else:
            made = _quantized(members, own, _samples(group, stats), each, rows_over, stages)
        for item, layer, errors in made:
            layers[item.name] = layer
            rows[item.name] = changed(_quantized_row(item, layer, group[0], each), **errors)
    if dry_run:
        return QuantReport(tuple(rows.values()), dry_run=True)
    for each in smoothed:
        if each.fold is not None:
            each.fold.apply()
    for name, layer in layers.items():
        replace(model, wanted[name].module, layer)
    if config.fuse_groups:
        for group in fuse_(model, None if stats is None else seen_together(wanted, stats)):
            for name in rows.keys() & group:
                others = ", ".join(other.rpartition(".")[2] for other in group if other != name)
                what = "launch" if rows[name].path == "kernel" else "transform"
                note = _joined(f"one {what} with {others}", rows[name].note)
                rows[name] = changed(rows[name], note=note)
    return QuantReport(tuple(rows.values()))


def _check(config: DuQuantConfig, stats: CalibrationStats | None) -> None:
    if stats is not None:
        stats.check(config)
        if not stats.done:
            raise MisuseError(f"calibration is not finished: {stats.batches} of {stats.wanted} batches")
    elif config.needs_calibration:
        raise MisuseError("this configuration needs calibration: pass stats from rote.quant.calibrate")


def _seen(item: Candidate, stats: CalibrationStats) -> Candidate:
    layer = stats.layers.get(item.name)
    if item.reason:
        return item
    if layer is None or not layer.count:
        return changed(item, reason="was not called in calibration")
    if len(layer.peak) != item.shape[1]:
        raise MisuseError(
            f"{item.name!r} takes {item.shape[1]} features, and took {len(layer.peak)} in calibration: "
            "calibrate this model"
        )
    return item


def _samples(group: list[str], stats: CalibrationStats | None) -> list[InputSample | None]:
    if stats is None:
        return [None] * len(group)
    layers = [stats.layers[name] for name in group]
    return [InputSample(layer.rows, layer.peak, layer.bounds) for layer in layers]


Made = Iterator[tuple[Candidate, DuQuantLinear, dict[str, Any]]]
"""Quantized layers, with the errors of their reports."""


def _quantized(
    members: list[Candidate],
    config: DuQuantConfig,
    samples: list[InputSample | None],
    smoothed: Smoothed,
    rows_over: Mapping[str, Tensor],
    stages: bool,
) -> Made:
    """Layers that share one transform."""
    linears = [cast(nn.Linear, item.module) for item in members]
    over = [rows_over.get(item.name) for item in members]
    weights = [
        linear.weight if divisors is None else rows_divided(linear.weight, divisors)
        for linear, divisors in zip(linears, over, strict=True)
    ]
    chain = find_transform(weights, config, samples[0], scale=smoothed.scale)
    transform = InputTransform(linears[0].in_features, config, linears[0].weight.device)
    transform.fill(chain)
    for item, linear, seen, divisors in zip(members, linears, samples, over, strict=True):
        bits = item.weight_bits
        layer = fill_layer(linear, config, seen, transform, chain=chain, rows_over=divisors, weight_bits=bits)
        rows = None if seen is None else seen.rows
        errors = _errors(linear, layer, rows, smoothed.scale, divisors)
        if stages and rows is not None:
            errors["stages"] = stage_reports(linear, chain, rows, config, bits)
        yield item, layer, errors


def _errors(
    linear: nn.Linear,
    layer: DuQuantLinear,
    rows: Tensor | None,
    columns_over: Tensor | None,
    rows_over: Tensor | None,
) -> dict[str, Any]:
    """The errors of a layer whose inputs and outputs may be over the divisors of smoothing."""
    weight = rows_divided(linear.weight, rows_over)
    weight = weight if columns_over is None else weight * columns_over.to(weight)
    errors: dict[str, Any] = {"weight_error": weight_error(layer, weight)}
    if rows is not None:
        given = rows if columns_over is None else rows / columns_over.to(rows)
        total, token = output_errors(linear, layer, rows, given, rows_over)
        errors |= {"output_error": total, "token_error": token, "clipped": clipped_share(layer, given)}
    return errors


def _planned(members: list[Candidate], config: DuQuantConfig) -> Made:
    """The layers of a group without memory."""
    transform = None
    for item in members:
        linear = cast(nn.Linear, item.module)
        layer = DuQuantLinear(
            linear.in_features, linear.out_features, config, bias=cast(Any, linear).bias is not None,
            weight_bits=item.weight_bits, transform=transform, device=torch.device("meta"),
            dtype=linear.weight.dtype,
        )  # fmt: skip
        transform = layer.transform
        yield item, layer, {}


def _row(item: Candidate) -> LayerReport:
    path = item.module.path if isinstance(item.module, DuQuantLinear) else "dense"
    size = bytes_of(item.module)
    return LayerReport(item.name, item.shape, item.reason, path=path, bytes_before=size, bytes_after=size)


def _quantized_row(item: Candidate, layer: DuQuantLinear, group: str, smoothed: Smoothed) -> LayerReport:
    """The row of a quantized layer; the first layer of a group counts what all share."""
    shared = 0 if item.name == group else bytes_of(layer.transform)
    return changed(
        _row(item), weight_bits=layer.weight_bits, act_bits=layer.config.act_bits, path=layer.path,
        note=_joined(smoothed.why_not, layer.note), group=group, bytes_after=bytes_of(layer) - shared,
    )  # fmt: skip


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
