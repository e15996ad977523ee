"""Checkpoints of quantized models.

A checkpoint holds the whole state of a model: codes packed two in a byte, scales, rotations and permutations
of the quantized layers, and everything else as it is. Its metadata say what to build: a format version, the
configurations, the sizes, bits and transform's owner of every quantized layer, and a hash of all that and of
the names, shapes and types of the tensors.

Loading takes a model as its constructor makes it, and checks everything before it changes anything: the hash,
each layer's sizes against the model's, keys and shapes against those of the new layers, and values that could
do harm (permutations that are none, scales that are not positive). A wrong file never leaves a model half
loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...base import MisuseError
from ..config import DuQuantConfig
from ..layer import DuQuantLinear, fuse_, replace
from . import storage
from .manifest import LayerEntry, empty_layers, entries_of, read_entries

FORMAT = "rote.quant"
VERSION = 1


def save_quantized(model: nn.Module, path: str | Path) -> None:
    """Write a quantized model to a safetensors file.

    Args:
        model: With at least one :class:`~..DuQuantLinear`.
        path: The file, which may exist.

    Raises:
        MisuseError: Nothing in the model is quantized, or its state is not made of tensors alone.
        EnvironmentError_: safetensors is not installed.
    """
    configs, entries = entries_of(model)
    if not entries:
        raise MisuseError("save_quantized: no layer of the model is quantized; call quantize_ first")
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise MisuseError(f"save_quantized: {name!r} is a {kind}, and safetensors hold tensors only")
        if value.is_meta:
            raise MisuseError(f"save_quantized: {name!r} is on the meta device, without data")
    content = {"configs": configs, "layers": [vars(entry) for entry in entries]}
    metadata = {"format": FORMAT, "version": VERSION, **content, "hash": content_hash(content, state)}
    storage.write(path, state, metadata)


def load_quantized(
    model: nn.Module, path: str | Path, *, config: DuQuantConfig | None = None, way: str | None = None
) -> None:
    """Load a checkpoint into a model: replace the layers that it has quantized, and load everything else.

    Args:
        model: The same architecture, dense; or quantized in the same way.
        path: A file that :func:`save_quantized` wrote.
        config: What the checkpoint must be made with; None takes any.
        way: ``"reference"``, ``"fused"`` or ``"kernel"`` in place of the path that it was saved with.

    Raises:
        MisuseError: The file is damaged, was not made by :func:`save_quantized`, does not fit the model, or
            was made with another configuration; the message names what differs. The model is as it was.
        OptionError: There is no such ``way``, or it does not fit a layer.
    """
    tensors, metadata = storage.read(path)
    try:
        configs, entries = _checked(tensors, metadata)
        if config is not None:
            _same(configs, config)
        built = empty_layers(model, configs, entries, way=way)
        _check_state(model, built, tensors)
        check_values(built, tensors)
    except MisuseError as error:
        raise type(error)(f"{path}: {error}") from error
    for name, layer in built.items():
        replace(model, model.get_submodule(name), layer)
    model.load_state_dict(tensors, strict=True)
    if any(layer.config.fuse_groups for layer in built.values()):
        fuse_(model)


def content_hash(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A hash of configurations, layers, and the names, shapes and types of tensors."""
    shapes = {name: [str(tensor.dtype), *tensor.shape] for name, tensor in tensors.items()}
    text = json.dumps([VERSION, content, shapes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> tuple[list[DuQuantConfig], list[LayerEntry]]:
    """The configurations and layers of the metadata, once format, version and hash are right."""
    if metadata.get("format") != FORMAT:
        raise MisuseError(f"is no checkpoint of a quantized model: its format is {metadata.get('format')!r}")
    if metadata.get("version") != VERSION:
        raise MisuseError(f"has format version {metadata.get('version')!r}, and this code reads {VERSION}")
    content = {name: metadata.get(name) for name in ("configs", "layers")}
    if metadata.get("hash") != content_hash(content, tensors):
        raise MisuseError(
            "the hash of configuration and shapes does not match: the file was changed or mixed up"
        )
    return read_entries(content)


def _same(configs: list[DuQuantConfig], wanted: DuQuantConfig) -> None:
    online = wanted.replace(fold_smoothing=False)  # of layers without a module to fold into
    for config in configs:
        if config.digest not in (wanted.digest, online.digest):
            was, now = asdict(config), asdict(wanted)
            apart = [key for key in sorted(was) if was[key] != now[key] and key != "path"]
            text = ", ".join(f"{key}={was[key]!r} and not {now[key]!r}" for key in apart)
            raise MisuseError(f"was made with another configuration: {text}")


def _check_state(model: nn.Module, built: Mapping[str, DuQuantLinear], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a file with other names, shapes or types than the model will have."""
    owners = {id(model.get_submodule(name)): layer for name, layer in built.items()}
    everywhere = model.named_modules(remove_duplicate=False)
    places = {name: owners[id(module)] for name, module in everywhere if id(module) in owners}
    prefixes = tuple(f"{name}." for name in places)
    wanted = {name: t for name, t in model.state_dict().items() if not name.startswith(prefixes)}
    for name, layer in places.items():
        wanted.update({f"{name}.{key}": tensor for key, tensor in layer.state_dict().items()})
    missing, strange = wanted.keys() - tensors.keys(), tensors.keys() - wanted.keys()
    if missing or strange:
        sides = (("lacks", missing), ("has", strange))
        parts = " and ".join(f"{verb} {sorted(names)[:3]}" for verb, names in sides if names)
        raise MisuseError(f"does not fit the model: the file {parts}")
    for name, tensor in wanted.items():
        if tensor.is_meta:
            raise MisuseError(
                f"{name} is on the meta device in the model, and nothing can be loaded there: call "
                "model.to_empty(device=...) first"
            )
        if tensor.is_inference() and not torch.is_inference_mode_enabled():
            raise MisuseError(f"{name} was made in inference mode in the model, and can only be loaded in it")
        other = tensors[name]
        if other.shape != tensor.shape:
            raise MisuseError(f"{name} is {tuple(other.shape)}, and {tuple(tensor.shape)} in the model")
        if name.startswith(prefixes) and other.dtype != tensor.dtype:
            raise MisuseError(f"{name} is {other.dtype} instead of {tensor.dtype}")


def check_values(built: Mapping[str, DuQuantLinear], tensors: Mapping[str, Tensor]) -> None:
    """Raise a MisuseError for a value that could do harm: a wrong index, a divisor that is not positive.

    ``built`` are layers by name, ``tensors`` their values by full name.
    """
    for name, layer in built.items():
        width, stages = layer.transform.width, [f"transform.{stage}" for stage in layer.transform.names]
        for key in (*stages, "row_rotation", "weight_scale", "act_scale", "transform.smooth", "act_zero"):
            value = tensors.get(f"{name}.{key}")
            if value is None:
                continue
            wrong = ""
            if "order" in key:
                if not torch.equal(value.long().sort().values.cpu(), torch.arange(width)):
                    wrong = "is no permutation"
            elif "rotation" in key:
                if not bool(value.isfinite().all()):
                    wrong = "has values that are not finite"
            elif key == "act_zero":
                if not -128 <= int(value) <= 127:
                    wrong = f"is {int(value)}, which is no code"
            elif not bool((value.isfinite() & (value > 0)).all()):
                wrong = "has values that are not positive numbers"
            if wrong:
                raise MisuseError(f"{name}.{key} {wrong}")
