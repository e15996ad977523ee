"""The cheapest way to call an overload.

Hot operations are bound to their ``torch.`` function or tensor method, whose argument parser is up to 1 us
cheaper than the overload's; the parser is only trusted with overloads where it can pick no other, so the
lists below name overloads, not operations.
"""

from __future__ import annotations

import torch

from ..compat import raw_call
from .compat import Call, OpOverload

HOT_FUNCTIONS = frozenset(
    f"aten::{name}"
    for name in [
        "abs.out",
        "add.out",
        "addmm.out",
        "addmv.out",
        "amax.out",
        "baddbmm.out",
        "bmm.out",
        "cat.out",
        "clamp_min.out",
        "cos.out",
        "div.out",
        "exp.out",
        "gather.out",
        "index_select.out",
        "log.out",
        "maximum.out",
        "mean.out",
        "minimum.out",
        "mm.out",
        "mul.out",
        "mv.out",
        "neg.out",
        "pow.Tensor_Scalar_out",
        "reciprocal.out",
        "rsqrt.out",
        "sigmoid.out",
        "sin.out",
        "sqrt.out",
        "sub.out",
        "sum.IntList_out",
        "tanh.out",
        "where.self_out",
    ]
)
HOT_METHODS = frozenset(
    f"aten::{name}"
    for name in [
        "add_.Tensor",
        "addcdiv_",
        "addcmul_",
        "copy_",
        "div_.Tensor",
        "fill_.Scalar",
        "mul_.Tensor",
        "neg_",
        "relu_",
        "sigmoid_",
        "sqrt_",
        "sub_.Tensor",
        "tanh_",
        "zero_",
    ]
)


def function_of(op: OpOverload) -> Call:
    """What calls an ``out=`` overload."""
    name = op.name()
    if name in HOT_FUNCTIONS:
        return getattr(torch, name.removeprefix("aten::").partition(".")[0])
    return raw_call(op)


def method_of(op: OpOverload) -> str | None:
    """Name of the tensor method that calls the overload, if that is cheaper."""
    name = op.name()
    return name.removeprefix("aten::").partition(".")[0] if name in HOT_METHODS else None
