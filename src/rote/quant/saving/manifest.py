"""What a checkpoint's metadata say of its layers, and the checks of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from torch import nn

from ...base import MisuseError
from ..config import DuQuantConfig, can_be_bits
from ..layer import PATHS, DuQuantLinear, InputTransform

_TYPES = ("float32", "float64", "bfloat16", "float16")
_LARGEST = 1 << 24
"""Features that a layer of a file may have."""


@dataclass(frozen=True)
class LayerEntry:
    """A quantized layer.

    Attributes:
        name: Its place in the model.
        dtype: Type of the bias, by its name in torch.
        path: How it is calculated.
        transform: The first layer with the same transform.
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


@torch.inference_mode(False)
@torch.no_grad()
def empty_layers(
    model: nn.Module,
    configs: list[DuQuantConfig],
    entries: list[LayerEntry],
    *,
    way: str | None = None,
    types_of_model: bool = False,
) -> dict[str, DuQuantLinear]:
    """Layers without values, by name, on the devices of the layers that they will replace.

    ``way`` is the path of all layers; None takes each entry's. With ``types_of_model`` biases have the types
    of the model's layers, and not of the entries.

    Raises:
        MisuseError: An entry does not fit the model.
        OptionError: There is no such ``way``, or it does not fit a layer.
    """
    found = dict(model.named_modules())
    transforms: dict[str, InputTransform] = {}
    built: dict[str, DuQuantLinear] = {}
    for entry in entries:
        name, old = entry.name, found.get(entry.name)
        if not isinstance(old, nn.Linear | DuQuantLinear):
            what = "has no such linear layer" if old is None else f"has a {type(old).__name__} there"
            raise MisuseError(f"{name!r} is quantized, and the model {what}")
        sizes, mine = (entry.out_features, entry.in_features), (old.out_features, old.in_features)
        if sizes != mine:
            raise MisuseError(f"{name!r} is {sizes[0]}x{sizes[1]}, and {mine[0]}x{mine[1]} in the model")
        if entry.bias != (cast(Any, old).bias is not None):
            raise MisuseError(f"{name!r} has {'a' if entry.bias else 'no'} bias, unlike the model's")
        dtype = old.weight.dtype if types_of_model else getattr(torch, entry.dtype)
        layer = DuQuantLinear(
            entry.in_features, entry.out_features, configs[entry.config], bias=entry.bias,
            weight_bits=entry.weight_bits, transform=transforms.get(entry.transform),
            device=old.weight.device, dtype=dtype,
        )  # fmt: skip
        if transforms.setdefault(entry.transform, layer.transform).features != entry.in_features:
            raise MisuseError(f"{name!r} shares the transform of {entry.transform!r}, of another width")
        layer.train(old.training)
        path = way or entry.path
        if path != layer.path:
            layer.set_path(path)
        built[name] = layer
    return built


def entries_of(model: nn.Module) -> tuple[list[Any], list[LayerEntry]]:
    """The configurations (as JSON values) and quantized layers of a model."""
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
        MisuseError: The metadata are malformed.
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
