"""Zeros without memory, which forward-mode differentiation uses as derivatives.

The dispatcher handles most operations on them above the modes: a product with a zero is a zero, a sum with
it is the other operand. Two kinds come through: views, which are zeros again, and a few operations that want
memory (``clone``, ``copy_``, ``zeros_like``). These get a tensor of zeros with memory, made by operations
that a recording can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..operators import facts_of, written_operands
from ..pytorch import is_lazy_zero

LAZY_ZEROS: Any = torch.ops.aten._efficientzerotensor.default
"""The operation that makes them. Seen in torch 2.11 and 2.13."""


def on_zeros(func: Any) -> Callable[..., Any]:
    """An operation on zeros without memory, by operations on tensors with memory."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if "zero" in facts_of(func).row:
            return LAZY_ZEROS([], dtype=args[0].dtype, device=args[0].device)
        if any(map(is_lazy_zero, written_operands(facts_of(func), args, kwargs))):
            raise RuntimeError("a zero of forward-mode differentiation is written in place")  # as in eager
        return func(*_with_memory(args), **{name: _with_memory(value) for name, value in kwargs.items()})

    return call


def _with_memory(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_with_memory, value))
    if not isinstance(value, torch.Tensor) or not is_lazy_zero(value):
        return value
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    return made.zero_()
