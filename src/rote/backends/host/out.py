"""The operations that are repeated by writing their result straight into memory given to them.

Any other operation is called again and what it returns is copied. The list is that of what common models call
most, and only holds operations whose functional overload allocates a result and then runs the very kernel of
``out=``. That is not so everywhere: ``mse_loss.out`` uses its output as scratch, and no schema says so.

The functions of ``torch`` are called, not the overloads: their argument parser is up to 1 us cheaper. They
take what the functional overload takes, a number for a tensor as well.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .compat import Call, OpOverload, is_replaced


def _relu(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return torch.clamp_min(x, 0, out=out)  # all that relu does


INTO: Mapping[str, tuple[Call, str]] = {
    "aten::add.Tensor": (torch.add, "aten::add.out"),
    "aten::addmm": (torch.addmm, "aten::addmm.out"),
    "aten::bmm": (torch.bmm, "aten::bmm.out"),
    "aten::cat": (torch.cat, "aten::cat.out"),
    "aten::cos": (torch.cos, "aten::cos.out"),
    "aten::div.Tensor": (torch.div, "aten::div.out"),
    "aten::mean.dim": (torch.mean, "aten::mean.out"),
    "aten::mm": (torch.mm, "aten::mm.out"),
    "aten::mul.Tensor": (torch.mul, "aten::mul.out"),
    "aten::neg": (torch.neg, "aten::neg.out"),
    "aten::pow.Tensor_Scalar": (torch.pow, "aten::pow.Tensor_Scalar_out"),
    "aten::relu": (_relu, "aten::clamp_min.out"),
    "aten::rsqrt": (torch.rsqrt, "aten::rsqrt.out"),
    "aten::sin": (torch.sin, "aten::sin.out"),
    "aten::sub.Tensor": (torch.sub, "aten::sub.out"),
    "aten::sum.dim_IntList": (torch.sum, "aten::sum.IntList_out"),
    "aten::tanh": (torch.tanh, "aten::tanh.out"),
}
"""By functional overload: what does the same with ``out=``, and the overload that it calls."""


def writer_of(op: OpOverload) -> Call | None:
    """What writes an operation's result into its operand ``out``; None if nothing is known to do so.

    Kernels that somebody has put in the place of PyTorch's may differ, so then nothing is.
    """
    call, target = INTO.get(op.name(), (None, ""))
    return None if call is None or is_replaced(op.name()) or is_replaced(target) else call
