"""What an operation does to the memory of its operands: views, contents."""

from __future__ import annotations

from typing import Any

import torch

from .events import Event
from .ledger import NEW, Ledger, Token

def number_of(token: Token) -> int | None:
    return token.origin[1] if token.origin[0] == NEW else None


def content_of(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        content = data.detach()
        if content.device.type != "cpu":
            content = content.cpu()
        return (tuple(data.shape), data.dtype, content.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return data


def is_view(event: Event, operands: list[torch.Tensor], ledger: Ledger) -> bool:
    """All results look at memory of operands (the operation is known to write nothing)."""
    if not event.results:
        return False
    for result in event.results:
        if isinstance(result, int):
            continue
        if not isinstance(result, Token) or all(ledger.origin(tensor) != result.origin for tensor in operands):
            return False
    return True
