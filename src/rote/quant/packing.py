"""Two 4-bit codes in a byte.

Byte ``j`` of a row holds code ``2 j`` in its lower and code ``2 j + 1`` in its upper half, both in two's
complement. Up to 4 bits are packed, more take a byte each.
"""

from __future__ import annotations

import torch
from torch import Tensor

PACKED_BITS = 4


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes as they are stored.

    Args:
        codes: int8, of shape ``(out, width)`` with an even width.
        bits: Of a code.

    Returns:
        uint8 of shape ``(out, width / 2)`` for up to 4 bits, the codes themselves for more.
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
