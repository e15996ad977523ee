"""What a checkpoint's metadata say of its layers, and how far that can be believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from ...base import MisuseError
from ..config import DuQuantConfig, can_be_bits
from ..layer import PATHS, DuQuantLinear, InputTransform

_TYPES = ("float32", "float64", "bfloat16", "float16")
_LARGEST = 1 << 24
"""Features of a layer that are believed."""


@dataclass(frozen=True)
class LayerEntry:
    """A quantized layer.

    Attributes:
        name: Its place in the model.
        dtype: Type of the bias, by its name in torch.
        path: How it is calculated.
        transform: The first layer that has the same transform.
        config: Index of its configuration.
    """

    name: str
    in_features: int
    out_features: int
    bias: bool
    weight_bits: int
    dtype: str
    path: str
    transform: str
    config: int


def empty_layer(
    entry: LayerEntry,
    old: nn.Linear | DuQuantLinear,
    config: DuQuantConfig,
    transforms: dict[str, InputTransform],
    dtype: torch.dtype,
) -> DuQuantLinear:
    """A layer without values, on the device of the one that it will replace.

    Layers of a group share one of ``transforms``, which are known by the name of its first layer.

    Raises:
        MisuseError: The sizes are not those of the old layer.
    """
    sizes, mine = (entry.out_features, entry.in_features), (old.out_features, old.in_features)
    if sizes != mine:
        raise MisuseError(f"{entry.name!r} is {sizes[0]}x{sizes[1]}, and {mine[0]}x{mine[1]} in the model")
    layer = DuQuantLinear(
        entry.in_features, entry.out_features, config, bias=entry.bias, weight_bits=entry.weight_bits,
        transform=transforms.get(entry.transform), device=old.weight.device, dtype=dtype,
    )  # fmt: skip
    transforms.setdefault(entry.transform, layer.transform)
    return layer


def entries_of(model: nn.Module) -> tuple[list[Any], list[LayerEntry]]:
    """The configurations (as JSON values) and layers of a model."""
    configs: list[Any] = []
    entries: list[LayerEntry] = []
    owners: dict[int, str] = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, DuQuantLinear):
            continue
        config = json.loads(layer.config.to_json())
        if config not in configs:
            configs.append(config)
        owner = owners.setdefault(id(layer.transform), name)
        dtype = str(layer.marker.dtype).removeprefix("torch.")
        entry = LayerEntry(
            name, layer.in_features, layer.out_features, layer.bias is not None, layer.weight_bits, dtype,
            layer.path, owner, configs.index(config),
        )  # fmt: skip
        entries.append(entry)
    return configs, entries


def read_entries(content: Mapping[str, Any]) -> tuple[list[DuQuantConfig], list[LayerEntry]]:
    """The configurations and layers of a checkpoint's metadata.

    Raises:
        MisuseError: They are not what :func:`entries_of` gives.
    """
    configs, layers = content["configs"], content["layers"]
    if not isinstance(configs, list) or not isinstance(layers, list) or not layers:
        raise MisuseError("the metadata 'configs' and 'layers' must be lists")
    found = [DuQuantConfig.from_json(json.dumps(config)) for config in configs]
    entries = [_entry(values, len(found)) for values in layers]
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise MisuseError(f"{entry.name!r} is listed twice")
        seen.add(entry.name)
        owner = next((other for other in entries if other.name == entry.transform), entry)
        if entry.transform not in seen or owner.config != entry.config:
            raise MisuseError(
                f"{entry.name!r} shares the transform of {entry.transform!r}, which comes later"
            )
    return found, entries


def _entry(values: Any, configs: int) -> LayerEntry:
    names = {field.name: field.type for field in fields(LayerEntry)}
    if not isinstance(values, dict) or values.keys() != names.keys():
        raise MisuseError(f"a layer's metadata must have the entries {', '.join(names)}")
    for name, kind in names.items():
        if type(values[name]).__name__ != kind:
            raise MisuseError(f"a layer's {name} is {values[name]!r}, which is no {kind}")
    entry = LayerEntry(**values)
    good = {
        "in_features": 0 < entry.in_features <= _LARGEST,
        "out_features": 0 < entry.out_features <= _LARGEST,
        "weight_bits": can_be_bits(entry.weight_bits),
        "dtype": entry.dtype in _TYPES,
        "path": entry.path in PATHS,
        "config": 0 <= entry.config < configs,
    }
    for name, fine in good.items():
        if not fine:
            raise MisuseError(f"{entry.name!r} has {name}={getattr(entry, name)!r}, which cannot be")
    return entry
