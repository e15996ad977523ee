"""The two formats of a quantized weight: a plain one in checkpoints, one for the kernels in memory.

In a checkpoint byte ``j`` of a row holds code ``2 j`` in its lower and code ``2 j + 1`` in its upper half,
both in two's complement; codes of more than 4 bits take a byte each (:func:`pack`, :func:`unpack`).

In memory (:func:`layout`, :func:`codes_of`) the columns of a weight are cut into blocks of 128, and the
blocks are the outermost dimension, so that the rows of any tile are one piece of memory::

    (ceil(K / 128), N, 64)     up to 4 bits: byte j holds column j below and column j + 64 above
    (ceil(K / 128), N, 128)    more: one column in a byte

Padding is zero. A weight is in memory once, in that format; state dicts convert it both ways.
"""

from __future__ import annotations

import torch
from torch import Tensor

PACKED_BITS = 4
BLOCK = 128
"""Columns in a block."""


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes, int8 of shape ``(out, width)`` with an even width, in the format of checkpoints.

    It is uint8 of shape ``(out, width / 2)`` for up to 4 bits, and the codes themselves for more.
    """
    if bits > PACKED_BITS:
        return codes.contiguous()
    halves = codes.view(torch.uint8) & 0xF
    return halves[:, 0::2] | (halves[:, 1::2] << 4)


def unpack(stored: Tensor, bits: int) -> Tensor:
    """The codes, int8, of shape ``(out, width)``; the inverse of :func:`pack`."""
    if bits > PACKED_BITS:
        return stored
    low = (stored << 4).view(torch.int8) >> 4  # an arithmetic shift carries the sign down
    high = stored.view(torch.int8) >> 4
    return torch.stack([low, high], dim=-1).flatten(-2)


def layout_shape(rows: int, columns: int, bits: int) -> tuple[int, int, int]:
    """The shape of a weight in memory."""
    return -(-columns // BLOCK), rows, BLOCK // 2 if bits <= PACKED_BITS else BLOCK


def layout(codes: Tensor, bits: int) -> Tensor:
    """Codes, int8 of shape ``(rows, columns)``, in the format in memory."""
    rows, columns = codes.shape
    padded = torch.nn.functional.pad(codes, (0, -columns % BLOCK))
    blocks = padded.reshape(rows, -1, BLOCK).transpose(0, 1).contiguous()
    if bits > PACKED_BITS:
        return blocks
    low, high = blocks[..., : BLOCK // 2], blocks[..., BLOCK // 2 :]
    return (low & 0xF) | (high << 4)


def codes_of(packed: Tensor, columns: int) -> Tensor:
    """The codes, int8, of shape ``(rows, columns)``; the inverse of :func:`layout`."""
    if stored_bits(packed) == PACKED_BITS:
        packed = torch.cat([(packed << 4) >> 4, packed >> 4], dim=-1)
    return packed.transpose(0, 1).reshape(packed.shape[1], -1)[:, :columns]


def stored_bits(packed: Tensor) -> int:
    """The bits that a code has in memory, 4 or 8."""
    return PACKED_BITS if packed.shape[2] == BLOCK // 2 else 8
