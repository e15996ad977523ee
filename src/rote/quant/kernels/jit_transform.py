# pyright: basic, reportMissingImports=false
"""Transforming and quantizing activations, in Triton.

``shared`` does up to a rotation, a permutation and a second rotation in one launch, for rotations whose
blocks share one matrix. A program owns whole tokens. A token's blocks are the rows of a tile, so even one
token is a proper matrix product on tensor cores; the permutation is a gather through shared memory, and the
largest absolute value, which is over the whole row, needs no second pass. Programs loop over tokens.

``blocks`` does a permutation and a rotation with a matrix for each block, by multiply and add: those blocks
are small.

Tensor cores take bfloat16. What does not fit is split in two (a number is its bfloat16 plus that of the
rest), and the product of the rests is left out, which costs 2^-16 of a number, far less than half a step
of a code. ``EXACT`` multiplies in float32 instead; the interpreter,
which has no bfloat16 arithmetic, needs that.

Rounding is half to even, as in torch: adding and taking away 1.5 * 2^23 leaves a whole number for all that
has been clamped to a few hundred. A row is multiplied by the reciprocal of its scale instead of divided,
which is many instructions less; that moves a number by 2^-23 of itself, and no code but at a tie.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

FLOAT = tl.constexpr(0)
SYMMETRIC = tl.constexpr(1)
ASYMMETRIC = tl.constexpr(2)
STATIC = tl.constexpr(3)  # one scale and zero point
FOLDED = tl.constexpr(4)  # a scale for each channel, which the weight has absorbed


@triton.jit
def _round(v):
    v = tl.minimum(tl.maximum(v, -1024.0), 1024.0)
    return (v + 12582912.0) - 12582912.0


@triton.jit
def _rotate(v, matrix, SPLIT_V: tl.constexpr, SPLIT_R: tl.constexpr, EXACT: tl.constexpr):
    """Rows of float32 times a square matrix."""
    if EXACT:
        y = tl.dot(v, matrix.to(tl.float32), input_precision="ieee", out_dtype=tl.float32)
    else:
        v_high = v.to(tl.bfloat16)
        r_high = matrix.to(tl.bfloat16)
        y = tl.dot(v_high, r_high, out_dtype=tl.float32)
        if SPLIT_V:
            v_low = (v - v_high.to(tl.float32)).to(tl.bfloat16)
            y = tl.dot(v_low, r_high, y, out_dtype=tl.float32)
        if SPLIT_R:
            r_low = (matrix.to(tl.float32) - r_high.to(tl.float32)).to(tl.bfloat16)
            y = tl.dot(v_high, r_low, y, out_dtype=tl.float32)
    return y


@triton.jit
def _quantize(
    v, token, channel, inside, M, K, q, scale, zero, total, static_scale, static_zero, clip,
    MODE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ZERO: tl.constexpr, ORIGIN: tl.constexpr,
):  # fmt: skip
    """Write tokens, ``(tokens, channels)``, as codes with their scales, zero points and sums."""
    place = q + token.to(tl.int64)[:, None] * K + channel[None, :]
    if MODE == FLOAT:
        kept = v.to(q.dtype.element_ty)
        tl.store(place, kept, mask=inside)
        tl.store(
            total + token, tl.sum(kept.to(tl.float32), 1), mask=token < M
        )  # of what the product will see
    else:
        ones = tl.full(token.shape, 1.0, tl.float32)
        z = tl.zeros(token.shape, tl.float32)
        if MODE == SYMMETRIC:
            s = tl.maximum(tl.div_rn(tl.max(tl.abs(v), 1) * clip, ones * HIGH), 1e-9)
            codes = _round(v * tl.div_rn(ones, s)[:, None])
        elif MODE == ASYMMETRIC:
            lowest = tl.minimum(tl.min(v, 1), 0.0) * clip
            highest = tl.maximum(tl.max(v, 1), 0.0) * clip
            s = tl.maximum(tl.div_rn(highest - lowest, ones * (HIGH - LOW)), 1e-9)
            z = tl.minimum(tl.maximum(LOW - _round(tl.div_rn(lowest, s)), LOW), HIGH)
            codes = _round(v * tl.div_rn(ones, s)[:, None]) + z[:, None]
        elif MODE == STATIC:
            s = ones * tl.load(static_scale)
            if ORIGIN:
                z += tl.load(static_zero)
            codes = _round(v * tl.div_rn(ones, s)[:, None]) + z[:, None]
        else:
            s = ones
            divisor = tl.load(static_scale + channel, mask=channel < K, other=1.0)
            codes = _round(tl.div_rn(v, divisor[None, :] + tl.zeros_like(v)))
        codes = tl.minimum(tl.maximum(codes, LOW), HIGH)
        codes = tl.where(inside, codes, 0.0)
        kept = codes
        if q.dtype.element_ty != tl.int8:
            kept = (codes - z[:, None]) * s[:, None]  # what codes stand for, for a product of numbers
        tl.store(place, kept.to(q.dtype.element_ty), mask=inside)
        tl.store(scale + token, s, mask=token < M)
        if ZERO:
            tl.store(zero + token, z.to(tl.int32), mask=token < M)
        tl.store(total + token, tl.sum(codes.to(tl.int32), 1), mask=token < M)


@triton.jit
def _clear(work, COUNT, program, programs):
    """Zeros, for the sums of the product that follows."""
    for start in range(program * 1024, COUNT, programs * 1024):
        at = start + tl.arange(0, 1024)
        tl.store(work + at, tl.zeros((1024,), tl.int32), mask=at < COUNT)


@triton.jit(do_not_specialize=["M", "COUNT"])
def shared(
    x, smooth, r1, order, r2, q, scale, zero, total, static_scale, static_zero, work, M, COUNT, WIDTH, K,
    clip, SMOOTH: tl.constexpr, R1: tl.constexpr, ORDER: tl.constexpr, R2: tl.constexpr, B: tl.constexpr,
    NB: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    SPLIT_X: tl.constexpr, SPLIT_R: tl.constexpr, EXACT: tl.constexpr, PDL: tl.constexpr,
    ZERO: tl.constexpr, ORIGIN: tl.constexpr,
):  # fmt: skip
    """Transform ``T`` tokens at a time: ``NB`` blocks (a power of two, K / B or more) of ``B`` channels."""
    if PDL:
        gdc_launch_dependents()
    program, programs = tl.program_id(0), tl.num_programs(0)
    _clear(work, COUNT, program, programs)
    row = tl.arange(0, T * NB)
    inner = tl.arange(0, B)
    square = inner[:, None] * B + inner[None, :]
    channel = tl.arange(0, NB * B)
    place = tl.arange(
        0, T * NB * B
    )  # flat: in two dimensions gathers become warp shuffles, thousands of them
    block_channel = (row % NB)[:, None] * B + inner[None, :]
    for start in range(program * T, M, programs * T):
        from_token = start + row // NB
        here = (from_token < M)[:, None] & (block_channel < WIDTH)
        v = tl.load(x + from_token.to(tl.int64)[:, None] * WIDTH + block_channel, mask=here, other=0).to(
            tl.float32
        )
        if SMOOTH:
            divisor = tl.load(smooth + block_channel, mask=block_channel < WIDTH, other=1.0).to(tl.float32)
            v = tl.div_rn(v, divisor)
        if R1:
            v = _rotate(v, tl.load(r1 + square), SPLIT_X, SPLIT_R, EXACT)
        if R2:
            second = tl.load(r2 + square)  # before the gather, whose barriers hold loads back
        if ORDER:
            taken = tl.load(order + place % (NB * B), mask=place % (NB * B) < K, other=0).to(tl.int32)
            v = tl.gather(tl.reshape(v, (T * NB * B,)), place // (NB * B) * (NB * B) + taken, 0)
            v = tl.where(place % (NB * B) < K, v, 0.0)
            v = tl.reshape(v, (T * NB, B))
        if R2:
            v = _rotate(v, second, R1 or SPLIT_X, SPLIT_R, EXACT)
        token = start + tl.arange(0, T)
        inside = (token < M)[:, None] & (channel < K)[None, :]
        _quantize(
            tl.reshape(v, (T, NB * B)), token, channel, inside, M, K, q, scale, zero, total, static_scale,
            static_zero, clip, MODE, LOW, HIGH, ZERO, ORIGIN,
        )  # fmt: skip


@triton.jit(do_not_specialize=["M", "COUNT"])
def blocks(
    x, smooth, order, matrices, q, scale, zero, total, static_scale, static_zero, work, M, COUNT, WIDTH, K,
    clip, SMOOTH: tl.constexpr, ORDER: tl.constexpr, B: tl.constexpr, NB: tl.constexpr, MODE: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, SAME: tl.constexpr, UNROLL: tl.constexpr, PDL: tl.constexpr,
    ZERO: tl.constexpr, ORIGIN: tl.constexpr,
):  # fmt: skip
    """Transform one token at a time: gather, then multiply each block by its matrix."""
    if PDL:
        gdc_launch_dependents()
    program, programs = tl.program_id(0), tl.num_programs(0)
    _clear(work, COUNT, program, programs)
    block = tl.arange(0, NB)
    inner = tl.arange(0, B)
    real = block * B < K
    channel = tl.arange(0, NB * B)
    for start in range(program, M, programs):
        token = start + tl.arange(0, 1)
        base = x + token.to(tl.int64) * WIDTH
        v = tl.zeros((NB, B), tl.float32)
        for outer in range(0, B, UNROLL):
            for step in tl.static_range(UNROLL):  # so that loads need not wait for each other
                i = outer + step
                source = block * B + i
                if ORDER:
                    source = tl.load(order + source, mask=real, other=0).to(tl.int32)
                known = real & (source < WIDTH)
                value = tl.load(base + source, mask=known, other=0).to(tl.float32)
                if SMOOTH:
                    value = tl.div_rn(value, tl.load(smooth + source, mask=known, other=1.0).to(tl.float32))
                line = matrices + ((0 if SAME else block * B) + i + block * 0)[:, None] * B + inner[None, :]
                v += value[:, None] * tl.load(line, mask=real[:, None], other=0).to(tl.float32)
        inside = (token < M)[:, None] & (channel < K)[None, :]
        _quantize(
            tl.reshape(v, (1, NB * B)), token, channel, inside, M, K, q, scale, zero, total, static_scale,
            static_zero, clip, MODE, LOW, HIGH, ZERO, ORIGIN,
        )  # fmt: skip
