"""Whose contents an operation reads, and which operations make memory that nobody has written yet.

What lies in such memory, once it is read, came from somewhere. If no operation wrote it, something else did:
C++ code that fills a tensor of numbers it was given in a call (``at::tensor``), or ``ctypes``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from ..backends.host.operations import MAKES_MEMORY, tensors_in
from .facts import Facts, written_operands

_WRITES_ONLY = frozenset({
    "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_",
    "cauchy_", "log_normal_", "scatter_", "index_put_", "_index_put_impl_", "index_copy_", "index_fill_",
    "masked_fill_", "masked_scatter_", "put_", "fill_diagonal_", "_foreach_copy_", "_foreach_zero_",
})  # fmt: skip
"""What they write they do not read. Some write parts only: the rest is written by others, as a rule."""

_LIKE = frozenset({"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"})
"""They take an operand for its shape; so do all whose names begin with ``new_``."""

_SCALED = frozenset({
    "addmm", "addmm_", "addmv", "addmv_", "addr", "addr_", "addbmm", "addbmm_", "baddbmm", "baddbmm_",
})  # fmt: skip
"""They read their first operand only if ``beta`` is not zero."""


@cache
def makes_memory(func: Any) -> bool:
    """Whether the result of an operation is memory that it has not written."""
    return func.namespace == "aten" and _name(func) in MAKES_MEMORY


@cache
def _asks_shapes(func: Any) -> bool:
    name = _name(func)
    if func.is_view or torch.Tag.inplace_view in func.tags:
        return True
    if func.namespace != "aten":
        return False
    return name in MAKES_MEMORY or name in _LIKE or name.startswith("new_") or name == "_unsafe_view"


@cache
def _writes_only(func: Any) -> bool:
    if func.namespace != "aten":  # a schema of somebody's own does not say more
        return True
    written = [
        each for each in func._schema.arguments if each.alias_info is not None and each.alias_info.is_write
    ]
    return _name(func) in _WRITES_ONLY or all(argument.kwarg_only for argument in written)


def read_operands(
    func: Any, facts: Facts, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.Tensor]:
    """The tensors whose contents an operation reads.

    Args:
        func: The operation.
        facts: Of it.
        args: Its operands.
        kwargs: Those that are named.
    """
    if _asks_shapes(func):
        return []
    unread = written_operands(facts, args, kwargs) if facts.mutable and _writes_only(func) else []
    if _name(func) in _SCALED and kwargs.get("beta", 1) == 0:
        unread.append(args[0])
    return [
        tensor
        for tensor in tensors_in((*args, *kwargs.values()), [])
        if not any(tensor is other for other in unread)
    ]


def _name(func: Any) -> str:
    return str(func._schema.name).removeprefix("aten::")
