"""Many gradients handed out as parts of one flat tensor: one copy at each replay instead of one for each.

The caller may keep any of them. Each has a version counter of its own, and all share the memory of the flat
tensor, which lives as long as one of them does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...program import parts_of

LEAST = 8
"""Gradients of one type from which packing pays: a copy costs the host about 6 us, a part about 2 us."""

LARGE = 1 << 22
"""Bytes from which a gradient stays alone: put together it is copied twice on the device, and kept twice. A
smaller one costs the host more, with memory of its own, than it spares the device."""

Gradients = tuple[torch.Tensor | None, ...]


class PackedGroup(NamedTuple):
    """Gradients that lie in one flat tensor: their positions, and empty tensors of their shapes."""

    positions: tuple[int, ...]
    shapes: list[torch.Tensor]


class Packing(NamedTuple):
    """Where gradients lie that were put together.

    Attributes:
        number: Of all gradients, missing ones too.
        alone: Positions of those that stay alone.
        groups: What lies in each flat tensor.
    """

    number: int
    alone: tuple[int, ...]
    groups: list[PackedGroup]


def pack(gradients: Gradients) -> tuple[list[torch.Tensor], list[torch.Tensor], Packing]:
    """The gradients that stay alone, flat tensors of those that go together, and where each lies."""
    alone = {position: gradient for position, gradient in enumerate(gradients) if gradient is not None}
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for position, gradient in alone.items():
        plain = gradient.layout is torch.strided and type(gradient) is torch.Tensor
        if plain and gradient.is_contiguous() and 0 < gradient.nbytes < LARGE:
            kinds.setdefault((gradient.dtype, gradient.device), []).append(position)
    flats: list[torch.Tensor] = []
    groups: list[PackedGroup] = []
    for positions in kinds.values():
        if len(positions) < LEAST:
            continue
        parts = [alone.pop(position) for position in positions]
        flats.append(torch.cat([part.view(-1) for part in parts]))
        groups.append(
            PackedGroup(tuple(positions), [torch.empty(part.shape, device="meta") for part in parts])
        )
    return list(alone.values()), flats, Packing(len(gradients), tuple(alone), groups)


def unpack(alone: list[torch.Tensor], flats: list[torch.Tensor], packing: Packing) -> Gradients:
    """Inverse of :func:`pack`, on copies of what it returned."""
    if len(flats) == 1 and len(packing.groups[0].positions) == packing.number:  # all lie in it, in order
        return tuple(parts_of(flats[0], packing.groups[0].shapes))
    found: list[torch.Tensor | None] = [None] * packing.number
    for position, gradient in zip(packing.alone, alone, strict=True):
        found[position] = gradient
    for flat, group in zip(flats, packing.groups, strict=True):
        for position, part in zip(group.positions, parts_of(flat, group.shapes), strict=True):
            found[position] = part
    return tuple(found)
