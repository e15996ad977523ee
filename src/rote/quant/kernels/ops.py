"""What a layer calls: operators of torch, each with a CUDA, a CPU and a fake implementation.

They are registered by ``Library.define``, which costs a call a third of what ``custom_op`` does. Each
allocates what it returns and what it works in, writes nothing else, reads nothing back to the host, and can
be captured into a graph once its kernels are compiled (see ``warmup``). ``rote_quant::linear`` is a layer's
whole work, ``rote_quant::linears`` that of some layers with the same input, in as many launches; both have a
gradient (see :mod:`~rote.quant.gradients`). The parts are there for tests and measurements.

``linear`` is one operator and not two also because its first kernel writes the zeros that its second one adds
to. What the kernels do not do is done by torch inside of it: scales for groups of columns, which leave no
single integer sum; rows that are too wide for a program; large rotations; and float32 inputs that are not
quantized. On a CPU everything is torch, with the same integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import arithmetic
from ..arithmetic import Quantized
from ..packing import codes_of, stored_bits
from . import gemm, transform
from .packing import PackedWeight
from .table import Tile

NAMESPACE = "rote_quant"
UNQUANTIZED = 16
TRANSFORM = "Tensor? smooth, Tensor[] stages, int width"
GRID = "int act_bits, bool act_symmetric, float act_clip, Tensor? act_scale, Tensor? act_zero"
WEIGHT = "Tensor codes, Tensor w_scale, Tensor? w_zero, Tensor w_sum"
OUTPUT = "Tensor? row_rotation, Tensor? bias, int features"
LAYER = f"{TRANSFORM}, {GRID}, {WEIGHT}, {OUTPUT}"
WEIGHTS = "Tensor[] codes, Tensor[] w_scale, Tensor[] w_zero, Tensor[] w_sum, Tensor[] bias"
"""Of layers that share their input; no zero points or no biases are empty lists."""
GROUP = f"{TRANSFORM}, {GRID}, {WEIGHTS}"


@dataclass(frozen=True)
class Transform:
    """What is done to activations before they are quantized.

    Attributes:
        smooth: What channels are divided by, of shape ``(width,)``, or None.
        stages: In order: rotations, of shape ``(1, size, size)`` or ``(width / size, size, size)``, and
            permutations, integers of shape ``(width,)``.
        width: Channels after the transform; inputs are padded to it with zeros.
    """

    smooth: Tensor | None
    stages: tuple[Tensor, ...]
    width: int


@dataclass(frozen=True)
class Activation:
    """How activations are quantized.

    Attributes:
        bits: 2 to 8; 16 leaves activations as they are.
        symmetric: Without zero points.
        clip: Factor on each token's range.
        scale: None for a scale from each token; float32 of shape ``(1,)``; or of shape ``(width,)``, by which
            channels are divided and which the weight has absorbed.
        zero: The zero point of one static scale, int32 of shape ``(1,)``, or None for 0.
    """

    bits: int = 8
    symmetric: bool = False
    clip: float = 1.0
    scale: Tensor | None = None
    zero: Tensor | None = None


def linear(
    x: Tensor, change: Transform, grid: Activation, weight: PackedWeight, bias: Tensor | None = None
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
    return torch.ops.rote_quant.linear(
        x, change.smooth, change.stages, change.width,
        grid.bits, grid.symmetric, grid.clip, grid.scale, grid.zero,
        weight.codes, weight.scale, weight.zero, weight.sums, None, bias, weight.rows,
    )  # fmt: skip


def quantize_rows(x: Tensor, change: Transform, grid: Activation) -> Quantized:
    """Transform and quantize ``(tokens, features)``.

    Returns:
        int8 codes ``(tokens, width)``, float32 scales ``(tokens,)``, int32 zero points ``(tokens,)`` (empty
        if there are none), and int32 sums of codes ``(tokens,)``.
    """
    return torch.ops.rote_quant.quantize_rows(
        x, change.smooth, change.stages, change.width,
        grid.bits, grid.symmetric, grid.clip, grid.scale, grid.zero,
    )  # fmt: skip


def transform_rows(x: Tensor, change: Transform, dtype: torch.dtype) -> Tensor:
    """Transform ``(tokens, features)`` to ``(tokens, width)`` without quantizing."""
    return torch.ops.rote_quant.transform_rows(x, change.smooth, change.stages, change.width, dtype)


def product(rows: Quantized, weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What :func:`quantize_rows` returned times a weight; with ``torch.int32`` the bare sums of codes."""
    return torch.ops.rote_quant.product(
        *rows, weight.codes, weight.scale, weight.zero, weight.sums, bias, dtype
    )


