"""In how many parts cuBLAS adds up a column, shown by a product whose result tells.

Its kernels for Hopper add 16 products at a time, in the order of the column, to a sum in 32 bits. Where rows
are few and the column is long, several programs add up a part each, a multiple of 64 products, and another
kernel adds up the parts in order. Which of the two it is depends on sizes and layouts, and nobody says.

A small number at the beginning of a column is lost when a large one is added to it, before the same is taken
away again; it is not lost if the large ones belong to another part. So each column of one product has them at
another place.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

STEP = 64
"""Products that a program adds up before it looks for more; parts are multiples of that."""
_FACTOR, _LARGE, _SMALL = 256.0, 2.0**15, 2.0**-10
"""Of all rows; in the matrix. Each is a number of 16 bits, and their products differ by 25 bits."""


class CublasProduct(NamedTuple):
    """What the kernel that is chosen for a product may depend on.

    Attributes:
        steps: Numbers from one row to the next, and from one column of the matrix to the next.
        biased: A bias is added. All begin at a multiple of 16 bytes.
    """

    rows: int
    width: int
    columns: int
    dtype: torch.dtype
    steps: tuple[int, int]
    biased: bool
    device: torch.device


@functools.lru_cache(maxsize=1024)
def part_of(product: CublasProduct) -> int:
    """Numbers of a column that are added up in one part; all of them if nothing else shows."""
    rows, width, columns, steps = product.rows, product.width, product.columns, product.steps
    places = -(-width // STEP) - 1
    if not 1 <= places <= columns:
        return width
    x = _strided(product, (rows, width), (steps[0], 1)).fill_(_FACTOR)
    matrix = _strided(product, (width, columns), (1, steps[1]))
    at = torch.arange(columns, device=matrix.device)
    first = (at % places + 1) * STEP
    matrix[0] = _SMALL
    matrix[first, at] = _LARGE
    matrix[first + STEP // 4, at] = -_LARGE
    if product.biased:
        result = torch.addmm(_strided(product, (columns,), (1,)), x, matrix)
    else:
        result = torch.mm(x, matrix)
    apart = first[result[0] != 0]
    return int(apart.min()) if len(apart) else width


def _strided(product: CublasProduct, shape: tuple[int, ...], steps: tuple[int, ...]) -> torch.Tensor:
    """Zeros that lie as an operand does."""
    reach = sum([(size - 1) * step for size, step in zip(shape, steps, strict=True)])
    return torch.zeros(reach + 1, dtype=product.dtype, device=product.device).as_strided(shape, steps)
