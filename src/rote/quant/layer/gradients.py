"""The gradient of the layer's operator with respect to its input.

Rounding passes it straight through, and clipped entries get none. Autograd is off inside an operator, so the
gradient is one of its own, ``rote_quant::linear_backward``. It multiplies by the dense weight, in float32 and
by torch on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..config import UNQUANTIZED
from ..kernels import GROUP, LAYER, NAMESPACE, library, members, register, turns_of
from ..numerics import (
    Grid,
    chain_of,
    dense_weight,
    multiply_blocks,
    pad_columns,
    row_parameters,
    transform_rows,
)


def linear_backward(
    grad: Tensor, x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor,
    row_rotation: Any, bias: Any, features: int,
) -> Tensor:  # fmt: skip
    """The gradient of the input from the gradient of the output."""
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


def linears_backward(
    grads: Sequence[Tensor], x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Sequence[Tensor], act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    row_rotation: Sequence[Tensor], bias: Sequence[Tensor], features: Sequence[int],
) -> Tensor:  # fmt: skip
    """The gradient of an input that several layers share: the sum of what each gives."""
    weights = members(codes, w_scale, w_zero, w_sum, row_rotation, bias, features)
    turns = turns_of(stages, act_scale, len(codes))
    total: Any = 0
    for grad, (own, scale), weight in zip(grads, turns, weights, strict=True):
        grid = (act_bits, act_symmetric, act_clip, scale, act_zero)
        total = total + linear_backward(grad, x, smooth, own, width, *grid, *weight)
    return total


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save the tensors of the inputs for the backward, and where they stand among the rest."""
    leaves, ctx.spec = tree_flatten(inputs)
    ctx.save_for_backward(*(leaf for leaf in leaves if isinstance(leaf, Tensor)))
    ctx.leaves = [_SAVED if isinstance(leaf, Tensor) else leaf for leaf in leaves]


_SAVED = object()


def _gradients(backward: Callable[..., Tensor], ctx: Any, grad: Any) -> tuple[Any, ...]:
    """One gradient for each input: None, or a list of None for a list of tensors, for all but the first."""
    saved = iter(ctx.saved_tensors)
    leaves = [next(saved) if leaf is _SAVED else leaf for leaf in ctx.leaves]
    inputs = tree_unflatten(leaves, ctx.spec)
    lists = [isinstance(item, list | tuple) and all(isinstance(x, Tensor) for x in item) for item in inputs]
    none = [[None] * len(item) if tensors else None for item, tensors in zip(inputs, lists, strict=True)]
    return backward(grad if isinstance(grad, Tensor) else list(grad), *inputs), *none[1:]


for _name, _schema, _backward in (
    ("linear", f"(Tensor grad, Tensor x, {LAYER}) -> Tensor", linear_backward),
    ("linears", f"(Tensor[] grads, Tensor x, {GROUP}) -> Tensor", linears_backward),
):
    register(f"{_name}_backward", _schema, _backward, _backward, lambda grad, x, *rest: x.new_empty(x.shape))
    _gradient = partial(_gradients, getattr(torch.ops.rote_quant, f"{_name}_backward"))
    torch.library.register_autograd(f"{NAMESPACE}::{_name}", _gradient, setup_context=_keep, lib=library)
