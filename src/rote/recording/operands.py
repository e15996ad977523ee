"""What an operation does to the memory of its operands: views, writes, contents."""

from __future__ import annotations

from typing import Any

import torch

from .events import Event
from .ledger import NEW, Token

_UNDECLARED_WRITES = {  # running statistics are written without an alias in the schema
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}


def number_of(token: Token) -> int | None:
    return token.origin[1] if token.origin[0] == NEW else None


def content_of(data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        content = data.detach()
        if content.device.type != "cpu":
            content = content.cpu()
        return (tuple(data.shape), data.dtype, content.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return data


def is_view(event: Event, func: Any) -> bool:
    """All results look at memory of operands, and nothing was computed."""
    if func._schema.is_mutable or not event.results:
        return False
    known = {token.origin for token in _tokens(event.operands)}
    return all(isinstance(result, int) or (isinstance(result, Token) and result.origin in known)
               for result in event.results)  # fmt: skip


def _tokens(value: Any) -> list[Token]:
    if isinstance(value, Token):
        return [value]
    if isinstance(value, tuple):
        return [token for item in value for token in _tokens(item)]
    return []


def written_operands(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The operands that an operation writes."""
    undeclared = _UNDECLARED_WRITES.get(func.name())
    if undeclared is not None:
        return [args[i] for i in undeclared if i < len(args) and isinstance(args[i], torch.Tensor)]
    schema = func._schema
    if not schema.is_mutable:
        return []
    found: list[torch.Tensor] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        items = value if isinstance(value, (list, tuple)) else (value,)
        found.extend(item for item in items if isinstance(item, torch.Tensor))
    return found
