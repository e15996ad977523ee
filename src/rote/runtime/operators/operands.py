"""The tensors among an operation's operands: all, those it writes, those whose contents it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch

from .facts import Facts

PLAIN_VALUES = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device})
"""Types of operands that neither are nor contain tensors."""

_Tensor = torch.Tensor


def tensors_in(values: Iterable[Any], found: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in operands and their lists, appended to ``found``."""
    for value in values:
        kind = type(value)
        if kind is _Tensor:
            found.append(value)
        elif kind in PLAIN_VALUES:  # before the slower questions
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
    """The operands that an operation writes, lists opened."""
    at = facts.training
    if at is not None and not (args[at] if at < len(args) else kwargs["training"]):
        return []
    found: list[Any] = []
    for position, name in facts.written:
        value = args[position] if position < len(args) else kwargs.get(name)
        found.extend(_opened(value))
    return found


def _opened(value: Any) -> list[Any]:
    """An operand, or the members of a list and of lists in it."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [part for each in cast("list[Any]", value) for part in _opened(each)]


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
    read = tensors_of(args, kwargs)
    return [tensor for tensor in read if not any(tensor is other for other in unread)]


def is_mask(index: Any) -> bool:
    """Whether an index selects elements by a mask."""
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


_INDICES, _VALUE, _ACCUMULATE = 1, 2, 3


def filled_in(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The number that an operation stores through a mask; None if it stores anything else.

    ``t[mask] = 5.0`` is one kernel, as is ``t[mask] = torch.tensor(5.0)``: PyTorch takes a number of the host
    by value where only a mask selects. Before it stores anything else, it counts what the mask selects.
    """
    if not facts.stores or len(args) <= _VALUE:
        return None
    if args[_ACCUMULATE] if len(args) > _ACCUMULATE else kwargs.get("accumulate"):
        return None
    indices = [index for index in args[_INDICES] if index is not None]
    value: torch.Tensor = args[_VALUE]
    return value if len(indices) == 1 and is_mask(indices[0]) and value.numel() == 1 else None


def without_dropout(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation is an attention without dropout, which draws no random numbers."""
    position = facts.dropout
    if position is None:
        return False
    value = args[position] if position < len(args) else kwargs.get("dropout_p", 0.0)
    return value == 0.0


def without_vectors(facts: Facts, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a decomposition that make it give its values alone, unless a gradient needs more."""
    matrix, *rest = args
    if torch.is_grad_enabled() and matrix.requires_grad:
        return args
    return (matrix, rest[0] if rest else facts.op._schema.arguments[1].default_value, False)
