"""The kind of an object for noting reads, and what has to be done for its type, looked up by that."""

from __future__ import annotations

import sys
import types
from collections import defaultdict, deque
from typing import Any

import numpy
import torch

from ...objects import said_module
from ...pytorch import is_sharded
from ..table import lookup, types_in

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


MEETS, FINDS, BY_CONTENT, HOLDS, NUMBERED, STANDS, GENERATES, SPREAD, BINDS, STAGED, COMPILES, SHARDED = (
    1 << place for place in range(12)
)
"""What a value that lies outside may need: a tensor is met; an object is outside, too; it is compared by what
it holds; it holds tensors; its numbers are read; it may stand for another function; it is a random generator;
it has parts that were numbers; it may be a bound method; it may be an empty table of a scaler's; it belongs
to PyTorch's compiler; it is a tensor of which each process has a part."""

_CONTENTS = types_in("types_by_content")
"""Types that :func:`...objects.marks.mark` compares by what they hold; iterators are such, too."""
_HOLDING = frozenset({torch.Tensor, dict, list, tuple})
"""Types of what a call may replace in a slot, and find there in the next call."""
_OURS = f"{__name__.partition('.')[0]}."


class Traits(dict[type, int]):
    """What reading a value of a type needs, as flags; of most values nothing does."""

    def __init__(self, kinds: dict[type, int]) -> None:
        super().__init__()
        self._kinds = kinds

    def __missing__(self, kind: type) -> int:
        what = self._kinds[kind]
        binds = issubclass(kind, types.MethodType) or said_module(kind).startswith(_OURS)
        found = (
            (MEETS, what == TENSOR),
            (FINDS, what not in (PLAIN, TENSOR)),
            (BY_CONTENT, issubclass(kind, _CONTENTS) or lookup.find(kind, "__next__").owner is not None),
            (HOLDS, kind in _HOLDING),
            (NUMBERED, issubclass(kind, numpy.ndarray)),
            (STANDS, what == FUNCTION),
            (GENERATES, kind is torch.Generator),
            (SPREAD, kind is slice),
            (BINDS, binds and what not in (CONTAINER, MODULE, CLASS, FUNCTION)),
            (STAGED, kind is defaultdict),
            (COMPILES, is_compilers(said_module(kind))),
            (SHARDED, is_sharded(kind)),
        )
        flags = self[kind] = sum([flag for flag, has in found if has])
        return flags


_SINCE_3_12 = types_in("fixed_types_since_3_12") if sys.version_info >= (3, 12) else ()
FIXED = (*PLAIN_TYPES, *C_FUNCTIONS, *types_in("fixed_types"), *_SINCE_3_12)
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
    return issubclass(type(value), (*CONTAINERS, deque))


def is_compilers(module: Any) -> bool:
    """Whether a module is PyTorch's compiler's or dispatcher's: they stand aside during a trace."""
    return isinstance(module, str) and module.startswith(
        ("torch._dynamo", "torch._ops", "torch.jit._builtins")
    )
