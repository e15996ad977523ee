"""The kind of an object for noting reads, looked up in a table by its type."""

from __future__ import annotations

import types
from typing import Any

import torch

from ..table import types_in

PLAIN, TENSOR, CONTAINER, DERIVED, MODULE, CLASS, FUNCTION, METHOD, IN_C, OTHER = range(10)
"""A value that cannot change; a tensor; a builtin container; an instance of a subclass of one; a Python
module; a class; a Python function; a bound method; a function of C; anything else."""

PLAIN_TYPES = frozenset(types_in("plain_types"))
"""Types of values that cannot change."""

CONTAINERS = (dict, list, tuple, set, frozenset)
"""Builtin containers."""

C_FUNCTIONS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
"""Types of functions of C, bound or not."""

_BASES = {
    torch.Tensor: TENSOR,
    type: CLASS,
    types.ModuleType: MODULE,
    **dict.fromkeys(CONTAINERS, DERIVED),
    **dict.fromkeys(C_FUNCTIONS, IN_C),
}


class _Kinds(dict[type, int]):
    """The kind of each type, computed at the first lookup."""

    def __missing__(self, kind: type) -> int:
        found = next((_BASES[base] for base in type.mro(kind) if base in _BASES), OTHER)
        self[kind] = found
        return found


FIXED = (*PLAIN_TYPES, *C_FUNCTIONS, *types_in("fixed_types"))
"""Types whose instances do not change, or whose changes are noticed in other ways."""


def table() -> dict[type, int]:
    """A new table of kinds by type."""
    return _Kinds({
        **dict.fromkeys(PLAIN_TYPES, PLAIN), **dict.fromkeys(CONTAINERS, CONTAINER),
        types.FunctionType: FUNCTION, types.MethodType: METHOD,
    })  # fmt: skip


def is_in_c(value: Any) -> bool:
    """Whether a value is a function of C."""
    return issubclass(type(value), C_FUNCTIONS)


def is_readable(value: Any) -> bool:
    """Whether the members of a value can be read without running code of the user's."""
    return issubclass(type(value), CONTAINERS) or type(value).__name__ == "deque"
