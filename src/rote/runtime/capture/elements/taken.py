"""A tensor is read at a position that changes: ``sigmas[step]``, ``table[n : n + 4]``.

The call gets what it would get, a view. It lies elsewhere from call to call, so it is nothing that a
recording can hold, and no operation of it. An operation that takes it, or a view of it, is given what lies
there at that moment instead: elements gathered by an index, with the sizes and strides of the view, so that
kernels do as they would. Nobody sees that this is other memory, and what was written before is there.

An operation that writes it in place writes these elements, and those of the view are put back where they came
from: what lies between them is left alone.

A backward inside the call takes the view again, as it has been saved, and is given what lies there then;
eager raises if that was written since.

Not where the view itself requires grad, where a graph is left behind that may have saved it, where what is
written to it lies in the same memory, and where it leaves the call or is met as anything but an operand: then
nothing of the call is kept, and the next calls know the position by its value. A view that C makes of it
unseen looks as it does, and would be met so.

What does not work: to give the call a copy. It sees nothing of what is written to the tensor later, and when
it turns out to be written to itself, or to be a result, it is too late to make a view of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch

from ....base import Lines
from ...numbers import TrackedNumbers
from ...pytorch import is_wrapped
from .positions import COPIED, PLAIN, WrittenPlace, parts_in

TAKEN = "read at a position"
"""The name of the host data that the index of such elements is."""
_ABSOLUTE = frozenset({"as_strided", "view_as_real", "view_as_complex"})
"""Views that do not begin where what they look at begins, or have elements of another type."""

_SHARES = frozenset({"unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "_unsafe_view"})
"""Operations that give views, and do not say so."""


@dataclass(frozen=True)
class TakenView:
    """A view that begins at a position which changes.

    Attributes:
        terms: The numbers that say where, each with the elements between two positions; in a call that
            follows none, as they are.
        rest: Elements behind these at which it begins.
        lines: What has made it.
        key: The index, and how the view looks; None for a view of such a view.
    """

    base: torch.Tensor
    terms: tuple[tuple[Any, int], ...]
    rest: int
    lines: Lines
    key: tuple[Any, Any] | None = None

    def begin(self, numbers: TrackedNumbers | None) -> Any:
        """The element of the base at which it begins, as a replay computes it."""
        if numbers is None:
            return sum([position * step for position, step in self.terms], self.rest)
        return numbers.linear(self.terms, self.rest)

    def looked_at(self, *, more: int) -> TakenView:
        """A view of it that begins so many elements behind it."""
        return TakenView(self.base, self.terms, self.rest + more, self.lines)


class LyingElements(NamedTuple):
    """What lies in such a view at a moment.

    Attributes:
        places: The elements of the base from the first one of the view to its last one.
        looked: The copy, looked at as the view looks.
    """

    flat: torch.Tensor
    places: torch.Tensor
    lies: torch.Tensor
    looked: torch.Tensor


class TakenViews:
    """Those of one call.

    Attributes:
        places: Where they lie and how they look.
        strayed: What has made those that turn out not to be understood.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], TakenView]] = {}
        self._written: set[int] = set()
        self._saved: list[TakenView] = []
        self.places: set[Any] = set()
        self.strayed: dict[Lines, None] = {}

    def add(self, view: torch.Tensor, taken: TakenView) -> None:
        """The call has got a view."""
        self._known[id(view)] = weakref.ref(view), taken
        self.places.add(_place_of(view))

    def write(self, view: torch.Tensor) -> None:
        """An operation in place has written what lies in a view."""
        self._written.add(id(view))

    def save(self, taken: Iterable[TakenView]) -> None:
        """An operation that has a backward has taken these: it may save them."""
        self._saved.extend(taken)

    def leave_graph(self) -> None:
        """The call leaves a graph behind: that would have what lay where its own call has looked."""
        self.stray(self._saved)

    def is_back(self, tensor: torch.Tensor, key: Any, new: Any, numbers: TrackedNumbers) -> bool:
        """Whether a view is stored where it was taken and written, as ``x[n] += y`` does: nothing changes."""
        taken = self.find(new) if id(new) in self._written else None
        if taken is None or taken.base is not tensor or taken.key is None or _form_of(new) != taken.key[1]:
            return False
        ends, others = _ends_in(taken.key[0]), _ends_in(key)
        pairs = [(one, other) for one, other in zip(ends, others, strict=False) if one is not other]
        if len(ends) != len(others) or not all([type(one) is type(other) is int for one, other in pairs]):
            return False
        if any([one != other for one, other in pairs]):
            return False
        for one, other in pairs:  # maybe the same tensor, read once more
            if numbers.expression(one) is not None or numbers.expression(other) is not None:
                numbers.ask("==", one, other)
        return True

    def find(self, tensor: torch.Tensor) -> TakenView | None:
        """What a tensor is, if it is such a view."""
        found = self._known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def among(self, tensors: Iterable[torch.Tensor]) -> list[TakenView]:
        """The views among some tensors."""
        return [found for each in tensors if (found := self.find(each)) is not None] if self._known else []

    def derive(self, name: str, source: torch.Tensor, out: Any) -> bool:
        """A view was made of such a view; whether it is known where that lies."""
        taken, parts = self.find(source), out if isinstance(out, (list, tuple)) else (out,)
        if taken is None or name in _ABSOLUTE:
            return False
        for part in parts:
            if part.dtype is not source.dtype or part.is_neg() or part.is_conj() or not part.numel():
                return False
            self.add(part, taken.looked_at(more=part.storage_offset() - source.storage_offset()))
        return True

    def stray(self, taken: Iterable[TakenView]) -> None:
        """These are not understood."""
        self.strayed.update(dict.fromkeys([each.lines for each in taken]))

    def meet(self, tensor: torch.Tensor) -> None:
        """A tensor is described: if it is such a view, or C has made it of one, that is not understood."""
        plain = self.places and tensor.layout is torch.strided and not is_wrapped(tensor)
        if plain and not tensor.is_nested and _place_of(tensor) in self.places:
            self.stray([taken for _, taken in self._known.values()])

    def end(self) -> dict[Lines, None]:
        """The call is over: what has made those that are not understood."""
        self._known.clear()  # with the tensors at which they look
        self._written.clear()
        self._saved.clear()
        self.places.clear()
        return self.strayed


