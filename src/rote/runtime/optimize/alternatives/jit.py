# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""Attention in Triton: one kernel for a part of the keys, one that joins the parts.

Nobody imports this file: its text is compiled, with a function behind it that says what is constant
(:mod:`.parts`). Strides are constants, so that the compiler knows which numbers lie together.

A program has a block of queries and a part of the keys. Heads that share keys and values are rows of one
block. The softmax is taken as the keys come (Milakov and Gimelshein, 2018), in 32 bits. Weights are rounded
for their product with the values, and the sum that divides them is that of rounded weights: what is rounded
away is missing above and below. A row without any key has the sum 0; what that gives is said by a constant.

Scores are not multiplied by the logarithm before the largest is subtracted: masks often are the smallest
number there is, and would become infinite.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _powers(score, most):
    """Powers of e, by how far scores lie below the largest; 0 where that is infinitely small."""
    return tl.exp2((score - tl.where(most == float("-inf"), 0.0, most)) * LOG2_E)


@triton.jit
def _divided(acc, total, ZERO: tl.constexpr):
    """Without ``ZERO`` a row without any key gives no number."""
    return acc / (tl.where(total == 0.0, 1.0, total) if ZERO else total)[:, None]


@triton.jit
def part(
    query, key, value, mask, out, highest, total,
    SCALE: tl.constexpr, HEADS: tl.constexpr, GROUP: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr,
    QB: tl.constexpr, QH: tl.constexpr, QM: tl.constexpr, QW: tl.constexpr,
    KB: tl.constexpr, KH: tl.constexpr, KN: tl.constexpr, KW: tl.constexpr,
    VB: tl.constexpr, VH: tl.constexpr, VN: tl.constexpr, VD: tl.constexpr,
    MB: tl.constexpr, MH: tl.constexpr, MM: tl.constexpr, MN: tl.constexpr,
    OB: tl.constexpr, OH: tl.constexpr, OM: tl.constexpr, OD: tl.constexpr,
    MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BW: tl.constexpr, BD: tl.constexpr,
    STEPS: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr, ZERO: tl.constexpr,
):  # fmt: skip
    """Attention to a part of the keys.

    ``HEADS`` are those of keys and values, ``GROUP`` the query heads of each, and ``STEPS`` the blocks of
    keys of a part. With more than one of ``PARTS``, sums are left as they are, with the largest score of each
    row and the sum of its weights.
    """
    ROWS: tl.constexpr = GROUP * QUERIES
    program = tl.program_id(0)
    at, rest = program % PARTS, program // PARTS
    shared, block = rest // tl.cdiv(ROWS, BM), rest % tl.cdiv(ROWS, BM)
    batch, kept = shared // HEADS, shared % HEADS
    row = block * BM + tl.arange(0, BM)
    head, m = kept * GROUP + row // QUERIES, row % QUERIES
    w, d, lane = tl.arange(0, BW), tl.arange(0, BD), tl.arange(0, BN)
    known = (row < ROWS)[:, None]
    q = tl.load(
        query + batch * QB + (head * QH + m * QM)[:, None] + (w * QW)[None, :],
        known & (w < WIDTH)[None, :], other=0.0,
    )  # fmt: skip
    key += batch * KB + kept * KH
    value += batch * VB + kept * VH
    most = tl.full((BM,), float("-inf"), tl.float32)
    sums = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        n = (at * STEPS + step) * BN + lane
        there = n < KEYS
        if MASKED:
            added = tl.load(
                mask + batch * MB + (head * MH + m * MM)[:, None] + (n * MN)[None, :],
                known & there[None, :], other=0.0,
            )  # fmt: skip
        k = tl.load(
            key + (n * KN)[:, None] + (w * KW)[None, :], there[:, None] & (w < WIDTH)[None, :], other=0.0
        )
        v = tl.load(
            value + (n * VN)[:, None] + (d * VD)[None, :], there[:, None] & (d < DEPTH)[None, :], other=0.0
        )
        score = tl.dot(q, tl.trans(k), out_dtype=tl.float32) * SCALE
        if MASKED:
            score += added.to(tl.float32)
        if STEPS * PARTS * BN != KEYS:
            score = tl.where(there[None, :], score, float("-inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        weight = _powers(score, higher[:, None]).to(value.dtype.element_ty)
        lower = _powers(most, higher)
        sums = sums * lower + tl.sum(weight.to(tl.float32), 1)
        acc = tl.dot(weight, v, acc * lower[:, None], out_dtype=tl.float32)
        most = higher
    inside = known & (d < DEPTH)[None, :]
    if PARTS == 1:
        target = out + batch * OB + (head * OH + m * OM)[:, None] + (d * OD)[None, :]
        tl.store(target, _divided(acc, sums, ZERO).to(out.dtype.element_ty), inside)
    else:
        line = (shared * PARTS + at) * ROWS + row
        tl.store(out + (line * DEPTH)[:, None] + d[None, :], acc, inside)
        tl.store(highest + line, most, row < ROWS)
        tl.store(total + line, sums, row < ROWS)


@triton.jit
def join(
    sums, highest, total, out, HEADS: tl.constexpr, GROUP: tl.constexpr, QUERIES: tl.constexpr,
    DEPTH: tl.constexpr, OB: tl.constexpr, OH: tl.constexpr, OM: tl.constexpr, OD: tl.constexpr,
    BM: tl.constexpr, BD: tl.constexpr, BP: tl.constexpr, PARTS: tl.constexpr, ZERO: tl.constexpr,
):  # fmt: skip
    """The parts of some rows, each by how far its largest score lies below that of all."""
    ROWS: tl.constexpr = GROUP * QUERIES
    program = tl.program_id(0)
    shared, block = program // tl.cdiv(ROWS, BM), program % tl.cdiv(ROWS, BM)
    row, d, at = block * BM + tl.arange(0, BM), tl.arange(0, BD), tl.arange(0, BP)
    line = (shared * PARTS + at)[:, None] * ROWS + row[None, :]
    known = (at < PARTS)[:, None] & (row < ROWS)[None, :]
    most = tl.load(highest + line, known, other=float("-inf"))
    weight = _powers(most, tl.max(most, 0)[None, :])
    each = tl.load(
        sums + (line * DEPTH)[:, :, None] + d[None, None, :],
        known[:, :, None] & (d < DEPTH)[None, None, :], other=0.0,
    )  # fmt: skip
    acc = tl.sum(each * weight[:, :, None], 0)
    all_of_it = tl.sum(tl.load(total + line, known, other=0.0) * weight, 0)
    batch, head, m = shared // HEADS, shared % HEADS * GROUP + row // QUERIES, row % QUERIES
    target = out + batch * OB + (head * OH + m * OM)[:, None] + (d * OD)[None, :]
    tl.store(
        target,
        _divided(acc, all_of_it, ZERO).to(out.dtype.element_ty),
        (row < ROWS)[:, None] & (d < DEPTH)[None, :],
    )
