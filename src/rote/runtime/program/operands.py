"""What an operation does with its operands: views, contents."""

from __future__ import annotations

from typing import Any

import torch

from .events import Event, Value
from .storages import NEW, Token


def number_of(token: Token) -> int | None:
    """Number of the storage, if the call made it."""
    return token.origin[1] if token.origin[0] == NEW else None


def content_of(data: Any) -> Any:
    """Host data in a form that compares by content; a tensor as its bytes."""
    if isinstance(data, torch.Tensor):
        content = data.detach()
        if content.device.type != "cpu":
            content = content.cpu()
        flat = content.contiguous().view(-1).view(torch.uint8)
        return (tuple(data.shape), data.dtype, flat.numpy().tobytes())
    return data


def is_view(event: Event, operands: list[Token]) -> bool:
    """All results look at memory of operands (the operation is known to write nothing)."""
    for result in event.results:
        if isinstance(result, int):
            continue
        if result is None or isinstance(result, Value):
            return False
        origin = result[0]
        if origin not in [token[0] for token in operands]:
            return False
    return bool(event.results)