library = torch.library.Library(NAMESPACE, "DEF")
library.define(f"transform_rows(Tensor x, {TRANSFORM}, ScalarType dtype) -> Tensor")
library.define(f"quantize_rows(Tensor x, {TRANSFORM}, {GRID}) -> (Tensor, Tensor, Tensor, Tensor)")
library.define(
    f"product(Tensor x, Tensor scale, Tensor zero, Tensor total, {WEIGHT}, Tensor? bias, ScalarType dtype) "
    "-> Tensor"
)
library.define(f"linear(Tensor x, {LAYER}) -> Tensor")
library.define(f"rounded_rows(Tensor x, {TRANSFORM}, {GRID}) -> Tensor")
library.define("restored_rows(Tensor y, Tensor? row_rotation, Tensor? bias, int features) -> Tensor")
library.define(f"linears(Tensor x, {GROUP}) -> Tensor[]")


# --- CPU: torch --------------------------------------------------------------------------------------------


def transform_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows, by torch."""
    rows = arithmetic.transform_rows(x, smooth, stages, width).to(dtype)
    # An operator returns no view of its input.
    return rows.clone() if rows.data_ptr() == x.data_ptr() else rows


def quantize_torch(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Quantized:
    """Codes of transformed rows, by torch."""
    return arithmetic.quantize_rows(arithmetic.transform_rows(x, smooth, stages, width), *grid)


def rounded_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
) -> Tensor:  # fmt: skip
    """What codes of transformed rows stand for, by torch; with scales of channels the codes themselves."""
    grid = (act_bits, act_symmetric, act_clip, act_scale, act_zero)
    codes, scale, zero, _ = quantize_torch(x, smooth, stages, width, *grid)
    origin = zero[:, None] if zero.numel() else 0
    return ((codes.float() - origin) * scale[:, None]).to(x.dtype)


def restored_torch(y: Tensor, row_rotation: Any, bias: Any, features: int) -> Tensor:
    """The output of a layer from that of its transformed weight, by torch."""
    wide = y.to(torch.promote_types(y.dtype, torch.float32))
    return arithmetic.restore_rows(wide, row_rotation, bias, features).to(y.dtype, copy=True).contiguous()


def product_torch(
    x: Tensor, scale: Tensor, zero: Tensor, total: Tensor,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor, bias: Any, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Codes times a weight, by torch."""
    if dtype == torch.int32:
        return arithmetic.int_matmul(x, codes_of(codes, x.shape[1]))
    y = arithmetic.integer_product((x, scale, zero, total), codes, w_scale, w_zero, w_sum)
    return arithmetic.restore_rows(y, None, bias, w_scale.shape[0]).to(dtype)


def linear_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor,
    row_rotation: Any, bias: Any, features: int,
) -> Tensor:  # fmt: skip
    """A whole layer, by torch."""
    rows = arithmetic.transform_rows(x, smooth, stages, width)
    if act_bits >= UNQUANTIZED:
        y = arithmetic.float_product(rows.to(x.dtype), codes, w_scale, w_zero)
    else:
        quantized = arithmetic.quantize_rows(rows, act_bits, act_symmetric, act_clip, act_scale, act_zero)
        y = arithmetic.integer_product(quantized, codes, w_scale, w_zero, w_sum)
    y = arithmetic.restore_rows(y, row_rotation, bias, features).to(x.dtype).contiguous()
    return y.reshape(*x.shape[:-1], features)


def linears_torch(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    bias: Sequence[Tensor],
) -> list[Tensor]:  # fmt: skip
    """Layers with the same input, by torch: the transform once, then one product after the other."""
    rows = arithmetic.transform_rows(x, smooth, stages, width)
    found: list[Tensor] = []
    quantized: Quantized | None = None
    if act_bits < UNQUANTIZED:
        quantized = arithmetic.quantize_rows(rows, act_bits, act_symmetric, act_clip, act_scale, act_zero)
    for packed, scale, zero, sums, added in _members(codes, w_scale, w_zero, w_sum, bias):
        if quantized is None:
            y = arithmetic.float_product(rows.to(x.dtype), packed, scale, zero)
        else:
            y = arithmetic.integer_product(quantized, packed, scale, zero, sums)
        y = arithmetic.restore_rows(y, None, added, len(scale)).to(x.dtype).contiguous()
        found.append(y.reshape(*x.shape[:-1], len(scale)))
    return found


