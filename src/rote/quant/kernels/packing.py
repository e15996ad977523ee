"""A quantized weight as a value, ready for the kernels: for tests and measurements of the bare operators.

Weights that get the same input can be joined along the second dimension of their codes (q, k, v; gate, up)
and are then one product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import MisuseError
from ..packing import layout


@dataclass(frozen=True)
class PackedWeight:
    """A quantized weight, ready for the kernels.

    A code ``q`` in row n stands for ``scale[n] * (q - zero[n])``.

    Attributes:
        codes: int8, in the layout of :mod:`~rote.quant.packing`.
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
