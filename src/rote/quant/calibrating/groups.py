"""Layers that share one transform: siblings that always get the same input.

Names propose (q, k, v; gate, up), calibration decides. Siblings that calibration saw with the very same
tensor in every call form a group whatever their names are; layers with different inputs do not. Without
calibration there are only names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...base import MisuseError
from ..config import DuQuantConfig
from .stats import CalibrationStats


def share_by_name(widths: Mapping[str, int], config: DuQuantConfig) -> list[list[str]]:
    """The groups that names propose, in order; ``widths`` of inputs are equal in a group."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, width in widths.items():
        parent, _, last = name.rpartition(".")
        key = (parent, config.group_of(last), width) if config.share_groups else (name,)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def share(
    widths: Mapping[str, int], config: DuQuantConfig, stats: CalibrationStats | None
) -> list[list[str]]:
    """The groups that names propose and calibration confirms; without ``stats`` those of names alone.

    A MisuseError says that bounds were taken behind the transforms of other groups.
    """
    named = share_by_name(widths, config)
    if stats is None or not (stats.groups or config.share_groups):
        return named
    if not stats.groups:
        return seen_together(widths, stats)
    for group in named:
        if group not in stats.groups:
            raise MisuseError(
                f"calibration saw {group[0]!r} in another group than {group}: calibrate with the same "
                "include and exclude as you quantize with"
            )
    return named


def seen_together(names: Iterable[str], stats: CalibrationStats) -> list[list[str]]:
    """The groups of siblings that calibration saw with the very same input in every call."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        layer = stats.layers.get(name)
        key: tuple[object, ...] = (name,)  # alone, also where its inputs had several leaders
        if layer is not None and len(layer.leaders) == 1:
            key = (name.rpartition(".")[0], *layer.leaders, layer.calls)
        groups.setdefault(key, []).append(name)
    return list(groups.values())
