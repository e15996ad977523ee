"""What a layer calls: operators of torch, each with a CUDA, a CPU and a fake implementation.

They are registered by ``Library.define``, which costs a call a third of what ``custom_op`` does. Each
allocates what it returns and what it works in, writes nothing else, reads nothing back to the host, and can
be captured into a graph once its kernels are compiled (see ``warmup``). None has a gradient; the layer gives
one.

``linear`` is the layer's whole work. Its first kernel also writes the zeros that its second one adds to,
which is why it is one operator and not two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import gemm, oracle, transform
from .packing import BLOCK, PackedWeight

NAMESPACE = "rote_kernels"
_TRANSFORM = "Tensor? smooth, Tensor[] stages, int width"
_GRID = "int low, int high, bool symmetric, float clip, Tensor? static_scale, Tensor? static_zero"
_WEIGHT = "Tensor codes, Tensor w_scale, Tensor? w_zero, Tensor w_sum, Tensor? bias"


@dataclass(frozen=True)
class Transform:
    """What is done to activations before they are quantized.

    Attributes:
        smooth: What channels are divided by, of shape ``(features,)``, or None.
        stages: In order: rotations, of shape ``(1, size, size)`` or ``(width / size, size, size)``, and
            permutations, integers of shape ``(width,)`` (int16 is read fastest).
        width: Channels after the transform; inputs are padded to it with zeros.
    """

    smooth: Tensor | None
    stages: tuple[Tensor, ...]
    width: int


@dataclass(frozen=True)
class Grid:
    """How activations are quantized.

    Attributes:
        low: The smallest code.
        high: The largest code; 0 leaves activations as they are.
        symmetric: Without zero points.
        clip: Factor on each token's range.
        static_scale: None for a scale from each token; float32 of shape ``(1,)``; or of shape ``(width,)``,
            by which channels are divided and which the weight has absorbed.
        static_zero: The zero point of one static scale, float32 of shape ``(1,)``, or None for 0.
    """

    low: int = -128
    high: int = 127
    symmetric: bool = False
    clip: float = 1.0
    static_scale: Tensor | None = None
    static_zero: Tensor | None = None


def linear(
    x: Tensor, change: Transform, grid: Grid, weight: PackedWeight, bias: Tensor | None = None
) -> Tensor:
    """Transform, quantize and multiply.

    Args:
        x: bfloat16, float16 or float32, of shape ``(..., features)``.
        change: What is done to rows first.
        grid: What they are quantized to.
        weight: What they are multiplied with.
        bias: Of shape ``(weight.rows,)``, or None.

    Returns:
        Of the type of ``x``, of shape ``(..., weight.rows)``.
    """
    y = torch.ops.rote_kernels.linear(
        x.reshape(-1, x.shape[-1]), change.smooth, change.stages, change.width,
        grid.low, grid.high, grid.symmetric, grid.clip, grid.static_scale, grid.static_zero,
        weight.codes, weight.scale, weight.zero, weight.sums, bias,
    )  # fmt: skip
    return y.reshape(*x.shape[:-1], weight.rows)


def quantize_rows(x: Tensor, change: Transform, grid: Grid) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Transform and quantize ``(tokens, features)``.

    Returns:
        int8 codes ``(tokens, width)``, float32 scales ``(tokens,)``, int32 zero points ``(tokens,)`` (empty
        if there are none), and int32 sums of codes ``(tokens,)``.
    """
    return torch.ops.rote_kernels.quantize_rows(
        x, change.smooth, change.stages, change.width, grid.low, grid.high, grid.symmetric, grid.clip,
        grid.static_scale, grid.static_zero,
    )  # fmt: skip


def transform_rows(x: Tensor, change: Transform, dtype: torch.dtype) -> Tensor:
    """Transform ``(tokens, features)`` to ``(tokens, width)`` without quantizing."""
    return torch.ops.rote_kernels.transform_rows(x, change.smooth, change.stages, change.width, dtype)


def product(
    rows: tuple[Tensor, Tensor, Tensor, Tensor], weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """What :func:`quantize_rows` returned times a weight; with ``torch.int32`` the bare sums of codes."""
    return torch.ops.rote_kernels.product(
        *rows, weight.codes, weight.scale, weight.zero, weight.sums, bias, dtype
    )


_library = torch.library.Library(NAMESPACE, "DEF")
_library.define(f"transform_rows(Tensor x, {_TRANSFORM}, ScalarType dtype) -> Tensor")
_library.define(f"quantize_rows(Tensor x, {_TRANSFORM}, {_GRID}) -> (Tensor, Tensor, Tensor, Tensor)")
_library.define(
    f"product(Tensor x, Tensor scale, Tensor zero, Tensor total, {_WEIGHT}, ScalarType dtype) -> Tensor"
)
_library.define(f"linear(Tensor x, {_TRANSFORM}, {_GRID}, {_WEIGHT}) -> Tensor")


def _bits(codes: Tensor) -> int:
    return 4 if codes.shape[2] == BLOCK // 2 else 8


# --- CPU: torch --------------------------------------------------------------------------------------------


def transform_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows, by torch."""
    rows = oracle.transform(x, smooth, stages, width).to(dtype)
    return (
        rows.clone() if rows.data_ptr() == x.data_ptr() else rows
    )  # an operator returns no view of its input


def quantize_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any
) -> oracle.Quantized:
    """Codes of transformed rows, by torch."""
    return oracle.quantize(oracle.transform(x, smooth, stages, width), *grid)


def product_torch(
    x: Tensor, scale: Tensor, zero: Tensor, total: Tensor,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Codes times a weight, by torch."""
    sums = oracle.integer_sums(x, codes, w_scale.shape[0], _bits(codes))
    if dtype == torch.int32:
        return sums
    return oracle.finish(sums, x.shape[1], scale, zero, total, w_scale, w_zero, w_sum, bias, dtype)


def linear_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    low: int, high: int, symmetric: bool, clip: float, static_scale: Any, static_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any,
) -> Tensor:  # fmt: skip
    """A whole layer, by torch."""
    if high == 0:
        rows = oracle.transform(x, smooth, stages, width).to(x.dtype)
        return oracle.float_product(rows, codes, w_scale, w_zero, bias, _bits(codes))
    rows = quantize_torch(x, smooth, stages, width, low, high, symmetric, clip, static_scale, static_zero)
    return product_torch(*rows, codes, w_scale, w_zero, w_sum, bias, x.dtype)