def only_reads(func: Any) -> bool:
    """Whether an operation does what its schema says; of those of libraries nobody knows."""
    return func.namespace == "aten" and func.overloadpacket.__name__ not in _SHARES


def _place_of(tensor: torch.Tensor) -> Any:
    """Where a tensor lies, and how it looks."""
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), *_form_of(tensor)


def _form_of(tensor: torch.Tensor) -> Any:
    return tuple(tensor.shape), tensor.stride()


def _ends_in(key: Any) -> list[Any]:
    """What stands in an index, one after the other."""
    found = list[Any]()
    for part in cast("tuple[Any, ...]", key) if type(key) is tuple else (key,):
        found += [part.start, part.stop, part.step] if type(part) is slice else [part]
    return found


_Tensor: Any = torch.Tensor
_SELECTS, _NARROWS = frozenset({_Tensor.select, torch.select}), frozenset({_Tensor.narrow, torch.narrow})
READS_PLACE = _SELECTS | _NARROWS | {_Tensor.__getitem__}
"""Functions that give what lies at a position."""


@dataclass(frozen=True)
class ReadPlace:
    """Where a tensor is read in a dimension.

    Attributes:
        numbers: Those that say so: the index, or the first one and the one behind the last; None where an
            index names no end.
        size: How many elements are read, where the numbers do not tell; of an index, none.
    """

    dim: int
    numbers: tuple[Any, ...]
    size: int | None = None
    step: Any = None

    def moves(self, numbers: TrackedNumbers) -> bool:
        """Whether some of its numbers change."""
        return any([numbers.expression(each) is not None for each in self.numbers])

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether it means these very elements of a dimension, and not all of it."""
        size, stride = tensor.shape[self.dim], tensor.stride(self.dim)
        if self.step is not None or not all([type(each) is int for each in self.numbers]):
            return False
        place = self._place
        return size > 1 and stride != 0 and place.is_within(size) and place.count != size

    @property
    def _place(self) -> WrittenPlace:
        first = self.numbers[0]
        return WrittenPlace(self.dim, [*self.numbers] if self.size is None else [first, first + self.size])

    def ask(self, numbers: TrackedNumbers, size: int) -> None:
        """What has to be so for a replay to read as many elements of a dimension."""
        first, last = self.numbers[0], self.numbers[-1]
        numbers.ask("<=", 0, first)
        if self.size is not None:
            numbers.ask("<=", first, size - self.size)
        elif len(self.numbers) == 1:
            numbers.ask("<", first, size)
        else:
            numbers.ask("SUBTRACT", last, first)
            numbers.ask("<=", last, size)


def read_at(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[ReadPlace] | None:
    """Where a function reads a tensor, if that is told by whole numbers; a check finds as many as others."""
    tensor: Any = args[0] if args else None
    if named or type(tensor) not in PLAIN or not _may_be_read(tensor):
        return None
    if function is not _Tensor.__getitem__:
        return _read_along(tensor, args[1:], narrows=function in _NARROWS)
    parts = parts_in(tensor, args[1], adds=True) if len(args) == 2 else None
    if parts is None or not all([type(part) in (int, slice) for _, part in parts]):
        return None
    found = [
        ReadPlace(dim, (part.start, part.stop), step=part.step)
        if type(part) is slice
        else ReadPlace(dim, (part,))
        for dim, part in parts
    ]
    return found if all([type(end) in (int, type(None)) for each in found for end in each.numbers]) else None


def _read_along(tensor: torch.Tensor, given: tuple[Any, ...], *, narrows: bool) -> list[ReadPlace] | None:
    if not all([type(each) is int for each in given]) or len(given) != 2 + narrows:
        return None
    if not -tensor.dim() <= given[0] < tensor.dim():
        return None
    return [ReadPlace(given[0] % tensor.dim(), (given[1],), given[2] if narrows else None)]


def _may_be_read(tensor: torch.Tensor) -> bool:
    return (
        not is_wrapped(tensor)
        and tensor.layout is torch.strided
        and tensor.dtype in COPIED
        and not (torch.is_grad_enabled() and tensor.requires_grad)
        and not (tensor.is_neg() or tensor.is_conj() or tensor.is_meta)
        and tensor.numel() > 0
    )
