"""The gradient of the layer's operator with respect to its input.

Rounding is passed straight through, and clipped entries get none. It is written out in an operator of its
own, ``rote_quant::linear_backward``, because autograd is off inside an operator; it goes through the dense
weight, in float32 and through torch on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from ..config import UNQUANTIZED
from ..kernels import GROUP, LAYER, NAMESPACE, library, members, turns_of
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


def linears_backward(
    grads: Sequence[Tensor], x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Sequence[Tensor], act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    row_rotation: Sequence[Tensor], bias: Sequence[Tensor], features: Sequence[int],
) -> Tensor:  # fmt: skip
    """The gradient of an input that several layers share: the sum of what each gives."""
    total: Tensor | None = None
    weights = members(codes, w_scale, w_zero, w_sum, row_rotation, bias, features)
    turns = turns_of(stages, act_scale, len(codes))
    for grad, (own, scale), weight in zip(grads, turns, weights, strict=True):
        grid = (act_bits, act_symmetric, act_clip, scale, act_zero)
        mine = linear_backward(grad, x, smooth, own, width, *grid, *weight)
        total = mine if total is None else total + mine
    assert total is not None
    return total


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save the tensors of the inputs for the way back, and how they lie among the rest."""
    kept: list[Tensor] = []
    ctx.places = []
    for item in inputs:
        if isinstance(item, Tensor):
            kept.append(item)
            ctx.places.append(_ONE)
        elif isinstance(item, list | tuple) and all(isinstance(part, Tensor) for part in cast(Any, item)):
            found = cast(Sequence[Tensor], item)
            kept += found
            ctx.places.append(_Several(len(found)))
        else:
            ctx.places.append(item)
    ctx.save_for_backward(*kept)


@dataclass(frozen=True)
class _Several:
    """The place of a list of tensors."""

    count: int


_ONE = object()


def _inputs(ctx: Any) -> list[Any]:
    saved = iter(ctx.saved_tensors)
    return [
        next(saved) if place is _ONE
        else [next(saved) for _ in range(place.count)] if isinstance(place, _Several)
        else place
        for place in ctx.places
    ]  # fmt: skip


def _gradients(ctx: Any, mine: Tensor) -> tuple[Any, ...]:
    """One for each input: all but the first have none."""
    others = [[None] * place.count if isinstance(place, _Several) else None for place in ctx.places[1:]]
    return mine, *others


def _input_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _gradients(ctx, torch.ops.rote_quant.linear_backward(grad, *_inputs(ctx)))


def _group_gradient(ctx: Any, grads: Sequence[Tensor]) -> tuple[Any, ...]:
    return _gradients(ctx, torch.ops.rote_quant.linears_backward(list(grads), *_inputs(ctx)))


def _fake_group_backward(grads: Sequence[Tensor], x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


library.define(f"linear_backward(Tensor grad, Tensor x, {LAYER}) -> Tensor")
library.define(f"linears_backward(Tensor[] grads, Tensor x, {GROUP}) -> Tensor")
for _kind in ("CPU", "CUDA"):
    library.impl("linear_backward", linear_backward, _kind)
    library.impl("linears_backward", linears_backward, _kind)
torch.library.register_fake(f"{NAMESPACE}::linear_backward", _fake_backward, lib=library)
torch.library.register_fake(f"{NAMESPACE}::linears_backward", _fake_group_backward, lib=library)
torch.library.register_autograd(f"{NAMESPACE}::linears", _group_gradient, setup_context=_keep, lib=library)
torch.library.register_autograd(f"{NAMESPACE}::linear", _input_gradient, setup_context=_keep, lib=library)
