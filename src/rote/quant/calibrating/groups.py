"""Layers that share one transform: siblings that always get the same input.

Names propose (q, k, v; gate, up), calibration decides. Layers that calibration saw with the very same tensor
in every call belong together whatever their names are, if they are siblings; layers that were seen with
different inputs do not, whatever their names say. Without calibration names are all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..config import DuQuantConfig
from .stats import CalibrationStats


def share_by_name(widths: Mapping[str, int], config: DuQuantConfig) -> list[list[str]]:
    """The groups that names propose, in order, each layer in exactly one.

    ``widths`` are those of the layers' inputs, by name; one group has one width.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, width in widths.items():
        parent, _, last = name.rpartition(".")
        key = (parent, config.group_of(last), width) if config.share_groups else (name,)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def share(
    widths: Mapping[str, int], config: DuQuantConfig, stats: CalibrationStats | None
) -> list[list[str]]:
    """The groups that names propose and calibration confirms, or those of names alone without ``stats``."""
    if stats is None or not config.share_groups:
        return share_by_name(widths, config)
    return seen_together(widths, stats)


def seen_together(names: Iterable[str], stats: CalibrationStats) -> list[list[str]]:
    """The groups of siblings that calibration saw with the very same input in every call."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        groups.setdefault(_evidence(name, stats), []).append(name)
    return list(groups.values())


def _evidence(name: str, stats: CalibrationStats) -> tuple[object, ...]:
    """What layers of one group have in common; of its own for a layer whose inputs had several sources."""
    layer = stats.layers.get(name)
    if layer is None or len(layer.leaders) != 1:
        return ("alone", name)
    leader = next(iter(layer.leaders))
    parent = name.rpartition(".")[0]
    return ("shared", parent, leader, layer.calls)
