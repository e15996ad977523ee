"""What the schema of an operation says, looked up once for each operation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_aten = torch.ops.aten
_READS = frozenset({_aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default})
_CHECKS = frozenset({_aten._linalg_check_errors.default})
_UNRECORDED = frozenset({_aten._linalg_eigh.default})
"""What fails on a GPU in a call that is recorded, even between two segments, for a reason that is not known:
cuSOLVER's ``Xsyevd`` returns EXECUTION_FAILED there, and is right in calls that are observed. Seen in CUDA
13.0, torch 2.11."""
_METADATA = frozenset({_aten.is_same_size.default, _aten._has_same_storage_numel.default})
_INDEXED = frozenset({
    _aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default,
    _aten._unsafe_index.Tensor,
})  # fmt: skip
_VALUES = frozenset({"bool", "int", "float", "number", "Scalar"})
_SIZES = frozenset({"SymBool", "SymInt", "SymFloat"})
"""PyTorch's own operations work these out from shapes; in schemas of others they are any numbers."""
_SIZE = re.compile(r"Sym(?:Int|Bool|Float) (\w+)")
"""A named size among results: only the text of a schema tells it from a number."""
_OBJECT = "__torch__"
"""What the types of objects of C++ begin with."""
_COLLECTIVES = frozenset({
    "c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem",
})  # fmt: skip
"""Namespaces of operators that act on other processes; so do others that take a process group."""
_GROUP = ".classes.c10d."
_IGNORED_NAMESPACES = frozenset({"profiler", "prim"})
_UNDECLARED_WRITES = {  # running statistics are written without an alias in the schema
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}
_TRAINING = 5  # position of the flag of these operations without which they write nothing


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one operation.

    Attributes:
        name: ``namespace::name.overload``.
        dynamic: The shape of its result depends on data, or a value that it returns beside tensors.
        mutable: Its schema declares that it writes an operand.
        written: Positions and names of the operands it writes, declared or not.
        training: Position of a flag without which it writes none of them.
        seeded: It may draw random numbers.
        dropout: Position of the dropout probability of an attention, which draws none at 0.
        beside: It returns values that are no tensors, beside tensors or in lists.
        reads: The host reads its value.
        checks: The host reads its operand, and raises or does nothing.
        indexed: It indexes, and a mask among the indices is counted on the host.
        stores: It writes through an index.
        unrecorded: On a GPU no call with it is recorded.
        unsafe: Its author says that no CUDA graph may hold it.
        collective: It acts on other processes.
        hidden: It is no computation (profiler marks, questions about shapes).
        simple: None of what decides where it runs, but for the devices of its operands.
        reshapes: It may change the shape of an operand.
    """

    name: str
    dynamic: bool
    mutable: bool
    written: tuple[tuple[int, str], ...]
    training: int | None
    seeded: bool
    dropout: int | None
    beside: bool
    reads: bool
    checks: bool
    indexed: bool
    stores: bool
    unrecorded: bool
    unsafe: bool
    collective: bool
    hidden: bool
    simple: bool
    reshapes: bool


@cache
def facts_of(func: Any) -> Facts:
    """The facts of an operator overload."""
    schema = func._schema
    undeclared = _UNDECLARED_WRITES.get(func.name(), ())
    written = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if position in undeclared or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    name = func.name()
    numbers, values = _returned_values(func)
    dynamic = torch.Tag.dynamic_output_shape in func.tags or values
    reads = func in _READS or (func not in _METADATA and numbers)
    unsafe = torch.Tag.cudagraph_unsafe in func.tags
    indexed, stores = func in _INDEXED, "index_put" in name
    hidden = func.namespace in _IGNORED_NAMESPACES or func in _METADATA
    collective = func.namespace in _COLLECTIVES or _GROUP in str(schema)
    dropouts = [i for i, argument in enumerate(schema.arguments) if argument.name == "dropout_p"]
    return Facts(
        name=name,
        dynamic=dynamic,
        mutable=schema.is_mutable,
        written=written,
        training=_TRAINING if undeclared else None,
        dropout=dropouts[0] if dropouts and "attention" in name else None,
        beside=values,
        reads=reads,
        checks=func in _CHECKS,
        indexed=indexed,
        stores=stores,
        unrecorded=func in _UNRECORDED,
        unsafe=unsafe,
        collective=collective,
        hidden=hidden,
        simple=not (
            dynamic
            or reads
            or func in _CHECKS
            or indexed
            or stores
            or hidden
            or func in _UNRECORDED
            or collective
        ),
        reshapes=schema.is_mutable or func.namespace != "aten",  # others' schemas need not say it
        seeded=torch.Tag.nondeterministic_seeded in func.tags
        or any("Generator" in str(argument.type) for argument in schema.arguments),
    )


def _returned_values(func: Any) -> tuple[bool, bool]:
    """Whether an operation returns nothing but numbers, which the host reads, or values beside tensors.

    Without tensors PyTorch's own operations work them out from their operands (``can_cast``), others from
    anything.
    """
    schema = func._schema
    own = func.namespace == "aten"
    sizes = _SIZE.findall(str(schema).rpartition(") -> ")[2]) if own else []
    kinds = ["SymInt" if value.name in sizes else str(value.type) for value in schema.returns]
    if own and not any("Tensor" in str(argument.type) for argument in schema.arguments):
        return False, False
    values = [kind in _VALUES if own else "Tensor" not in kind and kind[:9] != _OBJECT for kind in kinds]
    simple = bool(kinds) and all(kind in _VALUES or kind in _SIZES or kind == "str" for kind in kinds)
    return simple and all(values), any(values) and not simple


def written_operands(facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operation writes."""
    found: list[torch.Tensor] = []
    at = facts.training
    if at is not None and not (args[at] if at < len(args) else kwargs["training"]):
        return found
    for position, name in facts.written:
        value = args[position] if position < len(args) else kwargs.get(name)
        items = value if isinstance(value, (list, tuple)) else (value,)
        found.extend(item for item in items if isinstance(item, torch.Tensor))
    return found
