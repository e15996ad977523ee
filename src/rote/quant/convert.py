"""``quantize_``: put quantized layers in the place of a model's linear layers, and say what was done to each.

Everything is built before anything is put in place: if one layer cannot be quantized the error leaves the
model as it was.
"""

from __future__ import annotations

from dataclasses import replace as changed
from typing import cast

import torch
from torch import Tensor, nn

from ..base.errors import MisuseError
from .buffers import InputTransform
from .build import Seen, fill_layer, find_transform
from .config import DuQuantConfig
from .groups import share, share_by_name
from .layers import Candidate, Patterns, candidates, replace
from .linear import DuQuantLinear
from .measure import clipped_share, output_errors, stage_reports, weight_error
from .report import LayerReport, QuantReport
from .stats import CalibrationStats, LayerStats

_META = torch.device("meta")


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
        stats: From :class:`~rote.quant.calibrate`; None if the configuration needs none.
        include: Patterns of the layers that are meant; None is all. A pattern is a glob over the whole name,
            or a regular expression behind ``re:``.
        exclude: Patterns of layers that stay as they are.
        dry_run: Change nothing, and say what would be done.
        stages: Also report the input and the error behind every stage of the transforms, which takes longer.

    Returns:
        A row for every linear layer, quantized or with the reason why not.

    Raises:
        OptionError: A pattern fits no layer.
        MisuseError: Statistics are needed and missing, incomplete, or from another configuration.
    """
    found = candidates(model, config, include, exclude)
    if dry_run:
        return QuantReport(tuple(_planned(item, config) for item in found), dry_run=True)
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
    layers: dict[str, DuQuantLinear] = {}
    for group in _groups(list(wanted), config, stats):
        members = [wanted[name] for name in group]
        for name, (layer, row) in _quantized(members, config, stats, stages).items():
            layers[name], rows[name] = layer, row
    for name, layer in layers.items():
        replace(model, wanted[name].module, layer)
    return QuantReport(tuple(rows[item.name] for item in found))


def _seen(item: Candidate, stats: CalibrationStats) -> Candidate:
    layer = stats.layers.get(item.name)
    if item.reason or (layer is not None and layer.count):
        return item
    return changed(item, reason="was not called in calibration")


def _groups(names: list[str], config: DuQuantConfig, stats: CalibrationStats | None) -> list[list[str]]:
    """The groups; where bounds were taken behind transforms, those that these were made for."""
    if stats is None or not stats.groups:
        return share(names, config, stats)
    groups = share_by_name(names, config)
    for group in groups:
        if group not in stats.groups:
            raise MisuseError(
                f"calibration saw {group[0]!r} in another group than {group}: calibrate with the same "
                "include and exclude as you quantize with"
            )
    return groups


def _quantized(
    members: list[Candidate], config: DuQuantConfig, stats: CalibrationStats | None, stages: bool
) -> dict[str, tuple[DuQuantLinear, LayerReport]]:
    """The layers of a group, which share one transform."""
    linears = [cast(nn.Linear, item.module) for item in members]
    first = linears[0]
    seen = None if stats is None else _knowledge(stats.layers[members[0].name])
    chain = find_transform([linear.weight for linear in linears], config, seen)
    transform = InputTransform(first.in_features, config, first.weight.device)
    transform.fill(chain)
    result: dict[str, tuple[DuQuantLinear, LayerReport]] = {}
    for item, linear in zip(members, linears, strict=True):
        seen = None if stats is None else _knowledge(stats.layers[item.name])
        layer = fill_layer(linear, config, seen, transform, weight_bits=item.weight_bits)
        row = _measured(item, linear, layer, None if seen is None else seen.rows, members[0].name)
        if stages and seen is not None:
            reports = stage_reports(linear, transform.chain(), seen.rows, config, item.weight_bits)
            row = changed(row, stages=reports)
        result[item.name] = layer, row
    return result


def _knowledge(layer: LayerStats) -> Seen:
    bounds = None if layer.bounds is None else (layer.bounds[0], layer.bounds[1])
    return Seen(layer.rows, layer.peak, bounds)


def _measured(
    item: Candidate, linear: nn.Linear, layer: DuQuantLinear, rows: Tensor | None, group: str
) -> LayerReport:
    total, token = (None, None) if rows is None else output_errors(linear, layer, rows)
    leads = item.name == group
    return changed(
        _row(item),
        weight_bits=layer.weight_bits,
        act_bits=layer.config.act_bits,
        path=layer.path,
        group=group,
        bytes_after=_bytes(layer) - (0 if leads else _bytes(layer.transform)),
        weight_error=weight_error(layer, linear.weight),
        output_error=total,
        token_error=token,
        clipped=None if rows is None else clipped_share(layer, rows),
    )


def _planned(item: Candidate, config: DuQuantConfig) -> LayerReport:
    """The row of a dry run, with the bytes that the layer would keep."""
    row = _row(item)
    if item.reason:
        return row
    module = item.module
    layer = DuQuantLinear(
        module.in_features, module.out_features, config, bias=module.bias is not None,
        weight_bits=item.weight_bits, device=_META, dtype=cast(nn.Linear, module).weight.dtype,
    )  # fmt: skip
    return changed(
        row, weight_bits=item.weight_bits, act_bits=config.act_bits, path=layer.path, group=item.name,
        bytes_after=_bytes(layer),
    )  # fmt: skip


def _row(item: Candidate) -> LayerReport:
    module = item.module
    path = module.path if isinstance(module, DuQuantLinear) else "dense"
    shape = (module.out_features, module.in_features)
    size = _bytes(module)
    return LayerReport(item.name, shape, item.reason, path=path, bytes_before=size, bytes_after=size)


def _bytes(module: nn.Module) -> int:
    tensors = [*module.parameters(), *module.buffers()]
    return sum(t.numel() * t.element_size() for t in tensors)
