# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""Kernels for images in Triton: matrices turned, and group norms step by step as PyTorch calculates them.

Nobody imports this file: its text is compiled, with a function behind it that says what is constant
(:mod:`.turning`, :mod:`.group_norm`).

The moments of a group are Welford's. PyTorch has a block of 512 threads go through a group (a warp, if the
group is smaller than that). Each thread takes every 512th number, and keeps a mean, a sum of squares and a
count. Then half of the threads take the other half in, until one is left: first within warps, then across
them. Each instruction that rounds is written down, so that no compiler joins two, or puts another in its
place.
"""

import triton
import triton.language as tl


@triton.jit
def _fma(a, b, c):
    return tl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [a, b, c], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _mul(a, b):
    return tl.inline_asm_elementwise(
        "mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _div(a, b):
    return tl.inline_asm_elementwise(
        "div.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _inverse_root(a):
    return tl.inline_asm_elementwise(
        "rsqrt.approx.f32 $0, $1;", "=f,f", [a], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def turn(
    x, bias, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BIASED: tl.constexpr,
):  # fmt: skip
    """A block of a matrix, of which there are many, with its rows as columns; a column may have a bias."""
    DOWN: tl.constexpr = (ROWS + BM - 1) // BM
    ACROSS: tl.constexpr = (COLUMNS + BN - 1) // BN
    program = tl.program_id(0)
    block = program % (DOWN * ACROSS)
    start = (program // (DOWN * ACROSS)).to(tl.int64) * (ROWS * COLUMNS)
    m = block // ACROSS * BM + tl.arange(0, BM)
    n = block % ACROSS * BN + tl.arange(0, BN)
    known = (m < ROWS)[:, None] & (n < COLUMNS)[None, :]
    found = tl.load(x + start + (m * COLUMNS)[:, None] + n[None, :], known)
    if BIASED:
        added = tl.load(bias + n, n < COLUMNS, other=0.0).to(tl.float32)
        found = (found.to(tl.float32) + added[None, :]).to(out.dtype.element_ty)
    tl.store(out + start + (n * ROWS)[None, :] + m[:, None], found, known)


@triton.jit
def _joined(mean, squares, count, BEFORE: tl.constexpr, HALF: tl.constexpr):
    """The moments of neighbours so far apart, as one: of each row the first half takes the second in."""
    mean, other_mean = tl.split(tl.permute(tl.reshape(mean, (BEFORE, 2, HALF)), (0, 2, 1)))
    squares, other_squares = tl.split(tl.permute(tl.reshape(squares, (BEFORE, 2, HALF)), (0, 2, 1)))
    count, other_count = tl.split(tl.permute(tl.reshape(count, (BEFORE, 2, HALF)), (0, 2, 1)))
    apart, both = other_mean - mean, count + other_count
    share = _div(other_count, both)
    joined_mean = _fma(apart, share, mean)
    joined_squares = _fma(_mul(_mul(apart, apart), count), share, squares + other_squares)
    alone, nothing = other_count == 0, count == 0
    mean = tl.where(nothing, other_mean, tl.where(alone, mean, joined_mean))
    squares = tl.where(nothing, other_squares, tl.where(alone, squares, joined_squares))
    SIZE: tl.constexpr = BEFORE * HALF
    return tl.reshape(mean, (SIZE,)), tl.reshape(squares, (SIZE,)), tl.reshape(both, (SIZE,))


@triton.jit
def _taken_in(mean, squares, each, number):
    """Moments with one number more in each thread, its ``number``-th one."""
    apart = each - mean
    mean = mean + _div(apart, number)
    return mean, _fma(apart, each - mean, squares)


@triton.jit
def moments(x, mean_out, inverse_out, SIZE: tl.constexpr, THREADS: tl.constexpr, EPS: tl.constexpr):
    """Mean and inverse root of the variance of a group of ``SIZE`` numbers, which lie in a row.

    Eight numbers of a thread are read at once, and the next eight meanwhile.
    """
    WHOLE: tl.constexpr = SIZE // THREADS
    LEFT: tl.constexpr = SIZE % THREADS
    BLOCKS: tl.constexpr = WHOLE // 8
    WARPS: tl.constexpr = THREADS // 32
    group, lane = tl.program_id(0), tl.arange(0, THREADS)
    x += group.to(tl.int64) * SIZE
    mean, squares = tl.zeros((THREADS,), tl.float32), tl.zeros((THREADS,), tl.float32)
    number = tl.full((THREADS,), 1, tl.float32)
    if BLOCKS:
        at = x + lane[:, None] + (tl.arange(0, 8) * THREADS)[None, :]
        following = tl.load(at)
        for block in tl.range(BLOCKS):
            eight = following.to(tl.float32)
            at += 8 * THREADS
            following = tl.load(at, mask=block + 1 < BLOCKS, other=0.0)
            even, odd = tl.split(tl.reshape(eight, (THREADS, 4, 2)))
            even, between = tl.split(tl.reshape(even, (THREADS, 2, 2)))
            odd, beside = tl.split(tl.reshape(odd, (THREADS, 2, 2)))
            x0, x4 = tl.split(even)
            x2, x6 = tl.split(between)
            x1, x5 = tl.split(odd)
            x3, x7 = tl.split(beside)
            mean, squares = _taken_in(mean, squares, x0, number)
            mean, squares = _taken_in(mean, squares, x1, number + 1)
            mean, squares = _taken_in(mean, squares, x2, number + 2)
            mean, squares = _taken_in(mean, squares, x3, number + 3)
            mean, squares = _taken_in(mean, squares, x4, number + 4)
            mean, squares = _taken_in(mean, squares, x5, number + 5)
            mean, squares = _taken_in(mean, squares, x6, number + 6)
            mean, squares = _taken_in(mean, squares, x7, number + 7)
            number += 8
    for step in tl.static_range(8 * BLOCKS, WHOLE):
        each = tl.load(x + step * THREADS + lane).to(tl.float32)
        mean, squares = _taken_in(mean, squares, each, number)
        number += 1
    count = tl.full((THREADS,), WHOLE, tl.float32)
    if LEFT:
        there = lane < LEFT
        each = tl.load(x + WHOLE * THREADS + lane, there, other=0.0).to(tl.float32)
        last_mean, last_squares = _taken_in(mean, squares, each, number)
        mean, squares = tl.where(there, last_mean, mean), tl.where(there, last_squares, squares)
        count = tl.where(there, count + 1, count)
    mean, squares, count = _joined(mean, squares, count, WARPS, 16)
    mean, squares, count = _joined(mean, squares, count, WARPS, 8)
    mean, squares, count = _joined(mean, squares, count, WARPS, 4)
    mean, squares, count = _joined(mean, squares, count, WARPS, 2)
    mean, squares, count = _joined(mean, squares, count, WARPS, 1)
    if WARPS == 16:
        mean, squares, count = _joined(mean, squares, count, 1, 8)
        mean, squares, count = _joined(mean, squares, count, 1, 4)
        mean, squares, count = _joined(mean, squares, count, 1, 2)
        mean, squares, count = _joined(mean, squares, count, 1, 1)
    at = group + tl.arange(0, 1)
    tl.store(mean_out + at, mean.to(mean_out.dtype.element_ty))
    tl.store(inverse_out + at, _inverse_root(_div(squares, count) + EPS).to(inverse_out.dtype.element_ty))


@triton.jit
def scale(
    x, weight, bias, mean, inverse, out, COUNT: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr,
    GROUP: tl.constexpr, BLOCK: tl.constexpr, WEIGHTED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some numbers of images less the mean of their group, and scaled; ``GROUP`` are a group's channels."""
    t = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    known = t < COUNT
    channel, group = t // PIXELS % CHANNELS, t // (PIXELS * GROUP)
    factor = tl.load(inverse + group, known, other=0.0).to(tl.float32)
    if WEIGHTED:
        factor = _mul(factor, tl.load(weight + channel, known, other=0.0).to(tl.float32))
    shift = tl.zeros((BLOCK,), tl.float32)
    if BIASED:
        shift = tl.load(bias + channel, known, other=0.0).to(tl.float32)
    shift -= _mul(factor, tl.load(mean + group, known, other=0.0).to(tl.float32))
    each = tl.load(x + t, known, other=0.0).to(tl.float32)
    tl.store(out + t, _fma(factor, each, shift).to(out.dtype.element_ty), known)
