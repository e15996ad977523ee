"""Files of tensors: safetensors, opened with errors that say what is wrong with the file.

A second name of the same memory (shared transforms, tied weights) is kept as an alias. Metadata map strings
to strings, and everything richer is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...base import EnvironmentError_, MisuseError


def write(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors, those in the same memory once, and metadata as JSON; all of it or nothing."""
    safetensors = _safetensors()
    unique, aliases = _aliased(tensors)
    texts = {name: json.dumps(value) for name, value in {**metadata, "aliases": aliases}.items()}
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"cannot be written: there is no folder {path.parent}"
        raise MisuseError(f"{path} {what}")
    partial = path.with_name(path.name + ".partial")
    try:
        safetensors.torch.save_file(unique, str(partial), metadata=texts)
        partial.replace(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise MisuseError(f"{path} cannot be written: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, on the CPU, and metadata; a MisuseError for a file that :func:`write` never writes."""
    safetensors = _safetensors()
    if not Path(path).is_file():
        raise MisuseError(f"{path}: there is no such file")
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            texts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    except safetensors.SafetensorError as error:
        raise MisuseError(f"{path}: is damaged, or no safetensors file: {error}") from error
    metadata: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            metadata[name] = json.loads(text)
        except (ValueError, RecursionError):
            metadata[name] = text  # not from here; a caller that needs it says what is wrong
    aliases = metadata.pop("aliases", {})
    if not isinstance(aliases, dict):
        raise MisuseError(f"{path}: the metadata 'aliases' must be an object")
    for alias, name in aliases.items():
        if not isinstance(name, str) or name not in tensors or alias in tensors:
            raise MisuseError(f"{path}: {alias!r} is an alias of {name!r}, which cannot be")
        tensors[alias] = tensors[name]
    return tensors, metadata


def _aliased(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    unique: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    places: dict[object, str] = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and place in places:
            aliases[name] = places[place]
            continue
        places[place] = name
        # Clones: safetensors refuses parts of one memory under different shapes, which are no aliases.
        unique[name] = tensor.detach().clone().contiguous().cpu()
    return unique, aliases


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise EnvironmentError_("checkpoints need safetensors: pip install 'rote[quant]'") from error
    return safetensors
