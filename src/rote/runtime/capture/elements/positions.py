"""A tensor is written at a position that changes: ``cache[:, position] = new``.

A view whose place changes is nothing that a recording can hold. What is written through it can be written by
an index on the device: where types are equal and nothing overlaps numbers are only copied, so memory has the
same bits. It is done for positions that are followed, and by the calls that check what those have shown.
Reading is in :mod:`.taken`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import torch

from ...numbers import TrackedNumbers
from ...pytorch import is_wrapped
from ...recording import OperationCall

PUT = "at a position"
"""The name of the host data that a position is."""
_ALL = slice(None)
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""Types of tensors with plain memory."""
COPIED = frozenset({
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
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

    def made(self, numbers: TrackedNumbers, tensor: torch.Tensor) -> Callable[[], OperationCall]:
        """Tells the operation that makes the index of what is written to a tensor."""
        return index_maker(numbers.linear([(self.ends[0], 1)], 0), self.count, tensor.device)

    def ask(self, numbers: TrackedNumbers, size: int) -> None:
        """What has to be so for a replay to write as many elements of a dimension."""
        numbers.ask("<=", 0, self.ends[0])
        if len(self.ends) > 1:
            numbers.ask("SUBTRACT", self.ends[1], self.ends[0])
        numbers.ask("<=" if len(self.ends) > 1 else "<", self.ends[-1], size)


def index_maker(begin: Any, count: int, device: torch.device) -> Callable[[], OperationCall]:
    """Tells the operation that makes the index of so many elements from a number on.

    One number is a parameter of a kernel, while the two ends of ``arange`` would decide how large it is.
    """
    aten = torch.ops.aten
    if count == 1:
        form = {"dtype": torch.int64, "device": device}
        return lambda: OperationCall(aten.full.default, ([1], begin), form)
    return lambda: OperationCall(aten.add.Tensor, (torch.arange(count, device=device), begin), {})


def put_at(
    tensor: torch.Tensor, places: Sequence[WrittenPlace], indices: Sequence[torch.Tensor], new: torch.Tensor
) -> None:
    """Write a tensor where positions in some of its dimensions meet."""
    source = new.expand(_shape_at(tensor, places))
    source = source if source.dtype is tensor.dtype else source.to(tensor.dtype)
    for each in places:
        source = source.unsqueeze(each.dim) if len(each.ends) == 1 else source
    if len(places) == 1:
        tensor.index_copy_(places[0].dim, indices[0], source)
        return
    order = [each.dim for each in places]
    order += [dim for dim in range(tensor.dim()) if dim not in order]
    spread = [index.view(-1, *[1] * (len(places) - place - 1)) for place, index in enumerate(indices)]
    tensor.permute(order).index_put_(tuple(spread), source.permute(order))


def _shape_at(tensor: torch.Tensor, places: Sequence[WrittenPlace]) -> list[int]:
    """The shape of what lies where positions meet; an index takes a dimension away."""
    counts = {each.dim: each.count if len(each.ends) > 1 else None for each in places}
    shape = [counts.get(dim, size) for dim, size in enumerate(tensor.shape)]
    return [size for size in shape if size is not None]


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
    basic = all([type(each) in _BASIC for each in parts])
    if tensor.is_floating_point():  # what PyTorch stores in the end may be an infinity, or an error
        fits = abs(new) <= torch.finfo(tensor.dtype).max or not isfinite(new)
    else:
        fits = tensor.dtype is torch.int64 and type(new) is int
    return fits and (basic or is_mask_of(key, tensor))


def is_mask_of(key: Any, tensor: torch.Tensor) -> bool:
    """Whether an index says of each element of a tensor whether it is meant."""
    return type(key) is torch.Tensor and key.dtype is torch.bool and key.shape == tensor.shape


_WHOLE = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
_ENDS = frozenset({int, type(None), type(Ellipsis)})
_BASIC = _ENDS | {slice}


def index_with_numbers(key: Any, read: Callable[[torch.Tensor], Any]) -> Any:
    """An index with numbers for the tensors in it that C reads as such, if all else in it is basic."""
    parts = cast("tuple[Any, ...]", key) if type(key) is tuple else (key,)
    ends = [end for part in parts for end in _ends_of(part)]
    if not all([type(end) in _ENDS or _is_number(end) for end in ends]):
        return key
    if not any([_is_number(end) for end in ends]):
        return key

    def number(end: Any) -> Any:
        return read(end) if _is_number(end) else end

    found = [
        slice(number(part.start), number(part.stop), part.step) if type(part) is slice else number(part)
        for part in parts
    ]
    return tuple(found) if type(key) is tuple else found[0]


def _is_number(index: Any) -> bool:
    plain = type(index) is torch.Tensor and not is_wrapped(index) and not index.is_meta
    return plain and not index.dim() and index.dtype in _WHOLE


def _is_whole(part: Any) -> bool:
    return type(part) is slice and part.start is part.stop is part.step is None


def places_of(
    tensor: Any, key: Any, new: Any, numbers: TrackedNumbers | None
) -> tuple[WrittenPlace, ...] | None:
    """The positions in an index, if all else in it are whole dimensions, and it may be written so.

    A check does not know which of them change, so those that do not are positions, too.
    """
    parts = parts_in(tensor, key) if _may_be_written(tensor, new) else None
    if parts is None or not all([type(part) in (int, slice) for _, part in parts]):
        return None
    if numbers is not None and not any([_moves(end, numbers) for _, part in parts for end in _ends_of(part)]):
        return None
    found = [_placed(dim, part, tensor.shape[dim], numbers) for dim, part in parts]
    places = tuple([each for each in found if each is not None and each.is_within(tensor.shape[each.dim])])
    return places if len(places) == len(found) and _spreads(tensor, places, new) else None


def _placed(dim: int, part: Any, size: int, numbers: TrackedNumbers | None) -> WrittenPlace | None:
    """A part of an index, with its ends counted from the first element."""
    if type(part) is not slice:
        return WrittenPlace(dim, [_counted(part, size, numbers)])
    first, last = (0 if part.start is None else part.start), (size if part.stop is None else part.stop)
    if part.step not in (None, 1) or type(first) is not int or type(last) is not int:
        return None
    last = last if _moves(last, numbers) else min(last, size)
    return WrittenPlace(dim, [_counted(first, size, numbers), _counted(last, size, numbers)])


def _counted(end: int, size: int, numbers: TrackedNumbers | None) -> int:
    """An end, counted from the first element; of one that changes nobody knows from where calls count it."""
    return end + size if end < 0 and not _moves(end, numbers) else end


def _moves(end: Any, numbers: TrackedNumbers | None) -> bool:
    return numbers is not None and numbers.expression(end) is not None


def _ends_of(part: Any) -> tuple[Any, ...]:
    return (part.start, part.stop) if type(part) is slice else (part,)


def parts_in(tensor: torch.Tensor, key: Any, *, adds: bool = False) -> list[tuple[int, Any]] | None:
    """What in an index means other than whole dimensions, each with the dimension; some are added perhaps."""
    parts: list[Any] = list(cast("tuple[Any, ...]", key)) if type(key) is tuple else [key]
    parts = [part for part in parts if not (adds and part is None)]
    gaps = [place for place, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1 or len(parts) - len(gaps) > tensor.dim():
        return None
    if gaps:
        parts[gaps[0] : gaps[0] + 1] = [_ALL] * (tensor.dim() - len(parts) + 1)
    return [(dim, part) for dim, part in enumerate(parts) if not _is_whole(part)]


def _may_be_written(tensor: Any, new: Any) -> bool:
    """Whether an index writes what a view would write, and is seen to write it by nobody else."""
    if not all([type(each) in PLAIN and not is_wrapped(each) for each in (tensor, new)]):
        return False
    if torch.is_grad_enabled() and (tensor.requires_grad or new.requires_grad):
        return False
    return (
        tensor.dtype in COPIED
        and new.dtype in COPIED
        and tensor.device == new.device
        and tensor.is_contiguous()
        and new.layout is torch.strided
        and not any([each.is_neg() or each.is_conj() for each in (tensor, new)])
        and tensor.untyped_storage()._cdata != new.untyped_storage()._cdata
    )


def _spreads(tensor: torch.Tensor, places: Sequence[WrittenPlace], new: torch.Tensor) -> bool:
    shape = _shape_at(tensor, places)
    sizes = zip(reversed(new.shape), reversed(shape), strict=False)
    return new.dim() <= len(shape) and all([one in (1, other) for one, other in sizes])