def _members(
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    bias: Sequence[Tensor],
) -> Iterator[tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]]:  # fmt: skip
    none = [None] * len(codes)
    return zip(codes, w_scale, w_zero or none, w_sum, bias or none, strict=True)


# --- CUDA: Triton ------------------------------------------------------------------------------------------


def transform_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, dtype: torch.dtype
) -> Tensor:
    """Transformed rows, by Triton."""
    if transform.obstacle(stages, width):
        return transform_torch(x, smooth, stages, width, dtype)
    target = transform.floating(x, width, dtype)
    if x.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(x, smooth, stages, target, None, False)
    return target.rows


def quantize_triton(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Quantized:
    """Codes of transformed rows, by Triton."""
    if not transform.holds(width):
        return quantize_torch(x, smooth, stages, width, *grid)
    x, smooth, stages = _left(x, smooth, stages, width)
    target = transform.quantizing(x, width, *grid)
    if x.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(x, smooth, stages, target, None, False)
    return target.rows, target.scale, target.zero, target.total


def rounded_triton(x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, *grid: Any) -> Tensor:
    """What codes of transformed rows stand for, by Triton."""
    if not transform.holds(width):
        return rounded_torch(x, smooth, stages, width, *grid)
    rows, smooth, stages = _left(x, smooth, stages, width)
    target = transform.quantizing(rows, width, *grid, dtype=x.dtype)
    if rows.shape[0]:
        with torch.cuda.device_of(x):
            transform.launch(rows, smooth, stages, target, None, False)
    return target.rows


def restored_triton(y: Tensor, row_rotation: Any, bias: Any, features: int) -> Tensor:
    """The output of a layer from that of its transformed weight, by Triton."""
    found = _restored(y, row_rotation, bias, features, y.dtype)
    return found.clone() if found.data_ptr() == y.data_ptr() else found


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
    tile = (tile or gemm.tile_for(x, tokens, (n,), x.shape[1], stored_bits(codes), False)).alone()
    room = tile.workspace(tokens, n)
    work = x.new_zeros(room, dtype=torch.int32) if room else None
    rows = transform.aligned(x)
    with torch.cuda.device_of(x):
        factor = gemm.Factor(codes, w_scale, w_zero, w_sum, bias, out)
        gemm.launch(rows, scale, zero, total, [factor], work, tile)
    return out


def _left(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int
) -> tuple[Tensor, Any, Sequence[Tensor]]:
    """What is left to the kernels of rows and their transform: nothing where torch has to do it."""
    if transform.obstacle(stages, width):
        return arithmetic.transform_rows(x, smooth, stages, width), None, ()
    return x.reshape(-1, x.shape[-1]), smooth, stages


def linear_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Tensor, w_scale: Tensor, w_zero: Any, w_sum: Tensor,
    row_rotation: Any, bias: Any, features: int,
    tile: Any = None,
) -> Tensor:  # fmt: skip
    """A whole layer, by Triton: the transform, and the product with its zeros already written."""
    grid = (act_bits, act_symmetric, act_clip, act_scale, act_zero)
    if w_scale.shape[1] > 1 or not _possible(x, width, act_bits):
        return linear_torch(
            x, smooth, stages, width, *grid, codes, w_scale, w_zero, w_sum, row_rotation, bias, features
        )
    whole = row_rotation is None and w_scale.shape[0] == features
    out = x.new_empty(x.numel() // x.shape[-1], w_scale.shape[0], dtype=x.dtype if whole else torch.float32)
    factor = gemm.Factor(codes, w_scale, w_zero, w_sum, bias if whole else None, out)
    _multiply(x, smooth, stages, width, grid, [factor], tile)
    if not whole:
        out = _restored(out, row_rotation, bias, features, x.dtype)
    return out.reshape(*x.shape[:-1], features)


def _restored(y: Tensor, rotation: Any, bias: Any, features: int, dtype: torch.dtype) -> Tensor:
    """Rows of a product rotated back (a transform like any other), cut to size, with the bias."""
    if rotation is None or transform.obstacle([rotation], y.shape[1]):
        y = y.to(torch.promote_types(y.dtype, torch.float32))
    else:
        wide = torch.float32 if bias is not None else dtype
        y, rotation = transform_triton(y, None, [rotation], y.shape[1], wide), None
    return arithmetic.restore_rows(y, rotation, bias, features).to(dtype).contiguous()


def linears_triton(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int,
    act_bits: int, act_symmetric: bool, act_clip: float, act_scale: Any, act_zero: Any,
    codes: Sequence[Tensor], w_scale: Sequence[Tensor], w_zero: Sequence[Tensor], w_sum: Sequence[Tensor],
    bias: Sequence[Tensor],
    tile: Any = None,
) -> list[Tensor]:  # fmt: skip
    """Layers with the same input, by Triton: one transform and one product for all."""
    grid = (act_bits, act_symmetric, act_clip, act_scale, act_zero)
    if not _possible(x, width, act_bits):
        return linears_torch(x, smooth, stages, width, *grid, codes, w_scale, w_zero, w_sum, bias)
    tokens = x.numel() // x.shape[-1]
    factors = [
        gemm.Factor(*member, x.new_empty(tokens, len(member[1])))
        for member in _members(codes, w_scale, w_zero, w_sum, bias)
    ]
    _multiply(x, smooth, stages, width, grid, factors, tile)
    return [factor.out.reshape(*x.shape[:-1], factor.out.shape[1]) for factor in factors]


def _possible(x: Tensor, width: int, act_bits: int) -> bool:
    """Whether kernels take rows of that width; those that are not quantized must not be float32."""
    exact = act_bits >= UNQUANTIZED and x.dtype in (torch.float32, torch.float64)
    return transform.holds(width) and not exact


def _multiply(
    x: Tensor, smooth: Any, stages: Sequence[Tensor], width: int, grid: tuple[Any, ...],
    factors: Sequence[gemm.Factor], tile: Tile | None,
) -> None:  # fmt: skip
    """Transform, quantize, and multiply with weights."""
    rows, smooth, stages = _left(x, smooth, stages, width)
    tokens, sizes = rows.shape[0], tuple(factor.out.shape[1] for factor in factors)
    if tokens == 0 or sum(sizes) == 0:
        return
    whole = grid[0] >= UNQUANTIZED
    tile = tile or gemm.tile_for(x, tokens, sizes, width, stored_bits(factors[0].codes), whole)
    to = transform.floating(rows, width, x.dtype) if whole else transform.quantizing(rows, width, *grid)
    room = tile.workspace(tokens, *sizes)
    work = x.new_empty(room, dtype=torch.int32) if room else None
    scale, zero = (None, None) if whole else (to.scale, to.zero)
    with torch.cuda.device_of(x):
        transform.launch(rows, smooth, stages, to, work, tile.pdl)
        gemm.launch(to.rows, scale, zero, to.total, factors, work, tile)


# --- Shapes only -------------------------------------------------------------------------------------------


def _fake_transform(x: Tensor, smooth: Any, stages: Any, width: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.numel() // x.shape[-1], width, dtype=dtype)


def _fake_quantize(
    x: Tensor, smooth: Any, stages: Any, width: int, bits: int, symmetric: bool, clip: float, scale: Any,
    zero: Any,
) -> Quantized:  # fmt: skip
    tokens = x.numel() // x.shape[-1]
    zeros = tokens if arithmetic.has_zero(symmetric, scale) else 0
    return (
        x.new_empty(tokens, width, dtype=torch.int8),
        x.new_empty(tokens, dtype=torch.float32),
        x.new_empty(zeros, dtype=torch.int32),
        x.new_empty(tokens, dtype=torch.int32),
    )


def _fake_rounded(x: Tensor, smooth: Any, stages: Any, width: int, *grid: Any) -> Tensor:
    return x.new_empty(x.numel() // x.shape[-1], width)


def _fake_restored(y: Tensor, row_rotation: Any, bias: Any, features: int) -> Tensor:
    return y.new_empty(y.shape[0], features)


def _fake_product(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], rest[4].shape[0], dtype=rest[-1])


def _fake_linear(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(*x.shape[:-1], rest[-1])


def _fake_linears(x: Tensor, *rest: Any) -> list[Tensor]:
    return [x.new_empty(*x.shape[:-1], scale.shape[0]) for scale in rest[9]]


for _name, _torch, _triton, _fake in (
    ("transform_rows", transform_torch, transform_triton, _fake_transform),
    ("quantize_rows", quantize_torch, quantize_triton, _fake_quantize),
    ("rounded_rows", rounded_torch, rounded_triton, _fake_rounded),
    ("restored_rows", restored_torch, restored_triton, _fake_restored),
    ("product", product_torch, product_triton, _fake_product),
    ("linear", linear_torch, linear_triton, _fake_linear),
    ("linears", linears_torch, linears_triton, _fake_linears),
):
    library.impl(_name, _torch, "CPU")
    library.impl(_name, _triton, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{_name}", _fake, lib=library)
