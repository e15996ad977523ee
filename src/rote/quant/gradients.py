"""The gradient of the layer's operator with respect to its input.

Rounding is passed straight through, and clipped entries get none. It is written out in an operator of its
own, ``rote_quant::linear_backward``, because autograd is off inside an operator; it goes through the dense
weight, in float32 and through torch on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .arithmetic import dense_weight, row_parameters, transform_rows
from .config import UNQUANTIZED
from .grid import Grid
from .kernels.ops import LAYER, NAMESPACE, library
from .stages import chain_of
from .transforms import multiply_blocks, pad_columns


def linear_backward(
    grad: Tensor, x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor,
    row_rotation: Any, bias: Any, features: int,
) -> Tensor:  # fmt: skip
    """The gradient of the input, from that of the output."""
    weight = dense_weight(codes, w_scale, w_zero, width)
    up = pad_columns(grad.reshape(-1, features).float(), weight.shape[0])
    if row_rotation is not None:
        up = multiply_blocks(up, row_rotation.to(up).mT)
    up = up @ weight
    if act_bits < UNQUANTIZED:
        rows = transform_rows(x, smooth, stages, width)
        grid = Grid(act_bits, act_symmetric)
        if act_scale is None:
            step, origin = row_parameters(rows, grid, act_clip)
        else:
            step, origin = act_scale, rows.new_zeros(()) if act_zero is None else act_zero
            up = up / act_scale if act_scale.numel() > 1 else up  # the weight has been multiplied by it
        up = up.masked_fill(grid.clipped(rows, step, origin), 0)
    up = chain_of(smooth, stages).transposed(up)
    return up[:, : x.shape[-1]].to(x.dtype).contiguous().reshape(x.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, smooth, stages, *rest = inputs
    ctx.save_for_backward(x, smooth, *stages, *(item for item in rest if isinstance(item, Tensor)))
    ctx.stages = len(stages)
    ctx.rest = [_TAKEN if isinstance(item, Tensor) else item for item in rest]


_TAKEN = object()


def _input_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, smooth, *saved = ctx.saved_tensors
    stages, others = saved[: ctx.stages], iter(saved[ctx.stages :])
    rest = [next(others) if item is _TAKEN else item for item in ctx.rest]
    mine = torch.ops.rote_quant.linear_backward(grad, x, smooth, stages, *rest)
    return mine, None, [None] * ctx.stages, *(None for _ in rest)


def _fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


library.define(f"linear_backward(Tensor grad, Tensor x, {LAYER}) -> Tensor")
for _kind in ("CPU", "CUDA"):
    library.impl("linear_backward", linear_backward, _kind)
torch.library.register_fake(f"{NAMESPACE}::linear_backward", _fake_backward, lib=library)
torch.library.register_autograd(f"{NAMESPACE}::linear", _input_gradient, setup_context=_keep, lib=library)
