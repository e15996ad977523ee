"""``quantize_``: put quantized layers in the place of a model's linear layers, and say what was done to each.

Everything is built before anything is put in place: if one layer cannot be quantized the error leaves the
model as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...base import MisuseError
from ..calibrating import (
    CalibrationStats,
    Candidate,
    LayerStats,
    Patterns,
    Smoothed,
    candidates,
    seen_together,
    share,
    share_by_name,
    smooth_group,
)
from ..config import DuQuantConfig
from ..layer import DuQuantLinear, InputTransform, fuse_, replace
from ..numerics import InputSample, find_transform
from .build import fill_layer, rows_divided
from .measure import clipped_share, output_errors, stage_reports, weight_error
from .report import LayerReport, QuantReport

_META = torch.device("meta")


@torch.inference_mode(False)  # what is made can be moved and differentiated later
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
        include: Patterns of the layers that are meant; None is all. A pattern is a glob over the whole name,
            or a regular expression behind ``re:``.
        exclude: Patterns of layers that stay as they are.
        dry_run: Change nothing, and say what would be done.
        stages: Also report the input and the error behind every stage of the transforms, which takes longer.

    Returns:
        A row for every linear layer, quantized or with the reason why not, and for every module of another
        class that holds the weight of one.

    Raises:
        OptionError: A pattern fits no layer.
        MisuseError: Statistics are needed and missing, incomplete, or from another configuration or model.
    """
    found = candidates(model, config, include, exclude)
    if dry_run:
        found = found if stats is None else [_seen(item, stats) for item in found]
        return _planned(model, found, config, stats)
    if stats is None:
        if config.needs_calibration:
            raise MisuseError("this configuration needs calibration: pass stats from rote.quant.calibrate")
    else:
        stats.check(config)
        if not stats.done:
            raise MisuseError(f"calibration is not finished: {stats.batches} of {stats.wanted} batches")
        found = [_seen(item, stats) for item in found]
    rows = {item.name: _row(item) for item in found if item.reason}
    wanted = {item.name: item for item in found if not item.reason}
    done: dict[str, _Quantized] = {}
    groups = _groups(wanted, config, stats)
    smoothed = _smoothed(model, groups, config, stats, wanted)
    rows_over = {name: divisors for each in smoothed for name, divisors in each.rows.items()}
    for group, each in zip(groups, smoothed, strict=True):
        done |= _quantized([wanted[name] for name in group], config, stats, each, rows_over, stages)
    for each in smoothed:
        if each.fold is not None:
            each.fold.apply()
    for name, quantized in done.items():
        replace(model, wanted[name].module, quantized.layer)
        rows[name] = quantized.row
    if config.fuse_groups:
        for group in fuse_(model, None if stats is None else seen_together(list(wanted), stats)):
            for name in group:
                if name in rows:
                    others = ", ".join(other.rpartition(".")[2] for other in group if other != name)
                    what = "launch" if rows[name].path == "kernel" else "transform"
                    note = _joined(f"one {what} with {others}", rows[name].note)
                    rows[name] = changed(rows[name], note=note)
    return QuantReport(tuple(rows[item.name] for item in found))


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


def _groups(
    wanted: dict[str, Candidate], config: DuQuantConfig, stats: CalibrationStats | None
) -> list[list[str]]:
    """The groups; where bounds were taken behind transforms, those that these were made for."""
    widths = {name: item.shape[1] for name, item in wanted.items()}
    if stats is None or not stats.groups:
        return share(widths, config, stats)
    groups = share_by_name(widths, config)
    for group in groups:
        if group not in stats.groups:
            raise MisuseError(
                f"calibration saw {group[0]!r} in another group than {group}: calibrate with the same "
                "include and exclude as you quantize with"
            )
    return groups


def _smoothed(
    model: nn.Module,
    groups: list[list[str]],
    config: DuQuantConfig,
    stats: CalibrationStats | None,
    wanted: dict[str, Candidate],
) -> list[Smoothed]:
    """What becomes of the smoothing of each group."""
    if stats is None or not config.fold_smoothing:
        return [Smoothed() for _ in groups]
    return [smooth_group(model, group, config, stats, wanted) for group in groups]


def _config_of(smoothed: Smoothed, config: DuQuantConfig) -> DuQuantConfig:
    """The configuration of a group, which divides its input if nobody did that before."""
    return config.replace(fold_smoothing=False) if smoothed.why_not else config


@dataclass(frozen=True)
class _Quantized:
    """A layer, and its row of the report."""

    layer: DuQuantLinear
    row: LayerReport


