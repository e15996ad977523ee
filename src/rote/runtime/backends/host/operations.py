"""What the host does with an ATen operation, worked out once per operation and remembered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import torch

from ....base import identity
from ...operators import PLAIN_VALUES, Facts, composite_call, facts_of, schema_of
from ..protocol import raw_call
from .torch_private import Call, OpOverload, is_replaced

_Tensor = torch.Tensor


class HostOperation(NamedTuple):
    """One overload.

    Attributes:
        restricted: Some of its calls are refused whatever their operands are.
        silent: It returns nothing.
        composite: The call that takes it apart into other operations, if it has no kernel of its own.
        writer: What writes its result into memory given to it, if that is known.
    """

    facts: Facts
    restricted: bool
    silent: bool
    composite: Call | None
    call: Call
    writer: Call | None


class Catalog:
    """The operations seen so far."""

    def __init__(self) -> None:
        # By identity, since hashing an overload is a call of Python code. The facts keep it alive.
        self._operations: dict[int, HostOperation] = {}

    def operation(self, func: OpOverload) -> HostOperation:
        """What is done with every call of ``func``."""
        found = self._operations.get(identity(func))
        if found is None:
            found = self._operations[identity(func)] = _operation(func)
        return found


def _operation(func: OpOverload) -> HostOperation:
    facts, composite = facts_of(func), composite_call(func)
    return HostOperation(
        facts=facts,
        restricted=any([facts.reads, facts.checks, facts.indexed, facts.apart])
        or (facts.dynamic and composite is None),
        silent=not schema_of(func).returns,
        composite=composite,
        call=raw_call(func),
        writer=writer_of(func),
    )


def writer_of(op: OpOverload) -> Call | None:
    """What writes an operation's result into its operand ``out``; None if nothing is known to do so.

    Any other operation is called again and what it returns is copied. The table of operators has those that
    common models call most, and only such whose functional overload allocates a result and then runs the very
    kernel of ``out=``. That is not so everywhere: ``mse_loss.out`` uses its output as scratch, and no schema
    says so. Kernels that somebody has put in the place of PyTorch's may differ, so then nothing is known.

    The functions of ``torch`` are called, not the overloads: their argument parser is up to 1 us cheaper.
    They take what the functional overload takes, a number for a tensor as well.
    """
    facts = facts_of(op)
    into = facts.row.get("into")
    if into is None or is_replaced(facts.name) or is_replaced(f"aten::{into}"):
        return None
    return _relu if facts.short == "relu" else getattr(torch, facts.short)


def _relu(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return torch.clamp_min(x, 0, out=out)  # all that relu does


def with_tensors(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Iterable[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Operands with others in place of the tensors that :func:`tensors_in` finds, and lists for tuples."""
    rest = iter(tensors)
    changed = tuple(
        [
            next(rest) if type(each) is _Tensor
            else each if type(each) in PLAIN_VALUES
            else _changed(each, rest)
            for each in args
        ]
    )  # fmt: skip
    return changed, {name: _changed(each, rest) for name, each in kwargs.items()} if kwargs else kwargs


def _changed(value: Any, rest: Iterator[Any]) -> Any:
    if type(value) in PLAIN_VALUES:
        return value
    if isinstance(value, _Tensor):
        return next(rest)
    if isinstance(value, (list, tuple)):
        items = cast("list[Any] | tuple[Any, ...]", value)
        return list(items) if items and type(items[0]) is int else [_changed(each, rest) for each in items]
    return value


def walk(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """The tensors in an operand or result (ATen nests at most lists in tuples), each with its path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, (list, tuple)):
        for n, each in enumerate(cast("list[Any] | tuple[Any, ...]", value)):
            yield from walk(each, (*path, n))
