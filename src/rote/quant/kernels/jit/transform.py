# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false, reportAssignmentType=false
"""Transforming and quantizing activations, in Triton.

``shared`` does up to a rotation, a permutation and a second rotation in one launch, for rotations whose
blocks share one matrix. A program owns whole tokens and loops over them. A token's blocks are the rows of a
tile, so even one token is a proper matrix product on tensor cores; the permutation is a gather through shared
memory, and the largest absolute value of the row needs no second pass. (``jit_spread`` does the same for few
wide rows, which would leave most of the chip idle.)

``blocks`` does a permutation and a rotation with a matrix for each block, by multiply and add, since those
blocks are small.

Tensor cores take bfloat16. Other numbers are split in two (their bfloat16 plus that of the rest), and the
product of the rests is left out, which costs 2^-16 of a number, far less than half a step of a code.
``EXACT`` multiplies in float32; the interpreter, which has no bfloat16 arithmetic, needs that.

With ``WAIT`` a launch may start before its predecessor, of any kind, has ended, and waits for it before it
reads anything, or writes where others may still read. Only then, with ``PDL``, may its successor start, which
can therefore read weights before it waits.

Rounding is half to even, as in torch: the bits of a number plus 1.5 * 2^23 are those of a whole number, and
an addition and two comparisons make the code. A row is multiplied by the reciprocal of its scale, which takes
many instructions less than a division; that moves a number by 2^-23 of itself, and a code only at a tie.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

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
def _high(v):
    """Numbers rounded to bfloat16, as float32: converting those and their rests takes packed instructions."""
    return ((v.to(tl.int32, bitcast=True) + 0x8000) & -0x10000).to(tl.float32, bitcast=True)


@triton.jit
def _code(v, factor, zero, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Numbers times a factor as codes, int32.

    The bits of the sum with 1.5 * 2^23 are those of the rounded number; those of a negative sum are out of
    range, as their maximum with 0 is.
    """
    bits = (v * factor + 12582912.0).to(tl.int32, bitcast=True)
    return tl.minimum(tl.maximum(tl.maximum(bits, 0) + (zero - 0x4B400000), LOW), HIGH)


