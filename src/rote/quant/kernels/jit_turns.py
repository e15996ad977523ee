# pyright: basic, reportMissingImports=false
"""Rotations with a matrix for each block, quantized with scales known beforehand, in Triton.

Nothing here needs a whole row: scales are static, and sums of codes are not asked for. So programs share the
work by blocks of channels and some tokens each, and read every matrix about once, instead of once for each
token; few tokens fill the chip all the same. Layers that get the same input are done in one launch.

With ``EARLY`` the launch may start before its predecessor is done. What belongs to the layers is fetched into
L2 before the wait, and read behind it, since the predecessor may have written that, too.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _round(v):
    v = tl.minimum(tl.maximum(v, -1024.0), 1024.0)
    return (v + 12582912.0) - 12582912.0


@triton.jit
def _fetch(pointer, LINES: tl.constexpr):
    """Ask for some memory in L2, 128 bytes with each line."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l", [pointer + tl.arange(0, LINES) * (1024 // pointer.dtype.element_ty.primitive_bitwidth)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M", "COUNT"])
def turn(
    x, order_0, matrices_0, divisor_0, order_1, matrices_1, divisor_1, order_2, matrices_2, divisor_2,
    q, scale, work, M, COUNT, WIDTH, K,
    MEMBERS: tl.constexpr, ORDER: tl.constexpr, B: tl.constexpr, BM: tl.constexpr, CHANNELS: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One block of channels of some tokens for one layer."""
    block, member = tl.program_id(0), tl.program_id(2)
    order, matrices, divisor = order_0, matrices_0, divisor_0
    if MEMBERS > 1:
        here = member == 1
        order, matrices = tl.where(here, order_1, order), tl.where(here, matrices_1, matrices)
        divisor = tl.where(here, divisor_1, divisor)
    if MEMBERS > 2:
        here = member == 2
        order, matrices = tl.where(here, order_2, order), tl.where(here, matrices_2, matrices)
        divisor = tl.where(here, divisor_2, divisor)
    inner = tl.arange(0, B)
    channel = block * B + inner
    square = matrices + block * (B * B) + inner[:, None] * B + inner[None, :]
    if EARLY == 1:
        _fetch(matrices + block * (B * B), B * B * matrices.dtype.element_ty.primitive_bitwidth // 1024)
        _fetch(order + block * B, 1)
        _fetch(divisor + block * B, 1)
        gdc_wait()
    if PDL:
        gdc_launch_dependents()
    source = channel
    if ORDER:
        source = tl.load(order + channel).to(tl.int32)
    matrix = tl.load(square).to(tl.float32)
    over = tl.load(divisor + channel)
    if EARLY == 2:
        gdc_wait()
    token = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = (token < M)[:, None]
    v = tl.load(
        x + token.to(tl.int64)[:, None] * WIDTH + source[None, :],
        mask=inside & (source < WIDTH)[None, :], other=0,
    )
    y = tl.dot(v.to(tl.float32), matrix, input_precision="ieee", out_dtype=tl.float32)
    codes = _round(tl.div_rn(y, over[None, :] + tl.zeros_like(y)))
    codes = tl.minimum(tl.maximum(codes, LOW), HIGH)
    place = q + (member * M + token).to(tl.int64)[:, None] * K + channel[None, :]
    tl.store(place, codes.to(q.dtype.element_ty), mask=inside)
    programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    program = (member * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + block
    if COUNT > 0:
        for start in range(program * 1024, COUNT, programs * 1024):
            at = start + tl.arange(0, 1024)
            tl.store(work + at, tl.zeros((1024,), tl.int32), mask=at < COUNT)
