"""Launches of the product of activations with packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..numerics import BLOCK, stored_bits
from .launching import gpu, interpreted, module, starts_early
from .launching import launch as jit_launch
from .table import Tile, bucket, choose

MOST_WEIGHTS = 3
"""The most weights in one launch."""

WIDE, MANY_PARTS = 1 << 16, 32
"""With fewer columns, sums of up to 8 rows have room to count so many parts of a split."""


class Factor(NamedTuple):
    """A weight and the output of its product.

    Attributes:
        scale: float32, of shape ``(rows, 1)``.
        zero: int8, of that shape, or None.
        sums: int32, of that shape.
        turn: Matrices for each block of the product's columns, of shape ``(rows / size, size, size)``, or
            None.
        bias: Of shape ``(features,)``, or None.
        out: Of shape ``(tokens, features)``, with no more features than rows; int32 gets the bare sums.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    sums: Tensor
    turn: Tensor | None
    bias: Tensor | None
    out: Tensor


def restores(rotation: Tensor) -> bool:
    """Whether the product can rotate its output back."""
    return 16 <= rotation.shape[-1] <= 64


def tile_for(
    x: Tensor, tokens: int, rows: tuple[int, ...], k: int, bits: int, whole: bool, static: bool = False
) -> Tile:
    """The tile of a product of ``tokens`` rows on the device of ``x`` with weights of ``rows`` by ``k``.

    Activations are not quantized if ``whole``. With ``static`` scales the transform before the product is
    short.
    """
    name, units = gpu(x)
    kind = f"w{bits}a{16 if whole else 8}{' static' if static else ''}"
    return choose(name, units, kind, bucket(tokens), rows, k)


def _describable(x: Tensor, codes: Tensor) -> bool:
    """Whether rows and storage start at multiples of 16 bytes, as descriptors need."""
    return x.dtype == torch.int8 and x.shape[1] % 16 == 0 and codes.data_ptr() % 16 == 0


def launch(
    x: Tensor, scale: Tensor | None, zero: Tensor | None, total: Tensor | None, factors: Sequence[Factor],
    work: Tensor | None, tile: Tile,
) -> None:  # fmt: skip
    """Multiply rows by weights, which differ in their numbers of rows only.

    ``x`` are int8 codes, or bfloat16 or float16 numbers, of shape ``(tokens, columns)``, or ``(weights,
    tokens, columns)`` where each weight has its own. Each token has a ``scale`` (float32; None is 1), a
    ``zero`` point (int32, or empty or None) and the ``total`` of its row (None where weights have no zero
    points). ``work`` holds ``tile.workspace`` zeros where the sum is split.
    """
    kernels = module("gemm")
    single = len(factors) == 1
    kernel = kernels.product if single else kernels.products
    asm = not interpreted(kernel)
    tokens, columns = x.shape[-2:]
    first = factors[0]
    rows = [len(factor.scale) for factor in factors]
    features = [factor.out.shape[1] for factor in factors]
    turn = 0 if first.turn is None else first.turn.shape[-1]
    if turn > tile.bn:
        tile = replace(tile, bn=turn)
    if columns >= WIDE or tile.split > MANY_PARTS:
        tile = replace(tile, bm=max(16, tile.bm))
    described = tile.tma and single and _describable(x, first.codes)
    waiting = 1 if described and tile.pdl else tile.waiting
    waiting = waiting if starts_early(x, kernel) else 0
    constants = (
        stored_bits(first.codes), x.dtype != torch.int8, scale is not None,
        zero is not None and zero.numel() > 0, first.zero is not None, first.bias is not None,
        first.out.dtype == torch.int32, turn, columns % (BLOCK * tile.unroll) == 0, tile.bm,
        tile.bn, tile.unroll, tile.split > 1, tile.stages, asm, waiting,
        described,
    )  # fmt: skip
    kinds = [None if tensor is None else tensor.dtype for tensor in (x, total, *first)]
    biases = [None if factor.bias is None else factor.bias.dtype for factor in factors]
    key = (x.device.index, *constants, *kinds, *biases, tile.warps, columns, *rows, *features)
    if single:
        activations, rest, weight = x, x, first.codes
        tail = tile.tail if tile.tail < tile.bm else 0
        if described:
            describe = kernels.TensorDescriptor.from_tensor
            activations = describe(x, [tile.bm, BLOCK * tile.unroll])
            rest = describe(x, [tail, BLOCK * tile.unroll]) if tail else None
            weight = describe(weight.flatten(0, 1), [tile.bn, weight.shape[2]])
        values = (
            activations, rest, scale, zero, total, weight, *first[1:], work, tokens, *rows, columns,
            *features, tail, *constants,
        )  # fmt: skip
        key = (*key, tail)
    else:
        missing = MOST_WEIGHTS - len(factors)
        none = (None,) * missing
        weights = [tensor for factor in factors for tensor in factor]
        values = (
            x, scale, zero, total, *weights, *((None,) * len(first)) * missing, work, tokens, *rows, *none,
            columns, *features, *none, len(factors), x.dim() == 3, *constants,
        )  # fmt: skip
        key = (*key, x.dim())
    options = {"num_warps": tile.warps, "num_stages": tile.stages, "launch_pdl": waiting != 0}
    jit_launch(kernel, (tile.tiles(tokens, *rows), tile.split, 1), values, key, options)
