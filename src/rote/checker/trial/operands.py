"""Operands of operations: the tensors among them, replaced or shown."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import torch


def operand(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    """The operand at a position or under a name; None if it is not given."""
    return args[position] if position < len(args) else kwargs.get(name)


def like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor that lies as another one does, on a device."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


def replaced(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Operands with every tensor changed, in nested lists, tuples and dicts too."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is list:
        return [replaced(item, change) for item in cast("list[Any]", value)]
    if type(value) is tuple:
        return tuple([replaced(item, change) for item in cast("tuple[Any, ...]", value)])
    if type(value) in (dict, OrderedDict):
        items = cast("dict[Any, Any]", value).items()
        return type(value)((key, replaced(item, change)) for key, item in items)
    return value


def shown(tensor: torch.Tensor) -> str:
    """A tensor in a few words: ``float32[2, 3]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def plain(value: Any) -> Any:
    """A comparable form of an operand: numbers by value, tensors by type and shape, other things by type."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape))
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (bool, int, str, complex, torch.dtype, torch.device, type(None))):
        return (type(value).__name__, value)
    if isinstance(value, (list, tuple)):
        return tuple([plain(item) for item in cast("list[Any]", value)])
    return type(value).__name__
