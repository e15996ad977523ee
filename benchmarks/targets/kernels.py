# pyright: basic, reportArgumentType=false
"""Blocks of a language model whose norms and gates are kernels of Triton, between products of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from .place import frozen, place

BLOCKS, WIDTH, WIDE = 24, 1024, 2816
SMALL = 2, 64, 128


@triton.jit
def norm_rows(x, weight, out, n, epsilon, block: tl.constexpr):
    """Each program divides a row by its root mean square."""
    at = tl.arange(0, block)
    inside = at < n
    start = tl.program_id(0) * n
    row = tl.load(x + start + at, inside, other=0.0).to(tl.float32)
    scaled = row * tl.rsqrt(tl.sum(row * row, 0) / n + epsilon) * tl.load(weight + at, inside, other=0.0)
    tl.store(out + start + at, scaled.to(out.dtype.element_ty), inside)


@triton.jit
def gate_values(gate, value, out, n, block: tl.constexpr):
    """``silu(gate) * value``, element by element."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    x = tl.load(gate + at, inside, other=0.0).to(tl.float32)
    y = tl.load(value + at, inside, other=0.0).to(tl.float32)
    tl.store(out + at, (x * tl.sigmoid(x) * y).to(out.dtype.element_ty), inside)


class GatedBlock(nn.Module):
    """A norm and a gated network, with a shortcut around both."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.gate = nn.Linear(width, wide, bias=False)
        self.up = nn.Linear(width, wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of a tensor shaped ``(tokens, width)``."""
        tokens, width = x.shape
        normed = torch.empty_like(x)
        norm_rows[(tokens,)](x, self.weight, normed, width, 1e-6, block=triton.next_power_of_2(width))
        gate, value = self.gate(normed), self.up(normed)
        gated = torch.empty_like(gate)
        gate_values[lambda meta: (triton.cdiv(gate.numel(), meta["block"]),)](
            gate, value, gated, gate.numel(), block=1024
        )
        return x + self.down(gated)


def build(small: bool = False, device: str | None = None) -> Any:
    """24 blocks for four tokens, as in a decoding step; their attention is left out."""
    at = place(device, small)
    count, width, wide = SMALL if small else (BLOCKS, WIDTH, WIDE)
    model = nn.Sequential(*[GatedBlock(width, wide) for _ in range(count)])
    return frozen(model, at), (at.randn(4, width),), {}
