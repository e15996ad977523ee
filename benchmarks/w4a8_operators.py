"""The bare operators with their arguments in bundles, for measurements and tests of kernels.

Weights that get the same input can be joined along the second dimension of their codes (q, k, v; gate, up),
and are then one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rote.base import MisuseError
from rote.quant.numerics import Quantized, layout


@dataclass(frozen=True)
class PackedWeight:
    """A quantized weight, ready for the kernels.

    A code ``q`` in row n stands for ``scale[n] * (q - zero[n])``.

    Attributes:
        codes: int8, in the layout of :mod:`~..numerics.packing`.
        scale: float32, of shape ``(rows, 1)``.
        zero: int8, of that shape, or None where all are 0.
        sums: int32, of that shape: the sum of each row's codes.
        rows: N, the features that come out.
        columns: K, the channels that go in.
        bits: 4 or 8: how codes are stored, not how many values they have.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    sums: Tensor
    rows: int
    columns: int
    bits: int


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


def pack_weight(codes: Tensor, scale: Tensor, zero: Tensor | None, bits: int) -> PackedWeight:
    """Lay out a quantized weight for the kernels.

    Args:
        codes: int8, of shape ``(rows, columns)``.
        scale: One for each row, of shape ``(rows,)`` or ``(rows, 1)``.
        zero: Zero points, whole numbers of the codes' range, of the same shape; None for all 0.
        bits: Of a code, 2 to 8. Up to 4 are packed in half bytes.

    Raises:
        MisuseError: Scales or zero points are not one for each row (scales for groups of columns would leave
            no integer sum), or codes do not fit the bits.
    """
    rows, columns = codes.shape
    for name, values in (("scale", scale), ("zero", zero)):
        if values is not None and values.numel() != rows:
            raise MisuseError(
                f"{name} has shape {tuple(values.shape)}, and the kernels take one value for each of "
                f"{rows} rows; weights with scales for groups of columns run on path='fused'"
            )
    limit = 1 << (bits - 1)
    if codes.numel() and (int(codes.min()) < -limit or int(codes.max()) >= limit):
        raise MisuseError(
            f"codes run from {int(codes.min())} to {int(codes.max())}, which is more than {bits} bits"
        )
    kept = None if zero is None or not bool(zero.any()) else zero.reshape(-1, 1).to(torch.int8).contiguous()
    return PackedWeight(
        codes=layout(codes, bits),
        scale=scale.reshape(-1, 1).float().contiguous(),
        zero=kept,
        sums=codes.sum(1, keepdim=True, dtype=torch.int32),
        rows=rows,
        columns=columns,
        bits=4 if bits <= 4 else 8,
    )


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
