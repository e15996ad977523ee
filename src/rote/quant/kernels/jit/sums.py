# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false, reportAssignmentType=false
"""The sums of a tile of the product over its part of the summed dimension, in Triton.

Unpacking costs 0.4 integer instructions a weight: a code stays in the upper half of its byte, with 16 times
its value, and the sum, always a multiple of 16, is shifted once at the end. The two halves of a byte are 64
columns apart. One behind the other, in the registers where the product wants them, they are 128 neighbouring
columns, and a step is one product, for which threads wait once.

In tiles of few rows the mask leaves out rows outside: reading the first row in place of each of them took up
to a third of the time of 51 rows. (In large tiles the mask takes 5 %.)

With ``TMA`` the tensor memory accelerator fetches the tiles from descriptors that the host makes. That leaves
the threads' time to unpacking, and registers for a second program; it pays from some hundred rows on.

Tried and slower on an H200: all weights of a program in registers before it waits for the transform, 128 KB
of them on each multiprocessor (1 to 8 microseconds more: the transform spreads unevenly beside such programs,
and nothing covers their work behind it); activations through L1, where the two programs of a multiprocessor
read the same ones, since L1 takes copies of 8 bytes, twice as many as of 16 (0 to 1.4 microseconds more).
"""

import triton
import triton.language as tl


@triton.jit
def _halves(packed, ASM: tl.constexpr):
    """The lower and the upper codes of bytes, each as 16 times its value."""
    if ASM:
        low, high = tl.inline_asm_elementwise(
            "shl.b32 $0, $2, 4; and.b32 $0, $0, 0xF0F0F0F0; and.b32 $1, $2, 0xF0F0F0F0;",
            "=&r,=r,r", [packed], dtype=(tl.int8, tl.int8), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low = packed << 4
        high = packed & -16
    return low, high


@triton.jit
def _behind(a, b):
    """The columns of one tile, then those of another."""
    return tl.reshape(tl.permute(tl.join(a, b), (0, 2, 1)), (a.shape[0], 2 * a.shape[1]))


@triton.jit
def _block(
    weight, at, piece, block, step, column, N, K,
    BITS: tl.constexpr, EVEN_K: tl.constexpr, ASM: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """The codes of the ``piece``-th block of a step, with 4 bits as 16 times their values."""
    if TMA:
        packed = weight.load([(block + piece) * N + column, 0])
    elif EVEN_K:
        packed = tl.load(at + piece * step)
    else:
        packed = tl.load(at + piece * step, mask=(block + piece) * 128 < K, other=0)
    codes = packed
    if BITS == 4:
        low, high = _halves(packed, ASM)
        codes = _behind(low, high)
    return codes


@triton.jit
def _prefetch(weight, first, last, column, N, BN: tl.constexpr, BYTES: tl.constexpr):
    """Ask for a program's part of the weight in L2: one instruction of one thread for each block."""
    step = N.to(tl.int64) * BYTES
    size = tl.minimum(N - column, BN) * BYTES
    for block in range(first, last):
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .u32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; "
            "@p cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0; }",
            "=r,l,r", [weight + block * step + column.to(tl.int64) * BYTES, size], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def _sums(
    x, weight, row, column, rows, columns, first, last, M, N, K,
    BITS: tl.constexpr, FLOAT: tl.constexpr, EVEN_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    UNROLL: tl.constexpr, STAGES: tl.constexpr, ASM: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """The sums of a tile over some steps of ``UNROLL`` blocks each, 1, 2 or 4."""
    BYTES: tl.constexpr = 16 * BITS
    FEW: tl.constexpr = BM <= 64
    known = rows < M
    inner = tl.arange(0, 128 * UNROLL)
    step = N.to(tl.int64) * BYTES
    w_at, x_at = weight, x
    if not TMA:
        w_rows = tl.where(columns < N, columns, 0)  # rows outside are calculated and dropped
        w_at += (first * UNROLL) * step + w_rows[:, None] * BYTES + tl.arange(0, BYTES)[None, :]
        x_rows = rows if FEW else tl.where(known, rows, 0)
        x_at += x_rows.to(tl.int64)[:, None] * K + first * (UNROLL * 128) + inner[None, :]
    acc = tl.zeros((BN, BM), dtype=tl.float32 if FLOAT else tl.int32)
    for index in tl.range(first, last, num_stages=STAGES):
        block = index * UNROLL
        if TMA:
            v = x.load([row, block * 128])
        elif not EVEN_K:
            v = tl.load(x_at, mask=known[:, None] & (inner[None, :] < K - block * 128), other=0)
        elif FEW:
            v = tl.load(x_at, mask=known[:, None], other=0)
        else:
            v = tl.load(x_at)
        codes = _block(weight, w_at, 0, block, step, column, N, K, BITS, EVEN_K, ASM, TMA)
        if UNROLL >= 2:
            second = _block(weight, w_at, 1, block, step, column, N, K, BITS, EVEN_K, ASM, TMA)
            codes = _behind(codes, second)
        if UNROLL == 4:
            third = _block(weight, w_at, 2, block, step, column, N, K, BITS, EVEN_K, ASM, TMA)
            fourth = _block(weight, w_at, 3, block, step, column, N, K, BITS, EVEN_K, ASM, TMA)
            codes = _behind(codes, _behind(third, fourth))
        if FLOAT:
            acc = tl.dot(codes.to(v.dtype), v.T, acc, out_dtype=tl.float32)
        else:
            acc = tl.dot(codes, v.T, acc, out_dtype=tl.int32)
        if not TMA:
            w_at += UNROLL * step
            x_at += UNROLL * 128
    return acc
