"""Elements that show what a kernel does otherwise than the operator whose place it is to take.

Zeros with signs, infinities, NaN, the smallest and the largest numbers and their neighbours, ties, all
exponents; and sums whose order shows. They are the same in each process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from .body import bits_of
from .rows import RowOrder

FEW = 1 << 16
"""Elements of one trial; all values of 16 bits."""
HOSTILE = ("any bits", "all exponents", "special ones among others", "too small to be normal", "sums")
"""Kinds of elements for tensors of any shape; see :func:`hostile_like`."""
ORDINARY = "ordinary"
"""A kind that is not hostile: normally distributed, so that no few of them make out a sum."""
_RARE = 64
"""Of so many elements one is special, where most are not: infinities in a row leave little else of it."""


def hard(types: tuple[torch.dtype, ...], seed: int = 0) -> Iterator[torch.Tensor]:
    """Elements for each operand: all pairs of special ones, then any bits, then neighbours of one another."""
    generator = torch.Generator().manual_seed(seed)
    first: torch.Tensor | None = None
    for number, dtype in enumerate(types):
        found = _any_bits(dtype, generator)
        if seed and dtype.is_floating_point:
            found[FEW // 2 :] = _ordinary(dtype, FEW // 2, generator)
        special = _special(dtype)
        side = 1 << 7
        special = special.repeat(-(-side // len(special)))[:side]
        pairs = special.repeat_interleave(side) if number % 2 else special.repeat(side)
        found[: side * side] = pairs
        if first is not None and first.dtype is dtype:
            near = slice(side * side, 2 * side * side)
            found[near] = _neighbours(first[near], generator)
        first = found if first is None else first
        yield found


def hard_rows(order: RowOrder, trial: int) -> torch.Tensor:
    """A matrix whose rows have other sums in another order; some with signed zeros, infinities and NaN."""
    shape = (order.rows, order.columns)
    generator = torch.Generator().manual_seed(trial)
    found = torch.randn(shape, generator=generator)
    if trial % 2:
        found *= torch.randint(-12, 13, shape, generator=generator).float().exp2()
    if trial % 4 == 2:
        special = _special(torch.float32)
        rows = torch.arange(0, order.rows, 3)
        at = torch.randint(order.columns, (len(rows),), generator=generator)
        found[rows, at] = special[(rows + trial) % len(special)]
        found[-1] = -0.0
    return found


def _any_bits(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.randint(2, (FEW,), generator=generator).to(torch.bool)
    halves = torch.randint(-(1 << 31), 1 << 31, (2, FEW), generator=generator)
    bits = (halves[0] << 32) ^ (halves[1] & 0xFFFFFFFF)
    return bits.to(bits_of(dtype)).view(dtype)


def _special(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point:
        bounds = torch.iinfo(dtype)
        values = [0, 1, 2, 3, 7, 64, 100, bounds.max, bounds.max - 1, bounds.min, bounds.min + 1]
        return torch.tensor([*values, *([-1, -2, -100] if bounds.min else [])], dtype=dtype)
    limits = torch.finfo(dtype)
    base = [0.0, 1.0, 2.0, 3.0, 0.5, 1 / 3, 0.1, 7.0, 100.0, 65504.0, 1e-3, 88.0, 104.0, 20.0, float("inf")]
    base += [limits.max, limits.tiny, limits.smallest_normal, limits.eps, 1 + limits.eps, 1 - limits.eps / 2]
    base += [limits.tiny * limits.eps, limits.tiny * 3 * limits.eps, limits.tiny * 0.5, limits.max / 2]
    values = torch.tensor(base, dtype=torch.float64).to(dtype)
    return torch.cat([values, -values, torch.tensor([float("nan")], dtype=dtype)])


def _neighbours(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same elements, or ones a few bits beside them."""
    if values.dtype is torch.bool:
        return values
    whole = bits_of(values.dtype)
    by = torch.randint(-2, 3, values.shape, generator=generator).to(whole)
    return (values.view(whole) + by).view(values.dtype)


def _ordinary(dtype: torch.dtype, count: int, generator: torch.Generator) -> torch.Tensor:
    """Elements as calls have them, from the small to the large."""
    size = torch.randint(-6, 5, (count,), generator=generator).double().exp2()
    return (torch.randn(count, generator=generator, dtype=torch.float64) * size).to(dtype)


def hostile_like(tensor: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    """A tensor that lies as one of real numbers does, with other elements.

    Args:
        seed: Another one gives others.
    """
    reach = sum([(size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)])
    offset, count = tensor.storage_offset(), reach + 1 if tensor.numel() else 0
    found = tensor.new_empty(offset + count)
    found[offset:] = _Drawn(tensor.dtype, count, tensor.device, seed).of_kind(kind)
    return found.as_strided(tensor.shape, tensor.stride(), offset)


class _Drawn:
    """Random elements, made where they are needed."""

    def __init__(self, dtype: torch.dtype, count: int, device: torch.device, seed: int) -> None:
        self._dtype = dtype
        self._count = count
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def of_kind(self, kind: str) -> torch.Tensor:
        """Elements of one kind."""
        dtype, limits = self._dtype, torch.finfo(self._dtype)
        if kind == ORDINARY:
            return self._normal().to(dtype)
        signs = self._whole(0, 2).double() * 2 - 1
        if kind == HOSTILE[0]:
            high, low = self._whole(-(1 << 31), 1 << 31), self._whole(0, 1 << 32)
            return ((high << 32) ^ low).to(bits_of(dtype)).view(dtype)
        if kind == HOSTILE[1]:
            sizes = self._whole(int(math.log2(limits.tiny)), int(math.log2(limits.max)))
            mantissas = 1 + torch.rand(self._count, generator=self._generator, device=self._device)
            return (mantissas.double() * signs * sizes.double().exp2()).to(dtype)
        if kind == HOSTILE[2]:
            special = _special(dtype).to(self._device)
            return torch.where(
                self._whole(0, _RARE) == 0, special[self._whole(0, len(special))], self._normal().to(dtype)
            )
        if kind == HOSTILE[3]:
            return (self._whole(0, 4).double() * signs * limits.tiny * limits.eps).to(dtype)
        return (self._normal() * self._whole(-12, 13).double().exp2()).to(dtype)

    def _whole(self, low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, (self._count,), generator=self._generator, device=self._device)

    def _normal(self) -> torch.Tensor:
        return torch.randn(self._count, generator=self._generator, device=self._device).double()
