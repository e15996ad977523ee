"""What libraries say of the sizes of their operators' results: a kernel for meta tensors calculates them.

``torch.library.register_fake`` registers one, as compilers need it. It sees no values, so what it gives
depends on the operands' sizes alone. It raises where the sizes of the operator's own results depend on
values. A library that has no such kernel says nothing: results may have another size each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..pytorch import REPLACEMENTS, unseen_functions
from .torch_private import has_meta_kernel

_Key = tuple[Any, ...]


class ToldSizes:
    """Which operators have told the sizes of their results, by operands.

    Attributes:
        broken: Names of operators that have given another size than was told. It is an edge from then on.
    """

    def __init__(self) -> None:
        self.broken = set[str]()
        self._known: dict[_Key, bool] = {}

    def are_told(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether the sizes of an overload's results follow from its operands' sizes, as its library says."""
        if not has_meta_kernel(func):
            return False
        key = func, *map(_kind, pytree.tree_leaves((args, kwargs)))
        if key not in self._known:
            self._known[key] = _calculates(func, args, kwargs)
        return self._known[key]


TOLD_SIZES = ToldSizes()
"""Operators are the process's."""


def _kind(operand: Any) -> Any:
    return (operand.dtype, operand.dim()) if isinstance(operand, torch.Tensor) else type(operand)


def _calculates(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    with REPLACEMENTS.withdrawn(), unseen_functions(), torch.no_grad():
        try:
            results = func(*pytree.tree_map(_bare, tuple(args)), **pytree.tree_map(_bare, kwargs))
        except Exception:  # whatever the library's code says of operands without values
            return False
    return all([not isinstance(each, torch.Tensor) or each.is_meta for each in pytree.tree_leaves(results)])


def _bare(operand: Any) -> Any:
    if not isinstance(operand, torch.Tensor):
        return operand
    return torch.empty_strided(operand.shape, operand.stride(), dtype=operand.dtype, device="meta")
