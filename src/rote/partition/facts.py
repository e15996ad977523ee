"""What the schema of an operation says, looked up once for each operation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

_UNDECLARED_WRITES = {  # running statistics are written without an alias in the schema
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}


class Facts(NamedTuple):
    """Facts of one operation.

    Attributes:
        name: ``namespace::name.overload``.
        namespace: The part before the colons.
        dynamic: The shape of its result depends on data.
        mutable: Its schema declares that it writes an operand.
        written: Positions and names of the operands it writes, declared or not.
        seeded: It draws random numbers.
    """

    name: str
    namespace: str
    dynamic: bool
    mutable: bool
    written: tuple[tuple[int, str], ...]
    seeded: bool


@lru_cache(maxsize=None)
def facts_of(func: Any) -> Facts:
    """The facts of an operator overload."""
    schema = func._schema
    undeclared = _UNDECLARED_WRITES.get(func.name(), ())
    written = tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if position in undeclared or (argument.alias_info is not None and argument.alias_info.is_write)
    )
    return Facts(
        name=func.name(),
        namespace=func.namespace,
        dynamic=torch.Tag.dynamic_output_shape in func.tags,
        mutable=schema.is_mutable,
        written=written,
        seeded=torch.Tag.nondeterministic_seeded in func.tags
        or any(argument.name == "generator" for argument in schema.arguments),
    )


def written_operands(
    facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The tensors that an operation writes."""
    found: list[torch.Tensor] = []
    for position, name in facts.written:
        value = args[position] if position < len(args) else kwargs.get(name)
        items = value if isinstance(value, (list, tuple)) else (value,)
        found.extend(item for item in items if isinstance(item, torch.Tensor))
    return found
