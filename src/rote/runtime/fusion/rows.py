"""The order in which PyTorch's kernels on a GPU add up rows.

A sum of real numbers depends on its order, so a kernel of ours adds as ``ATen/native/cuda/Reduce.cuh`` does
it for contiguous rows of 32 bits. A row belongs to so many lanes (threads). Each lane adds up four sums,
one element after another; then the four, one after another; then the upper half of the lanes is added to
the lower half, until one lane is left. How many lanes there are follows from the numbers of rows and
columns.

That this is the order is a claim, like each rule. It is proved on the device for each shape: elements of very
different sizes, for which another order gives other bits (:mod:`.proofs`).

**What is left to PyTorch.** Rows that several warps or blocks share, rows that do not begin at a multiple of
16 bytes, rows of other types, rows too long to be kept in registers, and all rows on the host.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

SUMS = 4
"""Sums of each lane, and elements that it loads at once."""
LANES_OF_WARP = 32
_MOST_LANES = 512
_VECTORS_FROM = 128
"""Columns from which on lanes load vectors."""
_MOST_SHARED = 256
"""Elements of a lane from which on warps share a row, at the latest."""
_MOST_CHUNKS = 32
"""Chunks of a row; all of them are kept in registers."""


@dataclass(frozen=True)
class RowOrder:
    """How the rows of a matrix are added up.

    Attributes:
        vectors: Whether the elements that a lane loads at once are neighbours.
    """

    rows: int
    columns: int
    lanes: int
    vectors: bool

    @classmethod
    def of(cls, rows: int, columns: int) -> RowOrder | None:
        """The order for a matrix of 32 bits; None if it is not known."""
        vectors = columns >= _VECTORS_FROM
        if not rows or not columns or (vectors and columns % SUMS):
            return None
        width = _power_of_two(columns // SUMS if vectors else columns)
        height = _power_of_two(rows)
        lanes = min(width, LANES_OF_WARP)
        together = min(height, _MOST_LANES // lanes)
        lanes = min(width, _MOST_LANES // together)
        shared = -(-columns // lanes) >= min(16 * together, _MOST_SHARED)
        found = cls(rows, columns, lanes, vectors)
        return None if shared or found.chunks > _MOST_CHUNKS else found

    @property
    def chunk(self) -> int:
        """Elements that all lanes load at once."""
        return SUMS * self.lanes

    @property
    def chunks(self) -> int:
        """How often they do."""
        return -(-self.columns // self.chunk)

    @property
    def share(self) -> float:
        """What a sum is multiplied by for its mean, in 32 bits."""
        return _single(_single(self.rows) / _single(self.rows * self.columns))


def _power_of_two(number: int) -> int:
    """The largest one that is not larger."""
    return min(1 << (number.bit_length() - 1), _MOST_LANES)


def _single(number: float) -> float:
    """A number, rounded to 32 bits."""
    (found,) = struct.unpack("f", struct.pack("f", number))
    return found