@triton.jit
def _step(highest, lowest, MODE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Scale and zero point of rows from their clipped ranges."""
    if MODE == SYMMETRIC:
        scale = tl.maximum(tl.div_rn(highest, highest * 0.0 + HIGH), 1e-9)
        zero = highest.to(tl.int32, bitcast=True) & 0
    else:
        scale = tl.maximum(tl.div_rn(highest - lowest, highest * 0.0 + (HIGH - LOW)), 1e-9)
        zero = tl.minimum(tl.maximum(LOW - _round(tl.div_rn(lowest, scale)), LOW), HIGH).to(tl.int32)
    return scale, zero


@triton.jit
def _larger(a, b, c, d):
    return tl.maximum(a, c), tl.maximum(b, d)


@triton.jit
def _range(v, AXIS: tl.constexpr, EXACT: tl.constexpr):
    """The largest and the negated smallest number, in one exchange among warps."""
    if EXACT:  # what the interpreter does fast
        high, deep = tl.max(v, AXIS), tl.max(-v, AXIS)
    else:
        high, deep = tl.reduce((v, -v), AXIS, _larger)
    return tl.maximum(high, 0.0), tl.maximum(deep, 0.0)


@triton.jit
def _rotate(v, matrix, SPLIT_V: tl.constexpr, SPLIT_R: tl.constexpr, EXACT: tl.constexpr):
    """Rows of float32 times a square matrix, or one that comes twice, above itself."""
    if EXACT:
        y = tl.dot(v, matrix.to(tl.float32), input_precision="ieee", out_dtype=tl.float32)
    elif matrix.shape[0] > matrix.shape[1]:
        high = _high(v)
        parts = tl.permute(tl.join(high.to(tl.bfloat16), (v - high).to(tl.bfloat16)), (0, 2, 1))
        y = tl.dot(tl.reshape(parts, (v.shape[0], 2 * v.shape[1])), matrix, out_dtype=tl.float32)
    else:
        high = _high(v) if SPLIT_V else v
        v_high = high.to(tl.bfloat16)
        r_high = matrix.to(tl.bfloat16)
        y = tl.dot(v_high, r_high, out_dtype=tl.float32)
        if SPLIT_V:
            v_low = (v - high).to(tl.bfloat16)
            y = tl.dot(v_low, r_high, y, out_dtype=tl.float32)
        if SPLIT_R:
            r_low = (matrix.to(tl.float32) - r_high.to(tl.float32)).to(tl.bfloat16)
            y = tl.dot(v_high, r_low, y, out_dtype=tl.float32)
    return y


@triton.jit
def _take(v, source):
    """Numbers of a tile at flat places, through shared memory.

    There, eight neighbouring rows take turns of eight numbers, as the threads of a warp hold them after a
    product: row by row, a warp's rows would all be in the same few banks.
    """
    ROWS: tl.constexpr = v.shape[0]
    B: tl.constexpr = v.shape[1]
    if ROWS >= 8 and B >= 64:
        SHIFT: tl.constexpr = 4 if B == 128 else 3
        v = tl.permute(tl.reshape(v, (ROWS // 8, 8, B // 64, 8, 8)), (0, 3, 2, 1, 4))
        swapped = (source ^ (source >> SHIFT)) & 0x38
        source = source ^ swapped ^ (swapped << SHIFT)
    return tl.gather(tl.reshape(v, (ROWS * B,)), source, 0)


@triton.jit
def _quantize(
    v, token, channel, inside, M, K, q, scale, zero, total, static_scale, static_zero, clip,
    MODE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, ZERO: tl.constexpr, ORIGIN: tl.constexpr,
    EXACT: tl.constexpr,
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
        s = ones
        z = tl.zeros(token.shape, tl.int32)
        if MODE == FOLDED:
            divisor = tl.load(static_scale + channel, mask=channel < K, other=1.0)
            codes = _code(tl.div_rn(v, divisor[None, :] + tl.zeros_like(v)), 1.0, z[:, None], LOW, HIGH)
        else:
            if MODE == SYMMETRIC:
                s, z = _step(tl.max(tl.abs(v), 1) * clip, s * 0.0, MODE, LOW, HIGH)
            elif MODE == ASYMMETRIC:
                high, deep = _range(v, 1, EXACT)
                s, z = _step(high * clip, -deep * clip, MODE, LOW, HIGH)
            else:
                s *= tl.load(static_scale)
                if ORIGIN:
                    z += tl.load(static_zero).to(tl.int32)
            codes = _code(v, tl.div_rn(ones, s)[:, None], z[:, None], LOW, HIGH)
        codes = tl.where(inside, codes, 0)
        if q.dtype.element_ty == tl.int8:
            kept = codes.to(tl.int8)
        else:  # what codes stand for, for a product of numbers
            kept = ((codes - z[:, None]).to(tl.float32) * s[:, None]).to(q.dtype.element_ty)
        tl.store(place, kept, mask=inside)
        tl.store(scale + token, s, mask=token < M)
        if ZERO:
            tl.store(zero + token, z, mask=token < M)
        tl.store(total + token, tl.sum(codes, 1), mask=token < M)


@triton.jit
def _rows(x, token, channel, M, WIDTH, FULL: tl.constexpr):
    here = (token < M)[:, None] & (channel < WIDTH)
    if FULL:
        here = (token < M)[:, None] & (channel >= 0)
    return tl.load(x + token.to(tl.int64)[:, None] * WIDTH + channel, mask=here, other=0)


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
    SPLIT_X: tl.constexpr, SPLIT_R: tl.constexpr, EXACT: tl.constexpr, WAIT: tl.constexpr,
    PDL: tl.constexpr, ZERO: tl.constexpr, ORIGIN: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Transform ``T`` tokens at a time: ``NB`` blocks (a power of two, K / B or more) of ``B`` channels."""
    if WAIT:
        gdc_wait()
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
    # Matrices stay in shared memory if they fit, and the next tokens are on their way meanwhile.
    if R1 and not SPLIT_R:
        first = tl.load(r1 + square)
    # Numbers in two parts are one product if the matrix comes twice: less waiting, but more shared memory.
    TWICE: tl.constexpr = R1 and R2 and not SPLIT_R and not EXACT and T * NB == 128
    if R2 and not SPLIT_R:
        if TWICE:
            second = tl.load(r2 + (tl.arange(0, 2 * B) % B)[:, None] * B + inner[None, :])
        else:
            second = tl.load(r2 + square)
    ahead = _rows(x, program * T + row // NB, block_channel, M, WIDTH, FULL)
    for start in range(program * T, M, programs * T):
        v = ahead.to(tl.float32)
        ahead = _rows(x, start + programs * T + row // NB, block_channel, M, WIDTH, FULL)
        if SMOOTH:
            divisor = tl.load(smooth + block_channel, mask=block_channel < WIDTH, other=1.0).to(tl.float32)
            v = tl.div_rn(v, divisor)
        if ORDER:
            if FULL:
                taken = tl.load(order + place % (NB * B)).to(tl.int32)
            else:
                taken = tl.load(order + place % (NB * B), mask=place % (NB * B) < K, other=0).to(tl.int32)
        if R1:
            if SPLIT_R:
                first = tl.load(r1 + square)
            v = _rotate(v, first, SPLIT_X, SPLIT_R, EXACT)
        if R2 and SPLIT_R:
            second = tl.load(r2 + square)  # before the gather, whose barriers hold loads back
        if ORDER:
            v = _take(v, place // (NB * B) * (NB * B) + taken)
            if not FULL:
                v = tl.where(place % (NB * B) < K, v, 0.0)
            v = tl.reshape(v, (T * NB, B))
        if R2:
            v = _rotate(v, second, R1 or SPLIT_X, SPLIT_R, EXACT)
        token = start + tl.arange(0, T)
        inside = (token < M)[:, None] & ((channel < K)[None, :] | FULL)
        _quantize(
            tl.reshape(v, (T, NB * B)), token, channel, inside, M, K, q, scale, zero, total, static_scale,
            static_zero, clip, MODE, LOW, HIGH, ZERO, ORIGIN, EXACT,
        )  # fmt: skip


@triton.jit(do_not_specialize=["M", "COUNT"])
def blocks(
    x, smooth, order, matrices, q, scale, zero, total, static_scale, static_zero, work, M, COUNT, WIDTH, K,
    clip, SMOOTH: tl.constexpr, ORDER: tl.constexpr, B: tl.constexpr, NB: tl.constexpr, MODE: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, SAME: tl.constexpr, UNROLL: tl.constexpr, WAIT: tl.constexpr,
    PDL: tl.constexpr, ZERO: tl.constexpr, ORIGIN: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Transform one token at a time: gather, then multiply each block by its matrix."""
    if WAIT:
        gdc_wait()
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
            static_zero, clip, MODE, LOW, HIGH, ZERO, ORIGIN, EXACT,
        )  # fmt: skip
