# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""Attention in Triton, step by step as cuDNN's kernels for Hopper calculate it.

Nobody imports this file: its text is compiled, with a function behind it that says what is constant
(:mod:`.in_order`). Each instruction that rounds is written down, so that no compiler joins two or puts
another in its place: ``ftz`` takes numbers too small to be normal for zeros, and ``approx`` is the GPU's own
function. A row of scores lies in four threads, each of which has two neighbours of every eight keys: it adds
up its weights in the order of the keys, and the four sums are added at the end. The sum is that of weights in
32 bits, while the products with the values take rounded ones.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950216293335)
"""The logarithm in 32 bits."""


@triton.jit
def _fma(a, b, c):
    return tl.inline_asm_elementwise(
        "fma.rn.ftz.f32 $0, $1, $2, $3;", "=f,f,f,f", [a, b, c], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _mul(a, b):
    return tl.inline_asm_elementwise(
        "mul.rn.ftz.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _sub(a, b):
    return tl.inline_asm_elementwise(
        "sub.rn.ftz.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _exp2(a):
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [a], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _inverse(a):
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [a], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def in_order(
    query, key, value, mask, out,
    SCALE: tl.constexpr, FACTOR: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
    QB: tl.constexpr, QH: tl.constexpr, QM: tl.constexpr, QW: tl.constexpr,
    KB: tl.constexpr, KH: tl.constexpr, KN: tl.constexpr, KW: tl.constexpr,
    VB: tl.constexpr, VH: tl.constexpr, VN: tl.constexpr, VD: tl.constexpr,
    MB: tl.constexpr, MH: tl.constexpr, MM: tl.constexpr, MN: tl.constexpr,
    OB: tl.constexpr, OH: tl.constexpr, OM: tl.constexpr, OD: tl.constexpr,
    MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, BD: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """A block of queries of a head, and some numbers of their values; all of those have the same scores.

    ``GROUP`` are the query heads of each head of keys. A mask is added to scaled scores in one step; without
    one scores are scaled where powers are taken, by ``FACTOR``, which has the logarithm in it.
    """
    BLOCKS: tl.constexpr = (QUERIES + BM - 1) // BM
    STEPS: tl.constexpr = (KEYS + BN - 1) // BN
    PARTS: tl.constexpr = (DEPTH + BD - 1) // BD
    program = tl.program_id(0)
    part, rest = program % PARTS, program // PARTS
    batch, head, m = rest // (BLOCKS * HEADS), rest // BLOCKS % HEADS, rest % BLOCKS * BM + tl.arange(0, BM)
    w, d, lane = tl.arange(0, BW), part * BD + tl.arange(0, BD), tl.arange(0, BN)
    known = (m < QUERIES)[:, None]
    q = tl.load(
        query + batch * QB + head * QH + (m * QM)[:, None] + (w * QW)[None, :],
        known & (w < WIDTH)[None, :], other=0.0,
    )  # fmt: skip
    key += batch * KB + head // GROUP * KH
    value += batch * VB + head // GROUP * VH
    mask += batch * MB + head * MH
    most = tl.full((BM,), float("-inf"), tl.float32)
    sums = tl.zeros((BM, 4), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        n = step * BN + lane
        there = n < KEYS
        if MASKED:
            added = tl.load(mask + (m * MM)[:, None] + (n * MN)[None, :], known & there[None, :], other=0.0)
        k = tl.load(
            key + (n * KN)[:, None] + (w * KW)[None, :], there[:, None] & (w < WIDTH)[None, :], other=0.0
        )
        v = tl.load(
            value + (n * VN)[:, None] + (d * VD)[None, :], there[:, None] & (d < DEPTH)[None, :], other=0.0
        )
        score = tl.dot(q, tl.trans(k), out_dtype=tl.float32)
        if MASKED:
            score = _fma(score, SCALE, added.to(tl.float32))
        if STEPS * BN != KEYS:
            score = tl.where(there[None, :], score, float("-inf"))
        higher = tl.maximum(most, _mul(tl.max(score, 1), LOG2_E if MASKED else FACTOR))
        some = higher != float("-inf")
        lower = _exp2(tl.where(some, _sub(most, higher), most))
        power = _mul(score, LOG2_E if MASKED else FACTOR)
        weight = _exp2(_sub(power, tl.where(some, higher, 0.0)[:, None]))
        threads = tl.permute(tl.reshape(weight, (BM, BN // 8, 4, 2)), (0, 2, 1, 3))
        each = tl.reduce(tl.reshape(threads, (BM, 4, BN // 4)), 2, _plus)
        sums = _fma(lower[:, None], sums, each)
        acc = tl.dot(weight.to(value.dtype.element_ty), v, _mul(acc, lower[:, None]), out_dtype=tl.float32)
        most = higher
    total = tl.reduce(tl.reduce(tl.reshape(sums, (BM, 2, 2)), 2, _plus), 1, _plus)
    acc = _mul(acc, tl.where(total != 0.0, _inverse(total), 0.0)[:, None])
    target = out + batch * OB + head * OH + (m * OM)[:, None] + (d * OD)[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), known & (d < DEPTH)[None, :])
