# pyright: basic, reportMissingImports=false, reportGeneralTypeIssues=false, reportAssignmentType=false
"""The matrix product of integer activations with packed weights, in Triton.

The kernel calculates ``W x^T``, not ``x W^T``: with the weight as the left operand the unpacked 4-bit codes
stay in registers (the register form of wgmma on Hopper) and need no shared memory. With up to 8 rows of ``x``
in a tile the same code becomes ``mma.sync`` with the weights on its 16-row side.

The summed dimension is split over programs where there are too few tiles for the chip. The parts meet in
int32 atomic additions, which are exact in any order; the last program of a tile to arrive writes the output.
Sums of up to 8 rows of 4-bit weights count the parts in their highest bits: an addition returns the old
value, so the program that adds the last part to a number writes it, and none waits. (More rows lose this gain
by longer additions.) ``work`` (sums, then a counter for each tile) must hold zeros; the kernel of the
activations writes them.

The memory takes neighbouring additions of a warp at once. Where Triton knows that four neighbours start at a
multiple of 16 bytes, it gives them to one thread, as for loads, but adds them one after the other, each
beside those of other threads 16 bytes away. So more than 8 rows are added from an address whose alignment it
does not know, which takes 2 to 3 microseconds less for 51 rows in 8 parts. (Additions that count, of fewer
rows, gain nothing.)

With ``PDL`` the launch may start before its predecessor is done. Before the wait it touches only weights and
fetches them into L2, so that the transform of few rows hides behind traffic that this kernel waits for
anyway. That pays behind a transform of ten microseconds and costs behind one of three, whose reads it delays.
``PDL`` - 1 is the number of fetched steps: all (-1) to none, which still saves a launch's time. After the
wait the next transform may start; it waits for this output before it reads anything. (Not where scales are
static: the many programs of those transforms would spread unevenly.) An earlier or later start is slower
where that transform has more than one program, for the same reason.

Where the output is to be rotated back, a tile has whole blocks of its rows, and each is multiplied by its
matrix in float32 before it is written. Matrices and scales are loaded before the sum.

Tried and slower on an H200: the transform of one row in every program of its product, in place of a launch
before it; blocks of the summed dimension in different warps, in place of a split; tiles larger than 128 by
128, which leave a multiprocessor one program with nothing to cover its waits; equal shares of all steps for
each program, whose sums meet in memory; other first steps for other programs.

The interpreter knows no inline assembler and no bfloat16 arithmetic; ``ASM`` is off there.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor as TensorDescriptor

from .sums import _prefetch, _sums


@triton.jit
def _matrices(turn, start, N, B: tl.constexpr, BN: tl.constexpr):
    """The transposed matrices of a tile's blocks of ``B`` columns."""
    inner = tl.arange(0, B)
    if BN == B:
        found = tl.load(turn + start // B * (B * B) + inner[None, :] * B + inner[:, None])
    else:
        block = start // B + tl.arange(0, BN // B)
        at = turn + block[:, None, None] * (B * B) + inner[None, None, :] * B + inner[None, :, None]
        found = tl.load(at, mask=(block * B < N)[:, None, None], other=0.0)
    return found


@triton.jit
def _restore(y, matrices, B: tl.constexpr):
    """Each block of ``B`` columns of the output times its matrix. ``y`` is (columns, rows)."""
    BN: tl.constexpr = y.shape[0]
    BM: tl.constexpr = y.shape[1]
    matrices = matrices.to(tl.float32)
    if BN == B:
        y = tl.dot(matrices, y, input_precision="ieee", out_dtype=tl.float32)
    else:
        y = tl.reshape(y, (BN // B, B, BM))
        y = tl.dot(matrices, y, input_precision="ieee", out_dtype=tl.float32)
        y = tl.reshape(y, (BN, BM))
    return y


@triton.jit
def _each(values, at, COUNT, LOADED: tl.constexpr):
    """A value for each row or column, loaded now unless it already is."""
    found = values
    if not LOADED:
        found = tl.load(values + at, mask=at < COUNT, other=0)
    return found


@triton.jit
def _write(
    acc, out, x_scale, x_zero, x_sum, factor, w_zero, w_sum, matrices, bias, rows, columns, inside, M,
    N, K, FEATURES,
    X_SCALE: tl.constexpr, X_ZERO: tl.constexpr, W_ZERO: tl.constexpr, BIAS: tl.constexpr,
    RAW: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """Sums to outputs. ``acc`` is (columns of the output, rows of the output)."""
    EARLY: tl.constexpr = acc.shape[1] <= 32
    inside = inside & (columns < FEATURES)[:, None]
    place = out + rows.to(tl.int64)[None, :] * FEATURES + columns[:, None]
    if RAW:
        tl.store(place, acc, mask=inside)
    else:
        if X_ZERO:
            x_zero = _each(x_zero, rows, M, EARLY)
            acc -= _each(w_sum, columns, N, EARLY)[:, None] * x_zero[None, :]
        if W_ZERO:
            x_sum = _each(x_sum, rows, M, EARLY)
            if X_ZERO:
                x_sum -= K * x_zero
            acc -= _each(w_zero, columns, N, EARLY).to(acc.dtype)[:, None] * x_sum[None, :]
        y = acc.to(tl.float32)
        if X_SCALE:
            y = y * _each(x_scale, rows, M, EARLY)[None, :]
        y = y * factor[:, None]
        if TURN > 0:
            y = _restore(y, matrices, TURN)
        if BIAS:
            y += _each(bias, columns, FEATURES, EARLY).to(tl.float32)[:, None]
        tl.store(place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _tile(
    x, x_scale, x_zero, x_sum, weight, w_scale, w_zero, w_sum, turn, bias, out, work, counter, row, column,
    part, parts, M, N, K, FEATURES,
    BITS: tl.constexpr, FLOAT: tl.constexpr, X_SCALE: tl.constexpr, X_ZERO: tl.constexpr,
    W_ZERO: tl.constexpr, BIAS: tl.constexpr, RAW: tl.constexpr, TURN: tl.constexpr,
    EVEN_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, ASM: tl.constexpr, PDL: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """A tile from ``row`` and ``column`` of the output on, over one of ``parts`` parts of K."""
    BYTES: tl.constexpr = 16 * BITS  # of a row in a block of 128 columns
    rows = row + tl.arange(0, BM)
    columns = column + tl.arange(0, BN)
    steps = tl.cdiv(tl.cdiv(K, 128), UNROLL)
    share = tl.cdiv(steps, parts)
    first = part * share
    last = tl.minimum(first + share, steps)
    if PDL != 0 and PDL != 1:
        reach = (last if PDL < 0 else tl.minimum(last, first + PDL - 1)) * UNROLL
        _prefetch(weight, first * UNROLL, tl.minimum(reach, tl.cdiv(K, 128)), column, N, BN, BYTES)
    # Values of rows and columns are loaded early, so that the end does not wait for them.
    factor = tl.load(w_scale + columns, mask=columns < N, other=0.0)
    matrices = factor
    if TURN > 0:
        matrices = _matrices(turn, column, N, TURN, BN)
    EARLY: tl.constexpr = BM <= 32  # more would not fit registers beside the sums
    if EARLY:
        if X_ZERO:
            w_sum = _each(w_sum, columns, N, False)
        if W_ZERO:
            w_zero = _each(w_zero, columns, N, False)
        if BIAS:
            bias = _each(bias, columns, FEATURES, False)
    if PDL != 0:
        gdc_wait()
        if X_SCALE:
            gdc_launch_dependents()
    if EARLY:
        if X_SCALE:
            x_scale = _each(x_scale, rows, M, False)
        if X_ZERO:
            x_zero = _each(x_zero, rows, M, False)
        if W_ZERO:
            x_sum = _each(x_sum, rows, M, False)

    acc = _sums(
        x, weight, row, column, rows, columns, first, last, M, N, K, BITS, FLOAT, EVEN_K, BM, BN, UNROLL,
        STAGES, ASM, TMA,
    )  # fmt: skip
    if BITS == 4:
        acc = acc * 0.0625 if FLOAT else acc >> 4

    inside = (columns < N)[:, None] & (rows < M)[None, :]
    if not SPLIT:
        _write(
            acc, out, x_scale, x_zero, x_sum, factor, w_zero, w_sum, matrices, bias, rows, columns, inside,
            M, N, K, FEATURES, X_SCALE, X_ZERO, W_ZERO, BIAS, RAW, TURN,
        )  # fmt: skip
    elif BM <= 8 and BITS == 4 and TURN == 0:  # sums are below 2^26: five bits are left to count 32 parts
        sums = work + rows.to(tl.int64)[None, :] * N + columns[:, None]
        acc += 1 << 27
        acc += tl.atomic_add(sums, acc, mask=inside, sem="relaxed")
        here = ((acc + (1 << 26)).to(tl.uint32, bitcast=True) >> 27) == (parts & 31).to(tl.uint32)
        _write(
            acc - (parts << 27), out, x_scale, x_zero, x_sum, factor, w_zero, w_sum, matrices, bias, rows,
            columns, inside & here, M, N, K, FEATURES, X_SCALE, X_ZERO, W_ZERO, BIAS, RAW, TURN,
        )  # fmt: skip
    else:
        sums = work + rows.to(tl.int64)[None, :] * N + columns[:, None]
        tl.atomic_add(sums + tl.program_id(2), acc, mask=inside, sem="relaxed")  # 0, for all it knows
        tl.debug_barrier()  # all threads' additions come before the count
        if tl.atomic_add(counter, 1, sem="acq_rel") == parts - 1:
            acc = tl.load(sums, mask=inside, other=0, cache_modifier=".cg")
            _write(
                acc, out, x_scale, x_zero, x_sum, factor, w_zero, w_sum, matrices, bias, rows, columns,
                inside, M, N, K, FEATURES, X_SCALE, X_ZERO, W_ZERO, BIAS, RAW, TURN,
            )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def product(
    x, rest, x_scale, x_zero, x_sum, weight, w_scale, w_zero, w_sum, turn, bias, out, work, M, N, K, FEATURES,
    TAIL: tl.constexpr,
    BITS: tl.constexpr, FLOAT: tl.constexpr, X_SCALE: tl.constexpr, X_ZERO: tl.constexpr,
    W_ZERO: tl.constexpr, BIAS: tl.constexpr, RAW: tl.constexpr, TURN: tl.constexpr,
    EVEN_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, ASM: tl.constexpr, PDL: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """One weight: a program for each tile and part.

    With ``TAIL`` tiles of the last rows come last, and are smaller where so few rows are left.
    """
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    row, column = (tile % tiles_m) * BM, (tile // tiles_m) * BN
    few = False
    if TAIL > 0:
        whole = M // BM
        before = whole * (tl.num_programs(0) // tiles_m)
        late, span = tile >= before, tl.maximum(whole, 1)
        row = tl.where(late, whole, tile % span) * BM
        column = tl.where(late, tile - before, tile // span) * BN
        few = late & (M - whole * BM <= TAIL)
    counter = work
    if SPLIT:
        counter = work + M.to(tl.int64) * N + tile
    if TAIL > 0 and few:
        _tile(
            rest, x_scale, x_zero, x_sum, weight, w_scale, w_zero, w_sum, turn, bias, out, work, counter, row,
            column, tl.program_id(1), tl.num_programs(1), M, N, K, FEATURES,
            BITS, FLOAT, X_SCALE, X_ZERO, W_ZERO, BIAS, RAW, TURN, EVEN_K, TAIL, BN, UNROLL, SPLIT,
            STAGES, ASM, PDL, TMA,
        )  # fmt: skip
    else:
        _tile(
            x, x_scale, x_zero, x_sum, weight, w_scale, w_zero, w_sum, turn, bias, out, work, counter, row,
            column, tl.program_id(1), tl.num_programs(1), M, N, K, FEATURES,
            BITS, FLOAT, X_SCALE, X_ZERO, W_ZERO, BIAS, RAW, TURN, EVEN_K, BM, BN, UNROLL, SPLIT,
            STAGES, ASM, PDL, TMA,
        )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def products(
    x, x_scale, x_zero, x_sum, weight_0, w_scale_0, w_zero_0, w_sum_0, turn_0, bias_0, out_0, weight_1,
    w_scale_1, w_zero_1, w_sum_1, turn_1, bias_1, out_1, weight_2, w_scale_2, w_zero_2, w_sum_2, turn_2,
    bias_2, out_2, work, M, N_0, N_1, N_2, K, FEATURES_0, FEATURES_1, FEATURES_2, COUNT: tl.constexpr,
    SEPARATE: tl.constexpr,
    BITS: tl.constexpr, FLOAT: tl.constexpr, X_SCALE: tl.constexpr, X_ZERO: tl.constexpr,
    W_ZERO: tl.constexpr, BIAS: tl.constexpr, RAW: tl.constexpr, TURN: tl.constexpr,
    EVEN_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
    SPLIT: tl.constexpr, STAGES: tl.constexpr, ASM: tl.constexpr, PDL: tl.constexpr,
    TMA: tl.constexpr,
):  # fmt: skip
    """Two or three weights for the same rows: each program works out whose tile it has."""
    tile = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    column = tile // tiles_m
    weight, w_scale, w_zero, w_sum, bias, out = weight_0, w_scale_0, w_zero_0, w_sum_0, bias_0, out_0
    turn, FEATURES, member = turn_0, FEATURES_0, 0
    N, before, total, start = N_0, 0, N_0 + N_1, tl.cdiv(N_0, BN)

    here = column >= start
    weight, w_scale = tl.where(here, weight_1, weight), tl.where(here, w_scale_1, w_scale)
    w_sum, out = tl.where(here, w_sum_1, w_sum), tl.where(here, out_1, out)
    if W_ZERO:
        w_zero = tl.where(here, w_zero_1, w_zero)
    if BIAS:
        bias = tl.where(here, bias_1, bias)
    if TURN > 0:
        turn = tl.where(here, turn_1, turn)
    FEATURES, member = tl.where(here, FEATURES_1, FEATURES), tl.where(here, 1, member)
    N, before = tl.where(here, N_1, N), tl.where(here, N_0, 0)
    offset = tl.where(here, start, 0)
    if COUNT == 3:
        start += tl.cdiv(N_1, BN)
        here = column >= start
        weight, w_scale = tl.where(here, weight_2, weight), tl.where(here, w_scale_2, w_scale)
        w_sum, out = tl.where(here, w_sum_2, w_sum), tl.where(here, out_2, out)
        if W_ZERO:
            w_zero = tl.where(here, w_zero_2, w_zero)
        if BIAS:
            bias = tl.where(here, bias_2, bias)
        if TURN > 0:
            turn = tl.where(here, turn_2, turn)
        FEATURES, member = tl.where(here, FEATURES_2, FEATURES), tl.where(here, 2, member)
        N, before = tl.where(here, N_2, N), tl.where(here, N_0 + N_1, before)
        offset = tl.where(here, start, offset)
        total += N_2
    if SEPARATE:
        x += member.to(tl.int64) * M * K
    counter = work
    if SPLIT:
        counter = work + M.to(tl.int64) * total + tile
        work += M.to(tl.int64) * before
    _tile(
        x, x_scale, x_zero, x_sum, weight, w_scale, w_zero, w_sum, turn, bias, out, work, counter,
        (tile % tiles_m) * BM, (column - offset) * BN, tl.program_id(1), tl.num_programs(1),
        M, N, K, FEATURES,
        BITS, FLOAT, X_SCALE, X_ZERO, W_ZERO, BIAS, RAW, TURN, EVEN_K, BM, BN, UNROLL, SPLIT,
        STAGES, ASM, PDL, TMA,
    )  # fmt: skip
