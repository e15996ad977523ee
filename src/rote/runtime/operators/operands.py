"""The tensors among an operation's operands: all, those it writes, those whose contents it reads.

Memory that no operation wrote was written by something else, once it is read: C++ code that fills a tensor of
numbers it was given in a call (``at::tensor``), or ``ctypes``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch

from .facts import Facts

PLAIN_VALUES = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device})
"""Types of operands that are no tensors and contain none."""

_Tensor = torch.Tensor


def tensors_in(values: Iterable[Any], found: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in operands, lists in lists opened, appended to ``found``."""
    for value in values:
        kind = type(value)
        if kind is _Tensor:
            found.append(value)
        elif kind in PLAIN_VALUES:  # before the questions that take longer
            continue
        elif isinstance(value, _Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and value and type(value[0]) is not int:  # no shape
            tensors_in(cast("list[Any] | tuple[Any, ...]", value), found)
    return found


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensor operands of an operation, in order."""
    return tensors_in((*args, *kwargs.values()) if kwargs else args, [])


def written_values(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What an operation is given in the places that it writes, lists opened."""
    at = facts.training
    if at is not None and not (args[at] if at < len(args) else kwargs["training"]):
        return []
    found: list[Any] = []
    for position, name in facts.written:
        value = args[position] if position < len(args) else kwargs.get(name)
        found.extend(value if isinstance(value, (list, tuple)) else (value,))
    return found


def written_operands(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operation writes."""
    return [each for each in written_values(facts, args, kwargs) if isinstance(each, torch.Tensor)]


def read_operands(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors whose contents an operation reads."""
    if facts.asks_shapes:
        return []
    unread = written_operands(facts, args, kwargs) if facts.overwrites else []
    if facts.scaled and kwargs.get("beta", 1) == 0:
        unread.append(args[0])
    return [
        tensor
        for tensor in tensors_in((*args, *kwargs.values()), [])
        if not any(tensor is other for other in unread)
    ]


def is_mask(index: Any) -> bool:
    """Whether an index selects elements by a mask."""
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


_INDICES, _VALUE, _ACCUMULATE = 1, 2, 3


def filled_in(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The number that an operation fills in through a mask; None for others.

    ``t[mask] = 5.0``, and so ``t[mask] = torch.tensor(5.0)``, is one kernel: PyTorch takes a number from the
    host by value where a mask is all that selects. Anything else that is stored through a mask is counted
    first.
    """
    if not facts.stores or len(args) <= _VALUE:
        return None
    if args[_ACCUMULATE] if len(args) > _ACCUMULATE else kwargs.get("accumulate"):
        return None
    indices = [index for index in args[_INDICES] if index is not None]
    value: torch.Tensor = args[_VALUE]
    return value if len(indices) == 1 and is_mask(indices[0]) and value.numel() == 1 else None


def without_dropout(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Attention draws random numbers only for its dropout."""
    position = facts.dropout
    if position is None:
        return False
    value = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
    return value == 0.0


def without_vectors(facts: Facts, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a decomposition for its values alone, unless a gradient needs the rest."""
    matrix, *rest = args
    if torch.is_grad_enabled() and matrix.requires_grad:
        return args
    return (matrix, rest[0] if rest else facts.op._schema.arguments[1].default_value, False)
