"""The integer arithmetic of a layer, in plain torch: what every faster kernel has to reproduce.

A row of activations is ``sx (q - zx)``, a row of weights ``sw (w - zw)``, with int8 codes ``q`` and ``w``.
Their product is

    sx sw ( sum q w  -  zw sum q  -  zx sum w  +  K zx zw )

and everything in the parentheses is calculated exactly, in int32; only then two float32 factors follow, the
activation's first. With groups there is such a sum for each group of columns, and their products are added up
in order. So results do not depend on the order of summation, and kernels can be compared bit by bit.

On the CPU the sums go through float32 products of 1024 columns at most: every partial sum is below 2^24 and
thus exact, whatever the order and whatever the instruction set (int8 products of oneDNN saturate on
processors without VNNI). On CUDA they go through the int8 tensor cores, which want at least 17 rows and
multiples of 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .compat import tensor_core_product
from .grid import Grid
from .packing import unpack
from .transforms import multiply_blocks

EXACT_COLUMNS = 1024
"""Products of two int8 numbers that float32 adds exactly: 2^7 * 2^7 * 2^10 = 2^24."""


def quantize_rows(
    x: Tensor, bits: int, symmetric: bool, clip: float, scale: Tensor | None, zero: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Transformed activations to codes.

    Args:
        x: Of shape ``(rows, width)``.
        bits: 2 to 8.
        symmetric: Without zero points.
        clip: Factor on each row's range.
        scale: None to take each row's range. One number, or one per column, to use those instead; those per
            column are part of the weight already, so that rows of codes have scale 1.
        zero: With one ``scale``, its zero point.

    Returns:
        int8 codes of shape ``(rows, width)``, float32 scales and int32 zero points of shape ``(rows,)``.
    """
    grid = Grid(bits, symmetric)
    rows = x.shape[0]
    if scale is None:
        step, origin = row_parameters(x, grid, clip)
        return grid.codes(x, step, origin).to(torch.int8), step[:, 0].float(), origin[:, 0].to(torch.int32)
    per_column = scale.numel() > 1
    origin = x.new_zeros(()) if zero is None else zero
    codes = grid.codes(x, scale, origin).to(torch.int8)
    step = torch.ones_like(scale[:1]) if per_column else scale
    return codes, step.float().expand(rows).contiguous(), origin.to(torch.int32).expand(rows).contiguous()


def row_parameters(x: Tensor, grid: Grid, clip: float) -> tuple[Tensor, Tensor]:
    """Scale and zero point of every row, each of shape ``(rows, 1)``; gradients do not go through them."""
    low, high = torch.aminmax(x.detach(), dim=-1, keepdim=True)
    return grid.parameters(low, high) if clip == 1 else grid.parameters(low * clip, high * clip)


def integer_linear(
    codes: Tensor,
    scale: Tensor,
    zero: Tensor,
    stored: Tensor,
    weight_scale: Tensor,
    weight_zero: Tensor,
    weight_bits: int,
) -> Tensor:
    """Rows of codes times a quantized weight.

    Args:
        codes: int8, of shape ``(rows, width)``.
        scale: float32, of shape ``(rows,)``.
        zero: int32, of shape ``(rows,)``.
        stored: The weight's codes, as :func:`~rote.quant.packing.pack` stores them.
        weight_scale: float32, of shape ``(out, groups)``.
        weight_zero: int8, of shape ``(out, groups)``.
        weight_bits: Bits of a weight's code.

    Returns:
        float32, of shape ``(rows, out)``.
    """
    weight = unpack(stored, weight_bits)
    groups = weight_scale.shape[1]
    columns = weight.shape[1] // groups
    result = scale.new_zeros(codes.shape[0], weight.shape[0])
    for group in range(groups):
        part = slice(group * columns, (group + 1) * columns)
        sums = centred_sums(codes[:, part], zero, weight[:, part], weight_zero[:, group].to(torch.int32))
        result = result + sums.float() * scale[:, None] * weight_scale[:, group]
    return result


def centred_sums(codes: Tensor, zero: Tensor, weight: Tensor, weight_zero: Tensor) -> Tensor:
    """``sum (q - zx) (w - zw)`` over the columns, int32, of shape ``(rows, out)``."""
    sums = int_matmul(codes, weight)
    sums = sums - codes.sum(1, dtype=torch.int32)[:, None] * weight_zero
    return sums - zero[:, None] * (weight.sum(1, dtype=torch.int32) - codes.shape[1] * weight_zero)


def int_matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a b^T`` of int8 matrices, exactly, in int32."""
    if a.device.type == "cuda":
        return tensor_core_product(a, b)
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.int32, device=a.device)
    for start in range(0, a.shape[1], EXACT_COLUMNS):
        part = slice(start, start + EXACT_COLUMNS)
        total += (a[:, part].float() @ b[:, part].float().T).to(torch.int32)
    return total


def restore_rows(y: Tensor, rotation: Tensor | None, bias: Tensor | None, features: int) -> Tensor:
    """The output of a layer from that of its transformed weight: rotated back, cut to size, plus bias."""
    if rotation is not None:
        y = multiply_blocks(y, rotation.to(y))
    y = y[..., :features]
    return y if bias is None else y + bias.to(y)