# --- CUDA: Triton ------------------------------------------------------------------------------------------


def transform_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows, by Triton."""
    if not transform.supported(stages, width):
        return transform_torch(x, smooth, stages, width, dtype)
    target = transform.floating(x, width, dtype)
    if x.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(x, smooth, stages, target, None, False)
    return target.rows


def quantize_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any
) -> oracle.Quantized:
    """Codes of transformed rows, by Triton."""
    if not transform.supported(stages, width):
        return quantize_torch(x, smooth, stages, width, *grid)
    target = transform.quantizing(x, width, *grid)
    if x.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(x, smooth, stages, target, None, False)
    return target.rows, target.scale, target.zero, target.total


def product_triton(
    x: Tensor, scale: Tensor, zero: Tensor, total: Tensor,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any, dtype: torch.dtype,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """Codes times a weight, by Triton; with the table's tiles unless some are given."""
    tokens, n = x.shape[0], w_scale.shape[0]
    out = x.new_empty(tokens, n, dtype=dtype)
    if tokens == 0 or n == 0:
        return out
    tile = tile or gemm.tile_for(x, n, x.shape[1], _bits(codes), False)
    room = tile.workspace(tokens, n)
    work = x.new_zeros(room, dtype=torch.int32) if room else None
    rows = transform.aligned(x)
    tile = tile.alone()
    with torch.cuda.device_of(x):
        gemm.launch(rows, scale, zero, total, codes, w_scale, w_zero, w_sum, bias, out, work, tile)
    return out


def linear_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    low: int, high: int, symmetric: bool, clip: float, static_scale: Any, static_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """A whole layer, by Triton: the transform, and the product with its zeros already written."""
    tokens, n = x.shape[0], w_scale.shape[0]
    out = x.new_empty(tokens, n)
    if tokens == 0 or n == 0:
        return out
    whole = high == 0
    grid = (low, high, symmetric, clip, static_scale, static_zero)
    if not transform.supported(stages, width) or (whole and x.dtype == torch.float32):
        return linear_torch(x, smooth, stages, width, *grid, codes, w_scale, w_zero, w_sum, bias)
    tile = tile or gemm.tile_for(x, n, width, _bits(codes), whole)
    to = transform.floating(x, width, x.dtype) if whole else transform.quantizing(x, width, *grid)
    room = tile.workspace(tokens, n)
    work = x.new_empty(room, dtype=torch.int32) if room else None
    scale, zero = (None, None) if whole else (to.scale, to.zero)
    with torch.cuda.device_of(x):
        transform.launch(x, smooth, stages, to, work, tile.pdl)
        gemm.launch(to.rows, scale, zero, to.total, codes, w_scale, w_zero, w_sum, bias, out, work, tile)
    return out


# --- Shapes only -------------------------------------------------------------------------------------------


def _fake_transform(x: Tensor, smooth: Any, stages: Any, width: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape[0], width, dtype=dtype)


def _fake_quantize(x: Tensor, smooth: Any, stages: Any, width: int, *grid: Any) -> oracle.Quantized:
    tokens = x.shape[0]
    zeros = tokens if oracle.has_zero(grid[2], grid[4]) else 0
    return (
        x.new_empty(tokens, width, dtype=torch.int8),
        x.new_empty(tokens, dtype=torch.float32),
        x.new_empty(zeros, dtype=torch.int32),
        x.new_empty(tokens, dtype=torch.int32),
    )


def _fake_product(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], rest[4].shape[0], dtype=rest[-1])


def _fake_linear(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], rest[10].shape[0])


for _name, _torch, _triton, _fake in (
    ("transform_rows", transform_torch, transform_triton, _fake_transform),
    ("quantize_rows", quantize_torch, quantize_triton, _fake_quantize),
    ("product", product_torch, product_triton, _fake_product),
    ("linear", linear_torch, linear_triton, _fake_linear),
):
    _library.impl(_name, _torch, "CPU")
    _library.impl(_name, _triton, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{_name}", _fake, lib=_library)
