"""What the host has to know of an ATen operation, worked out once per operation and remembered.

Asking a schema costs microseconds per question (each answer is a new Python object), and a recording asks
for every operation it sees, so a backend keeps one :class:`Catalog` for all its sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from ...base.identity import identity
from ..compat import raw_call
from .compat import Call, OpOverload, composite_call, schema_of
from .out import writer_of

IGNORED_NAMESPACES = frozenset({"profiler", "prim"})
HOST_READS = frozenset({"_local_scalar_dense", "item", "is_nonzero", "equal", "allclose"})
MAKES_MEMORY = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
)
INDEXED = frozenset(
    {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
)
PLAIN_VALUES = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device})
"""Types of operands that are no tensors and contain none."""

_Tensor = torch.Tensor
# Each writes memory through an operand whose schema does not say so.
WRITES_UNSAID = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "rrelu_with_noise"})
# Besides the operations tagged inplace_view: they change where a tensor lies, never what lies there.
RESIZES = frozenset({"_resize_output_", "resize_as_sparse_"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What is true of every call of one overload.

    Attributes:
        op: The overload.
        name: The operation's name without overload, and without namespace if that is ``aten``.
        restricted: Some of its calls are refused whatever their operands are.
        ignored: Not an operation on tensors (profiler marks).
        host_read: Returns to Python a number that was computed on the device.
        dynamic: The shapes of its results depend on values.
        writes: Operands that its schema says it writes, as (position, name).
        unsaid_writes: It may write any of its operands.
        metadata_only: Changes a tensor's shape, strides or storage, and no memory.
        makes_memory: Its result has no defined values.
        silent: Returns nothing.
        composite: The call that takes it apart into other operations, if it has no kernel of its own.
        call: What calls it.
        writer: What writes its result into memory given to it, if that is known.
    """

    op: OpOverload
    name: str
    restricted: bool
    ignored: bool
    host_read: bool
    dynamic: bool
    writes: tuple[tuple[int, str], ...]
    unsaid_writes: bool
    metadata_only: bool
    makes_memory: bool
    silent: bool
    composite: Call | None
    call: Call
    writer: Call | None


class Catalog:
    """Facts of the operations seen so far."""

    def __init__(self) -> None:
        # By identity, since hashing an overload is a call of Python code. The facts keep it alive.
        self._facts: dict[int, Facts] = {}

    def facts(self, func: OpOverload) -> Facts:
        """What is true of every call of ``func``."""
        found = self._facts.get(identity(func))
        if found is None:
            found = self._facts[identity(func)] = _facts(func)
        return found


def tensors_in(values: Iterable[Any], found: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that :func:`walk` finds in operands, appended to ``found``."""
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


def _facts(func: OpOverload) -> Facts:
    schema = schema_of(func)
    name = str(schema.name).removeprefix("aten::")
    written = tuple(
        (n, str(each.name))
        for n, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    )
    host_read, dynamic = name in HOST_READS, torch.Tag.dynamic_output_shape in func.tags
    return Facts(
        op=func,
        name=name,
        restricted=host_read or dynamic or name in INDEXED,
        ignored=func.namespace in IGNORED_NAMESPACES,
        host_read=host_read,
        dynamic=dynamic,
        writes=written,
        unsaid_writes=name in WRITES_UNSAID,
        metadata_only=torch.Tag.inplace_view in func.tags or name in RESIZES,
        makes_memory=name in MAKES_MEMORY,
        silent=len(schema.returns) == 0,
        composite=composite_call(func),
        call=raw_call(func),
        writer=writer_of(func),
    )
