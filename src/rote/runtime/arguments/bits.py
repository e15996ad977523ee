"""Tensors to the bit: their bytes, and which of them share memory."""

from __future__ import annotations

from typing import Any

import torch

from ..pytorch import has_memory


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, shaped ``(elements, bytes of an element)``; a copy."""
    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.view(-1).view(torch.uint8).view(tensor.numel(), -1)


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in double precision, ``(elements, 1)``, complex ones ``(elements, 2)``."""
    plain = tensor.resolve_conj().resolve_neg().reshape(-1)
    if plain.dtype.is_complex:
        return torch.view_as_real(plain).to(torch.float64)
    return plain.to(torch.float64).view(-1, 1)


def sharing(leaves: list[Any]) -> list[tuple[int, int]]:
    """Pairs of leaves (by position) on one storage: each with the first one there."""
    first: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    storages: list[torch.UntypedStorage] = []  # kept, so that no handle is used twice
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and has_memory(leaf) and leaf.numel() and not leaf.is_meta:
            storages.append(leaf.untyped_storage())
            owner = first.setdefault(storages[-1]._cdata, position)
            if owner != position:
                found.append((owner, position))
    return found
