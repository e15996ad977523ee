# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false, reportAssignmentType=false
"""Transforming and quantizing activations with each row spread over many programs, in Triton.

``jit_transform.shared`` gives a whole row to one program, which takes long if the row is wide: 16384 channels
are some 10 microseconds of work for one multiprocessor, while the others wait. Here a rotation, a
permutation, a rotation and the codes are three launches, with a program for each block of channels of some
tokens:

``first`` multiplies by the first rotation. Its output is transposed, ``(tiles, channels, tokens of a tile)``:
a channel's tokens are neighbours, so that the permutation, between the launches, moves pieces of memory and
not single numbers.

``second`` gathers its channels and multiplies by the second rotation. With known scales it writes codes,
otherwise float32 rows and the range of its part of each row.

``codes`` quantizes those rows. Sums of codes are atomic additions of integers, which are exact.

Each launch may start before its predecessor is done. ``first`` waits for its own before it does anything and
before others may start, so nothing still writes what those read before they wait (a matrix, the permutation).
All programs wait, so waiting for the last launch is waiting for all.

Numbers are those of ``shared``: bfloat16 on tensor cores, and others split in two.

Tried and slower on an H200: several blocks for a program, one after the other, even if loaded ahead (each
takes more than a microsecond, most of it waiting); calculating numbers again for the codes in place of
keeping them; a program for each block and token with both rotations, whose tensor cores multiply 128 times
too much but need no exchange; and this way for many tokens, where float32 rows in memory cost more than one
multiprocessor's work on a row.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .transform import ASYMMETRIC, STATIC, SYMMETRIC, _clear, _code, _high, _range, _step


@triton.jit
def _turn(matrix, v, SPLIT_V: tl.constexpr, SPLIT_R: tl.constexpr, EXACT: tl.constexpr):
    """The transpose of a square matrix times columns of float32."""
    if EXACT:
        y = tl.dot(tl.trans(matrix.to(tl.float32)), v, input_precision="ieee", out_dtype=tl.float32)
    else:
        high = _high(v) if SPLIT_V else v
        v_high = high.to(tl.bfloat16)
        r_high = tl.trans(matrix.to(tl.bfloat16))
        y = tl.dot(r_high, v_high, out_dtype=tl.float32)
        if SPLIT_V:
            v_low = (v - high).to(tl.bfloat16)
            y = tl.dot(r_high, v_low, y, out_dtype=tl.float32)
        if SPLIT_R:
            r_low = (matrix.to(tl.float32) - matrix.to(tl.bfloat16).to(tl.float32)).to(tl.bfloat16)
            y = tl.dot(tl.trans(r_low), v_high, y, out_dtype=tl.float32)
    return y


@triton.jit(do_not_specialize=["M", "COUNT"])
def first(
    x, smooth, r1, turned, total, work, M, COUNT, WIDTH, K,
    SMOOTH: tl.constexpr, B: tl.constexpr, T: tl.constexpr, SPLIT_X: tl.constexpr, SPLIT_R: tl.constexpr,
    EXACT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Rotate a block of ``B`` channels of ``T`` tokens, and write the zeros that others add to."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    block, tile = tl.program_id(0), tl.program_id(1)
    inner = tl.arange(0, B)
    matrix = tl.load(r1 + inner[:, None] * B + inner[None, :])
    within = tl.arange(0, T)
    token = tile * T + within
    channel = block * B + inner
    here = (token < M)[:, None] & (channel < WIDTH)[None, :]
    v = tl.load(x + token.to(tl.int64)[:, None] * WIDTH + channel[None, :], mask=here, other=0)
    v = v.to(tl.float32)
    if SMOOTH:
        divisor = tl.load(smooth + channel, mask=channel < WIDTH, other=1.0).to(tl.float32)
        v = tl.div_rn(v, divisor[None, :] + tl.zeros_like(v))
    y = _turn(matrix, tl.trans(v), SPLIT_X, SPLIT_R, EXACT)
    # Tiles are whole: a mask along tokens would cut up joint writes.
    tl.store(turned + tile.to(tl.int64) * T * K + channel[:, None] * T + within[None, :], y)
    program = tile * tl.num_programs(0) + block
    programs = tl.num_programs(0) * tl.num_programs(1)
    _clear(work, COUNT, program, programs)
    _clear(total, M, program, programs)


@triton.jit
def _write(
    found, s, z, token, channel, q, scale, zero, total, M, K, HEAD, ZERO: tl.constexpr
):  # fmt: skip
    """Codes, of shape ``(channels, tokens)``; with ``HEAD`` also scales and zero points of the tokens."""
    known = token < M
    found = tl.where(known[None, :], found, 0)
    tl.store(q + token.to(tl.int64)[None, :] * K + channel[:, None], found.to(tl.int8), mask=known[None, :])
    tl.atomic_add(total + token, tl.sum(found, 0), mask=known, sem="relaxed")
    if HEAD:
        tl.store(scale + token, s, mask=known)
        if ZERO:
            tl.store(zero + token, z, mask=known)


@triton.jit(do_not_specialize=["M"])
def second(
    turned, order, r2, rows, ranges, q, scale, zero, total, static_scale, static_zero, M, K,
    B: tl.constexpr, T: tl.constexpr, MODE: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    SPLIT_R: tl.constexpr, EXACT: tl.constexpr, PDL: tl.constexpr, ZERO: tl.constexpr, ORIGIN: tl.constexpr,
):  # fmt: skip
    """Permute and rotate: to float32 rows and the ranges of their blocks or, with static scales, to codes."""
    block, tile = tl.program_id(0), tl.program_id(1)
    inner = tl.arange(0, B)
    channel = block * B + inner
    source = tl.load(order + channel).to(tl.int32)
    matrix = tl.load(r2 + inner[:, None] * B + inner[None, :])
    within = tl.arange(0, T)
    token = tile * T + within
    known = token < M
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    v = tl.load(turned + tile.to(tl.int64) * T * K + source[:, None] * T + within[None, :])
    y = _turn(matrix, v, True, SPLIT_R, EXACT)
    if MODE == SYMMETRIC or MODE == ASYMMETRIC:
        place = token.to(tl.int64)[None, :] * K + channel[:, None]
        tl.store(rows + place, y, mask=known[None, :])
        own = ranges + token.to(tl.int64) * tl.num_programs(0) + block
        if MODE == SYMMETRIC:
            tl.store(own, tl.max(tl.abs(y), 0), mask=known)
        else:
            high, deep = _range(y, 0, EXACT)
            tl.store(own, high, mask=known)
            tl.store(own + M.to(tl.int64) * tl.num_programs(0), deep, mask=known)
    else:
        s, z = tl.full((T,), 1.0, tl.float32), tl.zeros((T,), tl.int32)
        if MODE == STATIC:
            factor = tl.div_rn(s, s * tl.load(static_scale))
            s *= tl.load(static_scale)
            if ORIGIN:
                z += tl.load(static_zero).to(tl.int32)
            found = _code(y, factor[None, :], z[None, :], LOW, HIGH)
        else:
            divisor = tl.load(static_scale + channel)
            found = _code(tl.div_rn(y, divisor[:, None] + tl.zeros_like(y)), 1.0, z[None, :], LOW, HIGH)
        _write(found, s, z, token, channel, q, scale, zero, total, M, K, block == 0, ZERO)


@triton.jit(do_not_specialize=["M"])
def codes(
    rows, ranges, q, scale, zero, total, M, K, BLOCKS, clip, P: tl.constexpr, MODE: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, CHANNELS: tl.constexpr, PDL: tl.constexpr, ZERO: tl.constexpr,
):  # fmt: skip
    """Quantize ``CHANNELS`` of a row from the ranges of its blocks, ``P`` of them at most."""
    part, token = tl.program_id(0), tl.program_id(1)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    channel = part * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < K
    row = token.to(tl.int64) * K
    v = tl.load(rows + row + channel, mask=inside, other=0.0)
    block = tl.arange(0, P)
    own = ranges + token.to(tl.int64) * BLOCKS + block
    highest = tl.max(tl.load(own, mask=block < BLOCKS, other=0.0), 0) * clip
    lowest = highest * 0.0
    if MODE == ASYMMETRIC:
        lowest = -tl.max(tl.load(own + M.to(tl.int64) * BLOCKS, mask=block < BLOCKS, other=0.0), 0) * clip
    s, z = _step(highest, lowest, MODE, LOW, HIGH)
    found = tl.where(inside, _code(v, tl.div_rn(1.0, s), z, LOW, HIGH), 0)
    tl.store(q + row + channel, found.to(tl.int8), mask=inside)
    tl.atomic_add(total + token, tl.sum(found, 0), sem="relaxed")
    if part == 0:
        tl.store(scale + token, s)
        if ZERO:
            tl.store(zero + token, z)
