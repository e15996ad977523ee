"""Kernels that store to some of their pointers."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "table": "*i64", "n": "i32"}
"""The types of parameters, by their names."""


@triton.jit
def one_of_three(a, b, c, n, size: tl.constexpr):
    at = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(c + at, tl.load(a + at, at < n) + tl.load(b + at, at < n), at < n)


@triton.jit
def product(a, b, c, n, size: tl.constexpr):
    row = tl.arange(0, size)
    left, right = a + row[:, None] * n + row[None, :], b + row[:, None] * n + row[None, :]
    total = tl.zeros((size, size), dtype=tl.float32)
    for _ in range(0, n, size):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += size
        right += size * n
    tl.store(c + row[:, None] * n + row[None, :], total)


@triton.jit
def one_or_the_other(a, b, c, n, size: tl.constexpr):
    at = tl.arange(0, size)
    chosen = a + at if n > 3 else b + 2 * at
    tl.store(chosen, tl.load(c + at))


@triton.jit
def turns(a, b, n):
    one, other = a, b
    for _ in range(n):
        one, other = other, one
    tl.store(one, tl.load(other))


@triton.jit
def last_of_a_loop(a, b, n, size: tl.constexpr):
    at = b + tl.arange(0, size)
    for k in range(n):
        if k > 2:
            at += size
        tl.store(at, tl.load(a + tl.arange(0, size)))


@triton.jit
def added_to(a, b, n, size: tl.constexpr):
    at = tl.arange(0, size)
    tl.atomic_add(b + at, tl.load(a + at, at < n, other=0.0))


@triton.jit
def swapped_where_equal(a, b, n, size: tl.constexpr):
    at = tl.arange(0, size)
    tl.atomic_cas(b + n, tl.sum(tl.load(a + at)), 1.0)


@triton.jit
def none(a, n, size: tl.constexpr):
    tl.device_assert(tl.sum(tl.load(a + tl.arange(0, size))) > n)


@triton.jit
def numbers_as_pointers(table, n, size: tl.constexpr):
    to = tl.load(table + n).to(tl.pointer_type(tl.float32))
    tl.store(to + tl.arange(0, size), 0.0)


@triton.jit
def table_of_pointers(a, n, size: tl.constexpr):
    place = (a + n).to(tl.uint64, bitcast=True)
    tl.store(place.to(tl.pointer_type(tl.float32), bitcast=True) + tl.arange(0, size), 0.0)


@triton.jit(noinline=True)
def stored_elsewhere(a, size: tl.constexpr):
    tl.store(a + tl.arange(0, size), 0.0)


@triton.jit
def calls(a, b, n, size: tl.constexpr):
    stored_elsewhere(b, size)
    tl.store(a + n, 0.0)


@triton.jit
def assembly(a, n, size: tl.constexpr):
    at = (a + tl.arange(0, size)).to(tl.uint64, bitcast=True)
    tl.inline_asm_elementwise(
        "st.global.f32 [$1], 0f00000000; mov.u32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
    )
