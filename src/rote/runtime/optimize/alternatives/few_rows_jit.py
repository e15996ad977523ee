# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false
"""Products of few rows in Triton: one row by itself, a block of rows, and the sum of parts.

Nobody imports this file: its text is compiled, with a function behind it that says what is constant
(:mod:`.few_rows`). Each function is told which of its programs runs, so that several products are one launch.

A column of the matrix lies without gaps. Sums are kept in 32 bits and rounded once, with the bias.
"""

import triton
import triton.language as tl


@triton.jit
def row(
    x, matrix, bias, out, at, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, WS: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some columns of the product of one row: each is multiplied, and added up at the end."""
    n, lane = at * BN + tl.arange(0, BN), tl.arange(0, BK)
    known = n < COLUMNS
    acc = tl.zeros((BN, BK), tl.float32)
    for k in tl.range(0, WIDTH, BK):
        a = tl.load(x + k + lane).to(tl.float32)
        b = tl.load(matrix + (n * WS)[:, None] + (k + lane)[None, :], known[:, None], other=0.0)
        acc += a[None, :] * b.to(tl.float32)
    total = tl.sum(acc, 1)
    if BIASED:
        total += tl.load(bias + n, known, other=0.0).to(tl.float32)
    tl.store(out + n, total.to(out.dtype.element_ty), known)


@triton.jit
def block(
    x, matrix, bias, out, at, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
    XS: tl.constexpr, WS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PARTS: tl.constexpr, PART: tl.constexpr, STAGES: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Some columns of the product of all rows, or a part of their sums; the last part may be shorter."""
    part, n = at % PARTS, at // PARTS * BN + tl.arange(0, BN)
    m, lane = tl.arange(0, BM), tl.arange(0, BK)
    here, known = m < ROWS, n < COLUMNS
    acc = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, PART, BK, num_stages=STAGES):
        k = part * PART + step + lane
        if PARTS * PART == WIDTH:
            a = tl.load(x + (m * XS)[:, None] + k[None, :], here[:, None], other=0.0)
            b = tl.load(matrix + (n * WS)[:, None] + k[None, :], known[:, None], other=0.0)
        else:
            there = (k < WIDTH)[None, :]
            a = tl.load(x + (m * XS)[:, None] + k[None, :], here[:, None] & there, other=0.0)
            b = tl.load(matrix + (n * WS)[:, None] + k[None, :], known[:, None] & there, other=0.0)
        acc = tl.dot(a, tl.trans(b), acc, out_dtype=tl.float32)
    if BIASED:
        acc += tl.load(bias + n, known, other=0.0).to(tl.float32)[None, :]
    target = out + ((part * ROWS + m) * COLUMNS)[:, None] + n[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), here[:, None] & known[None, :])


@triton.jit
def join(
    sums, bias, out, at, COUNT: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
    BIASED: tl.constexpr,
):  # fmt: skip
    """The sum of parts, one after the other."""
    t = at * BLOCK + tl.arange(0, BLOCK)
    known = t < COUNT
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(sums + part * COUNT + t, known, other=0.0)
    if BIASED:
        total += tl.load(bias + t % COLUMNS, known, other=0.0).to(tl.float32)
    tl.store(out + t, total.to(out.dtype.element_ty), known)
