"""A tensor is written at a position that changes: ``cache[:, position] = new``.

A view whose place changes is nothing that a recording can hold. What is written through it can be written by
an index on the device: where types are equal and nothing overlaps numbers are only copied, so memory has the
same bits. It is done for positions that are followed, and by the calls that check what those have shown.
Reading is in :mod:`.taken`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from ...numbers import TrackedNumbers
from ...pytorch import is_wrapped

PUT = "at a position"
"""The name of the host data that a position is."""
_ALL = slice(None)
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""Types of tensors with plain memory."""
COPIED = frozenset({
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool,
})  # fmt: skip
"""Types of which elements are copied by an index."""


@dataclass(frozen=True)
class WrittenPlace:
    """Where a tensor is written.

    Attributes:
        ends: The index; or the first one, and the one behind the last.
    """

    dim: int
    ends: list[int]

    @property
    def count(self) -> int:
        """How many elements of the dimension are written."""
        return self.ends[-1] - self.ends[0] if len(self.ends) > 1 else 1

    def is_within(self, size: int) -> bool:
        """Whether it means these very elements of a dimension, none of them counted from its end."""
        return self.ends[0] >= 0 and self.count > 0 and self.ends[0] + self.count <= size

    def index(self) -> torch.Tensor:
        """The elements of the dimension."""
        return torch.arange(self.ends[0], self.ends[0] + self.count)

    def made(
        self, numbers: TrackedNumbers, tensor: torch.Tensor
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The operation that makes the index of what is written to a tensor."""
        ends = [numbers.linear(self.ends[0], 1, 0), numbers.linear(self.ends[-1], 1, len(self.ends) == 1)]
        return torch.ops.aten.arange.start, tuple(ends), {"dtype": torch.int64, "device": tensor.device}

    def put(self, tensor: torch.Tensor, index: torch.Tensor, new: torch.Tensor) -> None:
        """Write there."""
        shape = list(tensor.shape)
        shape[self.dim : self.dim + 1] = [self.count] if len(self.ends) > 1 else []
        source = new.expand(shape)
        tensor.index_copy_(self.dim, index, source if len(self.ends) > 1 else source.unsqueeze(self.dim))


_TOO_LARGE = 1 << 63
"""For C, as a whole number; elements take none that is larger."""


def may_be_stored(tensor: Any, key: Any, new: Any) -> bool:
    """Whether what is stored is a number, and each element gets the bits of a tensor made of it."""
    if type(new) not in (int, float) or type(tensor) not in PLAIN or is_wrapped(tensor):
        return False
    if type(new) is int and not -_TOO_LARGE <= new < _TOO_LARGE:
        return False
    if torch.is_grad_enabled() and tensor.requires_grad:
        return False
    parts = cast("tuple[Any, ...]", key) if type(key) is tuple else (key,)
    basic = all([type(each) in (int, slice, type(None), type(Ellipsis)) for each in parts])
    fits = tensor.is_floating_point() or (tensor.dtype is torch.int64 and type(new) is int)
    return fits and (basic or is_mask_of(key, tensor))


def is_mask_of(key: Any, tensor: torch.Tensor) -> bool:
    """Whether an index says of each element of a tensor whether it is meant."""
    return type(key) is torch.Tensor and key.dtype is torch.bool and key.shape == tensor.shape


_WHOLE = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})


def number_in(key: Any) -> torch.Tensor | None:
    """The tensor in an index that C reads as a number, if all else in it are whole dimensions."""
    parts = cast("tuple[Any, ...]", key) if type(key) is tuple else (key,)
    found: list[Any] = [each for each in parts if isinstance(each, torch.Tensor)]
    others = [each for each in parts if not isinstance(each, torch.Tensor)]
    if len(found) != 1 or not all([each is Ellipsis or _is_whole(each) for each in others]):
        return None
    index: torch.Tensor = found[0]
    plain = type(index) is torch.Tensor and not is_wrapped(index) and not index.is_meta
    return index if plain and not index.dim() and index.dtype in _WHOLE else None


def _is_whole(part: Any) -> bool:
    return type(part) is slice and part == _ALL


def position_of(tensor: Any, key: Any, new: Any, moves: Callable[[Any], bool]) -> WrittenPlace | None:
    """The position in an index, if all else in it are whole dimensions, and it may be written so."""
    if not _may_be_written(tensor, new):
        return None
    position = position_in(tensor, key)
    if position is None or not any(map(moves, position.ends)):
        return None
    return (
        position
        if position.is_within(tensor.shape[position.dim]) and _spreads(tensor, position, new)
        else None
    )


def position_in(tensor: torch.Tensor, key: Any) -> WrittenPlace | None:
    """The position in an index, if all else in it are whole dimensions."""
    parts: list[Any] = list(cast("tuple[Any, ...]", key)) if type(key) is tuple else [key]
    gaps = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1 or len(parts) - len(gaps) > tensor.dim():
        return None
    if gaps:
        parts[gaps[0] : gaps[0] + 1] = [_ALL] * (tensor.dim() - len(parts) + 1)
    found = [(dim, part) for dim, part in enumerate(parts) if not _is_whole(part)]
    if len(found) != 1:
        return None
    dim, part = found[0]
    ends: list[Any] = [part.start, part.stop] if type(part) is slice and part.step is None else [part]
    return WrittenPlace(dim, ends) if all([type(each) is int for each in ends]) else None


def _may_be_written(tensor: Any, new: Any) -> bool:
    """Whether an index writes what a view would write, and is seen to write it by nobody else."""
    if not all([type(each) in PLAIN and not is_wrapped(each) for each in (tensor, new)]):
        return False
    if torch.is_grad_enabled() and (tensor.requires_grad or new.requires_grad):
        return False
    return (
        tensor.dtype is new.dtype
        and tensor.dtype in COPIED
        and tensor.device == new.device
        and tensor.is_contiguous()
        and new.layout is torch.strided
        and not (tensor.is_neg() or new.is_neg())
        and tensor.untyped_storage()._cdata != new.untyped_storage()._cdata
    )


def _spreads(tensor: torch.Tensor, position: WrittenPlace, new: torch.Tensor) -> bool:
    shape = list(tensor.shape)
    shape[position.dim : position.dim + 1] = [position.count] if len(position.ends) > 1 else []
    sizes = zip(reversed(new.shape), reversed(shape), strict=False)
    return new.dim() <= len(shape) and all([one in (1, other) for one, other in sizes])
