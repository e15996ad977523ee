"""Launches of the product of activations with packed weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ..packing import BLOCK, stored_bits
from .jit import gpu, interpreted, module
from .table import Tile, bucket, choose


def tile_for(x: Tensor, tokens: int, n: int, k: int, bits: int, whole: bool) -> Tile:
    """The tiles of a product of some rows with a weight of ``n`` rows and ``k`` columns.

    Args:
        x: Something on the device.
        tokens: How many rows there are.
        n: Rows of the weight.
        k: Columns of the weight.
        bits: 4 or 8, of a weight.
        whole: Whether activations are not quantized.
    """
    name, units = gpu(x.device.index if x.is_cuda else None)
    return choose(name, units, f"w{bits}a{16 if whole else 8}", bucket(tokens), n, k)


def launch(
    x: Tensor,
    scale: Tensor | None,
    zero: Tensor | None,
    total: Tensor | None,
    weight: Tensor,
    w_scale: Tensor,
    w_zero: Tensor | None,
    w_sum: Tensor,
    bias: Tensor | None,
    out: Tensor,
    work: Tensor | None,
    tile: Tile,
) -> None:
    """Multiply. An int32 ``out`` gets the bare sums.

    Args:
        x: int8 codes, or bfloat16 or float16 numbers, of shape ``(tokens, columns)``.
        scale: float32, for each token; None if ``x`` is not quantized.
        zero: int32, for each token, or empty or None.
        total: Sums of the rows of ``x``.
        weight: Packed codes.
        w_scale: float32, for each row of the weight.
        w_zero: int8, for each row of the weight, or None.
        w_sum: int32, for each row of the weight.
        bias: For each row of the weight, or None.
        out: Of shape ``(tokens, rows of the weight)``.
        work: ``tile.workspace`` zeros where the sum is split.
        tile: How the work is cut up.
    """
    kernels = module("jit_gemm")
    asm = not interpreted(kernels.product)
    tokens, columns = x.shape
    rows = out.shape[1]
    kernels.product[(tile.tiles(tokens, rows), tile.split)](
        x=x, x_scale=scale, x_zero=zero, x_sum=total, weight=weight, w_scale=w_scale, w_zero=w_zero,
        w_sum=w_sum,
        bias=bias, out=out, work=work, M=tokens, N=rows, K=columns, N_PAD=weight.shape[1],
        BITS=stored_bits(weight), FLOAT=x.dtype != torch.int8, X_ZERO=zero is not None and zero.numel() > 0,
        W_ZERO=w_zero is not None, BIAS=bias is not None, RAW=out.dtype == torch.int32,
        EVEN_K=columns % (BLOCK * tile.unroll) == 0, BM=tile.bm, BN=tile.bn, UNROLL=tile.unroll,
        SPLIT=tile.split,
        STAGES=tile.stages, ASM=asm, PDL=tile.pdl and asm,
        num_warps=tile.warps, num_stages=tile.stages, launch_pdl=tile.pdl and asm,
    )  # fmt: skip
