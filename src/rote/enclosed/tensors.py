"""The tensors of a result, in an order that Dynamo and the interpreter agree on."""

from __future__ import annotations

from typing import Any

import torch


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in lists, tuples, dicts and dataclasses. Dynamo traces this; it runs on real results."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_of(each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_of(each)]
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        return []
    return [tensor for name in fields for tensor in tensors_of(getattr(value, name, None))]
