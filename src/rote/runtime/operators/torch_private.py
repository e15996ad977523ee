"""What operators have under private names only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
"""Seen in torch 2.11 and 2.13."""


def schema_of(op: Any) -> Any:
    """The overload's ``FunctionSchema``. Seen in torch 2.11 and 2.13; there is no public way to it."""
    return op._schema


python_kernels: Any = torch.library._impls
"""The kernels registered from Python, as ``namespace/operation/key``. Seen in torch 2.11 and 2.13."""
_BESIDE = ("/Meta", "/FuncTorchBatched", "/Autograd")
"""Kernels for shapes, for ``vmap`` and for gradients."""


@cache
def has_python_kernel(op: Any) -> bool:
    """Whether an operator is written in Python: what it launches is seen where it does."""
    prefix = op.name().replace("::", "/") + "/"
    return any([key.startswith(prefix) and not key.endswith(_BESIDE) for key in python_kernels])


@cache
def has_meta_kernel(op: Any) -> bool:
    """Whether an operator has a kernel of its own for tensors without values."""
    return bool(_has_kernel(op.name(), "Meta"))


@cache
def composite_call(op: Any) -> Callable[..., Any] | None:
    """The C++ kernel that takes a composite operation apart, or None if it has a kernel of its own.

    ``op.decompose`` prefers decompositions in Python, whose numbers and aliases may be others. Seen in torch
    2.11 and 2.13.
    """
    with_key = getattr(op, "_op_dk", None)
    if with_key is None or not _has_kernel(op.name(), "CompositeImplicitAutograd"):
        return None
    if any(_has_kernel(op.name(), key) for key in ("CPU", "CUDA", "CompositeExplicitAutograd")):
        return None
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return lambda *args, **kwargs: with_key(key, *args, **kwargs)
