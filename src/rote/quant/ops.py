"""The integer layer as one operator of torch, ``rote_quant::linear``, and its parts.

One opaque operator for a layer keeps the eager cost at a few microseconds, puts one node into a graph of
``torch.compile`` and leaves no state behind. Its parts are operators too (``quantize_rows`` with the
transform in front, ``integer_linear``), for layers that share one input. Registered for CPU and CUDA with the
arithmetic of :mod:`~rote.quant.arithmetic`, for fake tensors, and with a gradient for the input: rounding is
passed straight through, clipped entries get none.

The gradient is written out in ``linear_backward`` because autograd is off inside an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .arithmetic import integer_linear, quantize_rows, restore_rows, row_parameters
from .grid import Grid
from .packing import unpack
from .stages import chain_of
from .transforms import multiply_blocks, pad_columns

NAMESPACE = "rote_quant"
_TRANSFORM = "Tensor? smooth, Tensor[] rotations, Tensor[] orders, bool permute_first, int width"
_ACTIVATION = "int act_bits, bool act_symmetric, float act_clip, Tensor? act_scale, Tensor? act_zero"
_WEIGHT = "Tensor codes, Tensor weight_scale, Tensor weight_zero, int weight_bits"
_OUTPUT = "Tensor? row_rotation, Tensor? bias, int features"
_ALL = f"{_TRANSFORM}, {_ACTIVATION}, {_WEIGHT}, {_OUTPUT}"

_library = torch.library.Library(NAMESPACE, "DEF")
_library.define(f"quantize_rows(Tensor x, {_TRANSFORM}, {_ACTIVATION}) -> (Tensor, Tensor, Tensor)")
_library.define(f"integer_linear(Tensor rows, Tensor scale, Tensor zero, {_WEIGHT}) -> Tensor")
_library.define(f"linear(Tensor x, {_ALL}) -> Tensor")
_library.define(f"linear_backward(Tensor grad, Tensor x, {_ALL}) -> Tensor")


def transformed_rows(
    x: Tensor,
    smooth: Tensor | None,
    rotations: Sequence[Tensor],
    orders: Sequence[Tensor],
    permute_first: bool,
    width: int,
) -> Tensor:
    """Inputs of shape ``(..., in)`` as transformed rows ``(rows, width)``, at least float32."""
    rows = pad_columns(x.reshape(-1, x.shape[-1]), width)
    return chain_of(smooth, rotations, orders, permute_first).apply(rows)


def _quantize_rows(
    x: Tensor, smooth: Any, rotations: Any, orders: Any, permute_first: bool, width: int, *activation: Any
) -> tuple[Tensor, Tensor, Tensor]:
    rows = transformed_rows(x, smooth, rotations, orders, permute_first, width)
    return quantize_rows(rows, *activation)


def _linear(
    x: Tensor, smooth: Any, rotations: Any, orders: Any, permute_first: bool, width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, weight_scale: Tensor, weight_zero: Tensor, weight_bits: int,
    row_rotation: Any, bias: Any, features: int,
) -> Tensor:  # fmt: skip
    rows = transformed_rows(x, smooth, rotations, orders, permute_first, width)
    if act_bits > 8:
        y = rows @ dense_weight(codes, weight_scale, weight_zero, weight_bits).to(rows).T
    else:
        quantized = quantize_rows(rows, act_bits, act_symmetric, act_clip, act_scale, act_zero)
        y = integer_linear(*quantized, codes, weight_scale, weight_zero, weight_bits)
    y = restore_rows(y, row_rotation, bias, features).to(x.dtype).contiguous()
    return y.reshape(*x.shape[:-1], features)


def _linear_backward(
    grad: Tensor, x: Tensor, smooth: Any, rotations: Any, orders: Any, permute_first: bool, width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, weight_scale: Tensor, weight_zero: Tensor, weight_bits: int,
    row_rotation: Any, bias: Any, features: int,
) -> Tensor:  # fmt: skip
    weight = dense_weight(codes, weight_scale, weight_zero, weight_bits)
    up = pad_columns(grad.reshape(-1, features).float(), weight.shape[0])
    if row_rotation is not None:
        up = multiply_blocks(up, row_rotation.to(up).mT)
    up = up @ weight
    if act_bits <= 8:
        rows = transformed_rows(x, smooth, rotations, orders, permute_first, width)
        grid = Grid(act_bits, act_symmetric)
        if act_scale is None:
            step, origin = row_parameters(rows, grid, act_clip)
        else:
            step, origin = act_scale, rows.new_zeros(()) if act_zero is None else act_zero
            up = up / act_scale if act_scale.numel() > 1 else up  # the weight has been multiplied by it
        up = up.masked_fill(grid.clipped(rows, step, origin), 0)
    up = chain_of(smooth, rotations, orders, permute_first).transposed(up)
    return up[:, : x.shape[-1]].to(x.dtype).contiguous().reshape(x.shape)


def dense_weight(codes: Tensor, scale: Tensor, zero: Tensor, bits: int) -> Tensor:
    """What the codes of a weight stand for, float32."""
    rows, groups = scale.shape
    parts = unpack(codes, bits).float().reshape(rows, groups, -1)
    return ((parts - zero.float()[:, :, None]) * scale[:, :, None]).reshape(rows, -1)


for _kind in ("CPU", "CUDA"):
    _library.impl("quantize_rows", _quantize_rows, _kind)
    _library.impl("integer_linear", integer_linear, _kind)
    _library.impl("linear", _linear, _kind)
    _library.impl("linear_backward", _linear_backward, _kind)


def _fake_rows(
    x: Tensor, smooth: Any, rotations: Any, orders: Any, permute_first: bool, width: int, *activation: Any
) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.numel() // x.shape[-1]
    codes = x.new_empty(rows, width, dtype=torch.int8)
    return codes, x.new_empty(rows, dtype=torch.float32), x.new_empty(rows, dtype=torch.int32)


def _fake_product(rows: Tensor, scale: Tensor, zero: Tensor, codes: Tensor, *weight: Any) -> Tensor:
    return scale.new_empty(rows.shape[0], codes.shape[0])


def _fake_linear(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(*x.shape[:-1], rest[-1])


def _fake_backward(grad: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


torch.library.register_fake(f"{NAMESPACE}::quantize_rows", _fake_rows, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::integer_linear", _fake_product, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::linear", _fake_linear, lib=_library)
torch.library.register_fake(f"{NAMESPACE}::linear_backward", _fake_backward, lib=_library)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, smooth, rotations, orders, *rest = inputs
    tensors = [x, smooth, *rotations, *orders, *(item for item in rest if isinstance(item, Tensor))]
    ctx.save_for_backward(*tensors)
    ctx.counts = len(rotations), len(orders)
    ctx.rest = [item if not isinstance(item, Tensor) else _TAKEN for item in rest]


_TAKEN = object()


def _input_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, smooth, *saved = ctx.saved_tensors
    turns, moves = ctx.counts
    rotations, orders, saved = saved[:turns], saved[turns : turns + moves], iter(saved[turns + moves :])
    rest = [next(saved) if item is _TAKEN else item for item in ctx.rest]
    mine = torch.ops.rote_quant.linear_backward(grad, x, smooth, rotations, orders, *rest)
    return mine, None, [None] * turns, [None] * moves, *(None for _ in rest)


torch.library.register_autograd(f"{NAMESPACE}::linear", _input_gradient, setup_context=_keep, lib=_library)