def _quantized(
    members: list[Candidate],
    config: DuQuantConfig,
    stats: CalibrationStats | None,
    smoothed: Smoothed,
    rows_over: dict[str, Tensor],
    stages: bool,
) -> dict[str, _Quantized]:
    """Layers that share one transform, by name."""
    config = _config_of(smoothed, config)
    linears = [cast(nn.Linear, item.module) for item in members]
    weights = [
        rows_divided(linear.weight, rows_over[item.name]) if item.name in rows_over else linear.weight
        for item, linear in zip(members, linears, strict=True)
    ]
    first = linears[0]
    seen = None if stats is None else _knowledge(stats.layers[members[0].name])
    chain = find_transform(weights, config, seen, scale=smoothed.scale)
    transform = InputTransform(first.in_features, config, first.weight.device)
    transform.fill(chain)
    group: dict[str, _Quantized] = {}
    for item, linear in zip(members, linears, strict=True):
        seen, over = None if stats is None else _knowledge(stats.layers[item.name]), rows_over.get(item.name)
        layer = fill_layer(
            linear, config, seen, transform, chain=chain, rows_over=over, weight_bits=item.weight_bits
        )
        rows = None if seen is None else seen.rows
        row = _quantized_row(item, layer, members[0].name, smoothed)
        row = _measured(row, linear, layer, rows, smoothed.scale, over)
        if stages and seen is not None:
            row = changed(row, stages=stage_reports(linear, chain, seen.rows, config, item.weight_bits))
        group[item.name] = _Quantized(layer, row)
    return group


def _knowledge(layer: LayerStats) -> InputSample:
    bounds = None if layer.bounds is None else (layer.bounds[0], layer.bounds[1])
    return InputSample(layer.rows, layer.peak, bounds)


def _measured(
    row: LayerReport,
    linear: nn.Linear,
    layer: DuQuantLinear,
    rows: Tensor | None,
    columns_over: Tensor | None,
    rows_over: Tensor | None,
) -> LayerReport:
    """The row with the errors of a layer whose inputs and outputs may be over the divisors of smoothing."""
    given = rows if rows is None or columns_over is None else rows / columns_over.to(rows)
    weight = rows_divided(linear.weight, rows_over)
    weight = weight if columns_over is None else weight * columns_over.to(weight)
    total, token = (None, None)
    if rows is not None and given is not None:
        total, token = output_errors(linear, layer, rows, given, rows_over)
    clipped = None if given is None else clipped_share(layer, given)
    error = weight_error(layer, weight)
    return changed(row, weight_error=error, output_error=total, token_error=token, clipped=clipped)


def _planned(
    model: nn.Module, found: list[Candidate], config: DuQuantConfig, stats: CalibrationStats | None
) -> QuantReport:
    """The report of a dry run, with the bytes that layers would keep."""
    rows = {item.name: _row(item) for item in found}
    wanted = {item.name: item for item in found if not item.reason}
    groups = _groups(wanted, config, stats)
    for group, smoothed in zip(groups, _smoothed(model, groups, config, stats, wanted), strict=True):
        transform = None
        for name in group:
            layer = _skeleton(wanted[name], _config_of(smoothed, config), transform)
            transform = layer.transform
            rows[name] = _quantized_row(wanted[name], layer, group[0], smoothed)
    return QuantReport(tuple(rows.values()), dry_run=True)


def _skeleton(item: Candidate, config: DuQuantConfig, transform: InputTransform | None) -> DuQuantLinear:
    """What would be in a layer's place, without memory."""
    linear = cast(nn.Linear, item.module)
    return DuQuantLinear(
        linear.in_features, linear.out_features, config, bias=cast(Any, linear).bias is not None,
        weight_bits=item.weight_bits, transform=transform, device=_META, dtype=linear.weight.dtype,
    )  # fmt: skip


def _row(item: Candidate) -> LayerReport:
    path = item.module.path if isinstance(item.module, DuQuantLinear) else "dense"
    return LayerReport(
        item.name, item.shape, item.reason, path=path, bytes_before=item.bytes, bytes_after=item.bytes
    )


def _quantized_row(item: Candidate, layer: DuQuantLinear, group: str, smoothed: Smoothed) -> LayerReport:
    """The row of a quantized layer; what a group shares is counted with its first layer."""
    shared = 0 if item.name == group else _bytes(layer.transform)
    return changed(
        _row(item), weight_bits=layer.weight_bits, act_bits=layer.config.act_bits, path=layer.path,
        note=_joined(smoothed.why_not, layer.note), group=group, bytes_after=_bytes(layer) - shared,
    )  # fmt: skip


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _bytes(module: nn.Module) -> int:
    tensors = [*module.parameters(), *module.buffers()]
    return sum(t.numel() * t.element_size() for t in tensors)
