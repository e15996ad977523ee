"""Many gradients handed out as parts of one flat tensor: one copy at each replay instead of one for each.

The caller may keep any of them: each has a version counter of its own, and all of them share the memory of
the flat tensor, which lives as long as one of them does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

LEAST = 8
"""Gradients of one type from which packing pays: a copy costs the host about 6 us, a part about 2 us."""


class Group(NamedTuple):
    """Gradients that lie in one flat tensor: their positions among all, and their shapes."""

    positions: tuple[int, ...]
    shapes: tuple[torch.Size, ...]


Gradients = tuple[torch.Tensor | None, ...]


def pack(gradients: Gradients) -> tuple[Gradients, list[torch.Tensor], list[Group]]:
    """Put gradients of one type together.

    Returns:
        The gradients that stay alone (None at the place of the others), the flat tensors, and what lies in
        each.
    """
    alone = list(gradients)
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for position, gradient in enumerate(gradients):
        plain = gradient is not None and gradient.layout is torch.strided and type(gradient) is torch.Tensor
        if gradient is not None and plain and gradient.is_contiguous():
            kinds.setdefault((gradient.dtype, gradient.device), []).append(position)
    flats: list[torch.Tensor] = []
    groups: list[Group] = []
    for positions in kinds.values():
        if len(positions) < LEAST:
            continue
        parts = [part for position in positions if (part := gradients[position]) is not None]
        flats.append(torch.cat([part.view(-1) for part in parts]))
        groups.append(Group(tuple(positions), tuple([part.shape for part in parts])))
        for position in positions:
            alone[position] = None
    return tuple(alone), flats, groups


def unpack(alone: Gradients, flats: list[torch.Tensor], groups: list[Group]) -> Gradients:
    """Inverse of :func:`pack`, on copies of what it returned."""
    found = list(alone)
    for flat, group in zip(flats, groups, strict=True):
        parts = flat.split([shape.numel() for shape in group.shapes])
        for position, shape, part in zip(group.positions, group.shapes, parts, strict=True):
            found[position] = part.view(shape).data
    return tuple(found)
