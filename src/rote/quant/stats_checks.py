"""How far a file of statistics can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..base.errors import MisuseError
from .stages import padded

if TYPE_CHECKING:
    from .stats import CalibrationStats, LayerStats


def check_stats(stats: CalibrationStats) -> None:
    """Refuse statistics that no calibration takes.

    Raises:
        MisuseError: The message names what cannot be.
    """
    groups: Any = stats.groups
    sources: Any = stats.sources
    good = {
        "wanted": _count(stats.wanted),
        "batches": _count(stats.batches),
        "groups": isinstance(groups, list) and all(map(_names, groups)),
        "sources": isinstance(sources, dict) and all(map(_counts, sources.values())),
    }
    for name, fine in good.items():
        if not fine:
            raise MisuseError(f"{name} cannot be {getattr(stats, name)!r}")
    for name, layer in stats.layers.items():
        for part, fine in _parts(layer, stats.config.block_size):
            if not fine:
                raise MisuseError(f"{part} of {name!r} cannot be as it is")


def _parts(layer: LayerStats, block: int) -> list[tuple[str, bool]]:
    """The parts of a layer's statistics, and whether they fit together."""
    features, kept, bounds = layer.peak.numel(), len(layer.rows), layer.bounds
    covered = bounds is None or (
        _numbers(bounds, (2, padded(features, block))) and bool((bounds[0] <= bounds[1]).all())
    )
    columns = layer.columns
    placed = columns is None or (_numbers(columns, (features,), torch.int32) and bool((columns >= 0).all()))
    return [
        ("calls", _count(layer.calls)),
        ("count", _count(layer.count) and layer.count >= kept),
        ("leaders", _counts(layer.leaders)),
        ("peak", _numbers(layer.peak, (features,)) and bool((layer.peak >= 0).all())),
        ("rows", _numbers(layer.rows, (kept, features))),
        ("keys", _numbers(layer.keys, (kept,), torch.float64)),
        ("bounds", covered),
        ("columns", placed),
    ]


def _numbers(values: Tensor, shape: tuple[int, ...], kind: torch.dtype = torch.float32) -> bool:
    return values.shape == shape and values.dtype == kind and bool(values.isfinite().all())


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _counts(values: Any) -> bool:
    return isinstance(values, dict) and all(isinstance(k, str) and _count(v) for k, v in values.items())


def _names(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
