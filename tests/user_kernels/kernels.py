"""Kernels of Triton as programs launch them, and the functions by which they do."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def add(x, y, out, n, scale, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n) * scale, at < n)


@triton.jit
def add_into(x, y, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.jit
def activate(x, out, n, kind: tl.constexpr, bias, block: tl.constexpr = 16):
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, at < n)
    if bias is not None:
        value += tl.load(bias + at, at < n)
    value = value * 2 if kind == "double" else tl.where(value > 0, value, 0.0)
    tl.store(out + at, value, at < n)


@triton.jit
def row_sums(x, out, stride, columns, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    value = tl.load(x + row * stride + at, at < columns, other=0.0)
    tl.store(out + row, tl.sum(value, 0))


@triton.jit
def count(x, total, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(total, tl.sum(tl.where(tl.load(x + at, at < n, other=0.0) > 0, 1.0, 0.0), 0))


def measure(call, quantiles):
    """Runs a kernel as a benchmark would; there is nothing to measure where it is interpreted."""
    call()
    return [1.0 for _ in quantiles]


@triton.autotune(
    configs=[triton.Config({"block": 16}), triton.Config({"block": 32})], key=["n"], do_bench=measure
)
@triton.jit
def tuned(x, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, at < n) + 1, at < n)


@triton.heuristics({"block": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def fitted(x, out, n, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, at < n) * 3, at < n)


@triton.jit
def hooked(x, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at, at < n) + 1, at < n)


HOOKS: list[int] = []
hooked.add_pre_run_hook(lambda *args, **named: HOOKS.append(1))


def blocks(n: int) -> Any:
    """A grid that asks for the size of a block."""
    return lambda meta: (triton.cdiv(n, meta["block"]),)


def added(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
    """``x + y * scale``."""
    out = torch.empty_like(x)
    add[blocks(x.numel())](x, y, out, x.numel(), scale, block=16)
    return out


def add_in_place(x: Tensor, y: Tensor) -> None:
    """``x += y``."""
    add_into[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), block=16)


def activated(x: Tensor, kind: str = "double", bias: Tensor | None = None) -> Tensor:
    """Twice the values, or the positive ones."""
    out = torch.empty_like(x)
    activate[blocks(x.numel()) if kind == "double" else (triton.cdiv(x.numel(), 16), 1)](
        x, out, n=x.numel(), kind=kind, bias=bias
    )
    return out


def summed(x: Tensor) -> Tensor:
    """The sum of each row."""
    out = x.new_empty(x.shape[0])
    row_sums[(x.shape[0],)](x, out, x.stride(0), x.shape[1], block=triton.next_power_of_2(x.shape[1]))
    return out


def counted(x: Tensor) -> Tensor:
    """How many values are positive."""
    total = x.new_zeros(1)
    count[(1,)](x, total, x.numel(), block=triton.next_power_of_2(x.numel()))
    return total


class Added(torch.autograd.Function):
    """``x + y * scale`` with gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(y)
        ctx.scale = scale
        return added(x, y, scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        return grad, added(torch.zeros_like(grad), grad.contiguous(), ctx.scale), None


FACTOR = tl.constexpr(3)


@triton.jit
def multiply(x, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + at, tl.load(x + at, at < n) * FACTOR, at < n)
