"""Memory of numpy arrays that becomes tensors in a call, and arguments that lie in it.

A recording reads such memory where it lies, or copies it again at each replay. The copy of an argument lies
elsewhere, so a write to one of the two does not show in the other. Such a call is not recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from ..arguments import extent
from ..objects import pointer_of
from ..pytorch import has_memory, plain_functions

Range = tuple[int, int]
"""The address of the first byte, and of the one behind the last."""


def address_range(tensor: torch.Tensor) -> Range:
    """The memory at which a tensor of the host looks."""
    first, end = extent(tensor)
    start = tensor.untyped_storage().data_ptr()
    return start + first, start + end


def memory_of_host(tensors: Iterable[torch.Tensor]) -> list[Range]:
    """The memory of the storages of those tensors that lie on the host."""
    with plain_functions():
        storages = [each.untyped_storage() for each in tensors if each.is_cpu and has_memory(each)]
        return [(each.data_ptr(), each.data_ptr() + each.nbytes()) for each in storages if each.nbytes()]


def memory_of_arrays(arrays: Iterable[Any]) -> list[Range]:
    """The memory of arrays."""
    return [(pointer_of(each), pointer_of(each) + each.nbytes) for each in arrays if each.nbytes]


def within(ranges: Iterable[Range], pointers: Collection[int]) -> list[Range]:
    """The ranges in which one of some addresses lies."""
    return [found for found in ranges if any([found[0] <= pointer < found[1] for pointer in pointers])]


def lying_in(leaves: Iterable[Any], ranges: Collection[Range]) -> int | None:
    """The position of the first host tensor with memory in one of the ranges; None if there is none."""
    with plain_functions():
        for position, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor) or not leaf.is_cpu or not has_memory(leaf):
                continue
            storage = leaf.untyped_storage()
            start = storage.data_ptr()
            if any([start < end and first < start + storage.nbytes() for first, end in ranges]):
                return position
    return None
