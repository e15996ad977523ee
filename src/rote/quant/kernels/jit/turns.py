# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false, reportAssignmentType=false
"""Rotations with a matrix for each block, quantized with scales known beforehand, in Triton.

Nothing here needs a whole row: scales are static, and nobody wants sums of codes. So a program takes a block
of channels of some tokens and reads its matrix once for all of them, and few tokens still fill the chip.
Layers that get the same input share one launch.

It is a short kernel among short ones, and waits most of its time. With ``PDL`` it starts before its
predecessor, of any kind, has ended, and waits for it before it reads anything. Its successor starts when it
has written its codes, and not at once: programs of a product that come while others still have their places
spread unevenly over the chip, which costs more than a launch. They may read weights before they wait, which
nothing still writes then.

Tried and no faster on an H200: matrices of several blocks as one, multiplied on tensor cores; more tokens for
a program; loading values of channels before the wait, which is over at once.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .transform import _clear, _round


@triton.jit(do_not_specialize=["M", "COUNT"])
def turn(
    x, order_0, matrices_0, divisor_0, order_1, matrices_1, divisor_1, order_2, matrices_2, divisor_2,
    out, work, M, COUNT, WIDTH, K,
    MEMBERS: tl.constexpr, ORDER: tl.constexpr, CLEAR: tl.constexpr, B: tl.constexpr, BM: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One block of channels of some tokens, for one layer."""
    if PDL:
        gdc_wait()
    block, part, member = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    order, matrices, divisor = order_0, matrices_0, divisor_0
    if MEMBERS > 1:
        here = member == 1
        matrices, divisor = tl.where(here, matrices_1, matrices), tl.where(here, divisor_1, divisor)
        if ORDER:
            order = tl.where(here, order_1, order)
    if MEMBERS > 2:
        here = member == 2
        matrices, divisor = tl.where(here, matrices_2, matrices), tl.where(here, divisor_2, divisor)
        if ORDER:
            order = tl.where(here, order_2, order)
    inner = tl.arange(0, B)
    channel = block * B + inner
    source = channel
    if ORDER:
        source = tl.load(order + channel).to(tl.int32)
    matrix = tl.load(matrices + block * (B * B) + inner[:, None] * B + inner[None, :]).to(tl.float32)
    over = tl.load(divisor + channel)
    token = part * BM + tl.arange(0, BM)
    inside = (token < M)[:, None]
    v = tl.load(
        x + token.to(tl.int64)[:, None] * WIDTH + source[None, :],
        mask=inside & (source < WIDTH)[None, :], other=0,
    )  # fmt: skip
    y = tl.dot(v.to(tl.float32), matrix, input_precision="ieee", out_dtype=tl.float32)
    codes = _round(tl.div_rn(y, over[None, :] + tl.zeros_like(y)))
    codes = tl.minimum(tl.maximum(codes, LOW), HIGH)
    place = out + (member * M + token).to(tl.int64)[:, None] * K + channel[None, :]
    tl.store(place, codes.to(out.dtype.element_ty), mask=inside)
    if PDL:
        gdc_launch_dependents()
    if CLEAR:
        program = (member * tl.num_programs(1) + part) * tl.num_programs(0) + block
        programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
        _clear(work, COUNT, program, programs)
