# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false, reportAssignmentType=false
"""Transforming and quantizing wide rows one at a time, for rows that need nothing else.

``jit_transform.shared`` does the same for any width and any rotations. A row of 16384 channels fills a
multiprocessor: 64 KB of float32 go through shared memory to be permuted, next to two matrices of 32 KB. So a
program is alone, and nothing covers its waits.

The matrix is the left operand, ``R^T V^T``, so both parts of a number go to shared memory and not to
registers. The product leaves eight rows beside each other, which writes to all banks. Where a program has
several rows, matrices stay in shared memory, the next row is on its way there, and the permutation stays in
registers, two places in each, turned to addresses once. Otherwise all are read when they are needed, during
the first product.

Of 9,500 cycles for a row of 16384 channels, the three products take 3,000, the permutation 2,400 (permuted
numbers are read from random banks), the range 1,200 and codes 1,500.

Tried and no faster on an H200: two programs for a multiprocessor with 128 registers each, which overlap, but
read their matrices again for each row; saturating codes by a multiplication; and the second and third launch
of ``jit_spread`` as one, whose programs meet at a counter in memory (1.5 microseconds more).
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .transform import SYMMETRIC, _clear, _code, _step


@triton.jit
def _places(source, B: tl.constexpr, STEP: tl.constexpr):
    """Where a product of shape ``(B, rows)`` leaves a channel: eight rows beside each other, then ``B``."""
    within = (source & (B - 1)) << 3
    return (source & -(8 * B)) | within | ((source >> STEP) & 7)


@triton.jit
def _parts(v, EXACT: tl.constexpr):
    """Numbers as bfloat16, and their rests, converted two at once."""
    if EXACT:
        high, low = v, v * 0.0
    else:
        high, low = tl.inline_asm_elementwise(
            "{ .reg .f32 a, b; .reg .b32 c; cvt.rn.bf16x2.f32 $0, $3, $2; shl.b32 c, $0, 16; mov.b32 a, c; "
            "and.b32 c, $0, 0xffff0000; mov.b32 b, c; sub.f32 a, $2, a; sub.f32 b, $3, b; "
            "cvt.rn.bf16x2.f32 $1, b, a; }",
            "=&r,=r,f,f", [v], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=2,
        )  # fmt: skip
    return high, low


@triton.jit
def _turn(matrix, v, EXACT: tl.constexpr):
    """A matrix times the transpose of rows."""
    if EXACT:
        y = tl.dot(matrix.to(tl.float32), tl.trans(v.to(tl.float32)), input_precision="ieee")
    else:
        y = tl.dot(matrix, tl.trans(v), out_dtype=tl.float32)
    return y


@triton.jit
def _both(packed, EXACT: tl.constexpr):
    """Places from pairs; the compiler must not know that they are the same for each row."""
    if EXACT:
        even, odd = packed & 0xFFFF, packed >> 16
    else:
        even, odd = tl.inline_asm_elementwise(
            "and.b32 $0, $2, 0xffff; shr.u32 $1, $2, 16;", "=&r,=r,r", [packed],
            dtype=(tl.int32, tl.int32), is_pure=False, pack=1,
        )  # fmt: skip
    return tl.reshape(tl.join(even, odd), (2 * packed.shape[0],))


@triton.jit
def _further(a, b, c, d):
    return tl.maximum(a, c), tl.minimum(b, d)


@triton.jit
def _bytes(v, s, z, EXACT: tl.constexpr):
    """Codes from -128 to 127, and numbers whose sum is theirs."""
    factor = tl.div_rn(s * 0.0 + 1.0, s)[:, None]
    if EXACT:
        parts = _code(v, factor, z[:, None], -128, 127)
        codes = parts.to(tl.int8)
    else:  # conversions saturate for two numbers at once, and one instruction adds four codes
        bits = tl.maximum((v * factor + 12582912.0).to(tl.int32, bitcast=True), 0)
        codes, parts = tl.inline_asm_elementwise(
            "{ .reg .b32 t; cvt.pack.sat.s8.s32.b32 t, $8, $7, 0; cvt.pack.sat.s8.s32.b32 $0, $6, $5, t; "
            "dp4a.s32.s32 $1, $0, 0x01010101, 0; mov.b32 $2, 0; mov.b32 $3, 0; mov.b32 $4, 0; }",
            "=&r,=r,=r,=r,=r,r,r,r,r", [bits + (z - 0x4B400000)[:, None]],
            dtype=(tl.int8, tl.int32), is_pure=True, pack=4,
        )  # fmt: skip
    return codes, parts


@triton.jit(do_not_specialize=["M", "COUNT"])
def held(
    x, r1, order, r2, q, scale, zero, total, work, M, COUNT, K, clip,
    B: tl.constexpr, STEP: tl.constexpr, NB: tl.constexpr, MODE: tl.constexpr, MANY: tl.constexpr,
    EXACT: tl.constexpr, WAIT: tl.constexpr, PDL: tl.constexpr, ZERO: tl.constexpr,
):  # fmt: skip
    """Rotate, permute, rotate and quantize rows of ``NB`` blocks of ``B`` channels to 8 bits.

    With ``MANY`` a program has several rows; else matrices and permutation are read when they are needed.
    """
    if WAIT:
        gdc_wait()
    if PDL:
        gdc_launch_dependents()
    program, programs = tl.program_id(0), tl.num_programs(0)
    _clear(work, COUNT, program, programs)
    inner = tl.arange(0, B)
    turned = inner[:, None] + inner[None, :] * B
    channel = tl.arange(0, NB * B)
    blocks = tl.arange(0, NB)[:, None] * B + inner[None, :]
    if MANY:
        first = tl.load(r1 + turned)
        second = tl.load(r2 + turned)
        even, odd = tl.split(
            tl.reshape(_places(tl.load(order + channel).to(tl.int32), B, STEP), (NB * B // 2, 2))
        )
        packed = even | (odd << 16)
    for start in tl.range(program, M, programs, num_stages=2 if MANY else 1):
        token = start + tl.arange(0, 1)
        row = token.to(tl.int64)[:, None] * K
        v = tl.load(x + row + blocks)
        if not MANY:
            first = tl.load(r1 + turned)
        y = _turn(first, v, EXACT)
        if MANY:
            source = _both(packed, EXACT)
        else:
            taken = tl.load(order + channel).to(tl.int32)
            source = _places(taken, B, STEP)
        y = tl.reshape(tl.permute(tl.reshape(y, (B, NB // 8, 8)), (1, 0, 2)), (NB * B,))
        if not MANY:
            second = tl.load(r2 + turned)  # before the gather, whose barriers hold loads back
        high, low = _parts(tl.reshape(tl.gather(y, source, 0), (NB, B)), EXACT)
        y = _turn(second, high, EXACT)
        if not EXACT:
            y = tl.dot(second, tl.trans(low), y, out_dtype=tl.float32)
        y = tl.reshape(tl.trans(y), (1, NB * B))
        if MODE == SYMMETRIC:
            most = tl.max(tl.abs(y), 1)
            least = -most
        elif EXACT:
            most, least = tl.max(y, 1), tl.min(y, 1)
        else:
            most, least = tl.reduce((y, y), 1, _further)
        s, z = _step(tl.maximum(most, 0.0) * clip, tl.minimum(least, 0.0) * clip, MODE, -128, 127)
        codes, parts = _bytes(y, s, z, EXACT)
        tl.store(q + row + channel[None, :], codes)
        tl.store(scale + token, s)
        if ZERO:
            tl.store(zero + token, z)
        tl.store(total + token, tl.sum(parts, 1))
