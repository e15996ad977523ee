"""What an operation does with its operands: views, contents, dropout."""

from __future__ import annotations

from typing import Any

import torch

from ..partition.facts import Facts
from .events import Event, Value
from .ledger import NEW, Token

DECOMPOSITIONS = {torch.ops.aten._linalg_svd.default: False, torch.ops.aten._linalg_eigh.default: "L"}
"""With what stands before the operand that asks for vectors, which a call leaves out like any default."""


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


def without_dropout(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Attention draws random numbers only for its dropout."""
    position = facts.dropout
    if position is None:
        return False
    value = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
    return value == 0.0


def without_vectors(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a decomposition for its values alone, unless a gradient needs the rest."""
    matrix, *rest = args
    if torch.is_grad_enabled() and matrix.requires_grad:
        return args
    return (matrix, rest[0] if rest else DECOMPOSITIONS[func], False)
