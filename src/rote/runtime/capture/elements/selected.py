"""What a mask selects is written back through that mask: ``distance[mask] = dist[mask]``, ``x[m] *= 2``.

How much a mask selects depends on values, so to read it waits for the device, and each size is a path. What
is written back through the same mask needs no size: ``torch.where`` chooses it, element by element.

The call gets what it would get, where values are there. Beside it lies what all elements would be: what
operations make of the selected ones, they make of all. Only those do that give an element the same bits
wherever it lies: IEEE 754 defines them, or they are on integers. While a capture has no values, and where
operations have run already, the call gets a tensor of another size, at which no call before has looked.

A call shows for each of its lines whether what it selects is only written back; the next ones do it so.
Whatever else becomes of the elements (a look at their shape, a reduction, a call that keeps or returns them,
a host read while they are there) is not understood: nothing of that call is kept, and the line is done as in
eager from then on.

Not where gradients are asked for, and not where nobody has written the target: what is not selected is read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from ....base import Lines
from ...program import NEW, Operation, StorageTable, Token
from ...pytorch import is_wrapped
from .positions import COPIED, PLAIN

_Tensor: Any = torch.Tensor
Done = Callable[[], Sequence[Operation]]
"""Tells the operations of a call until now."""
_ANY = frozenset({"neg", "abs", "clone"})
"""Operations that calculate nothing."""
_EXACT = frozenset({
    "add", "sub", "rsub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "logical_and", "logical_or", "logical_not",
})  # fmt: skip
"""Operations that IEEE 754 defines, or that are on integers: an element has the same bits in each place."""
_COMPARE = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "isnan",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "logical_and", "logical_or", "logical_not",
})  # fmt: skip
"""Operations that make masks."""
_HALVES = frozenset({torch.float16, torch.bfloat16})
_SPECIAL = ("and", "or", "xor", "invert", "truediv", "radd", "rmul", "rand", "ror", "rxor")


def _functions() -> frozenset[Any]:
    plain = [each for name in _ANY | _EXACT for each in (name, f"{name}_")]
    special = [each for name in (*_ANY, *_EXACT, *_SPECIAL) for each in (f"__{name}__", f"__i{name}__")]
    found = [getattr(home, name, None) for home in (_Tensor, torch) for name in plain]
    found += [getattr(_Tensor, name, None) for name in special]
    return frozenset([each for each in found if callable(each)])


_LEADS_ON = _functions()
"""Functions that ask nothing of tensors above the dispatcher."""


@dataclass(frozen=True)
class SelectedElements:
    """Elements that a mask has selected.

    Attributes:
        token: How the mask looks, if the call has made it; one that is gone is known by that.
        all: What lies in all elements; None where the call does as in eager.
        rest: Dimensions that the mask leaves.
        lines: What has selected them, and those of which they are made.
        real: The call has the values.
    """

    mask: weakref.ref[torch.Tensor]
    mask_count: int
    token: Token | None
    all: torch.Tensor | None
    all_count: int
    rest: int
    lines: frozenset[Lines]
    real: bool


class Selections:
    """What masks have selected in one call, as long as it lives.

    Attributes:
        known: Those that somebody still has, by identity.
        back: Lines whose elements were written back.
        strayed: Lines whose elements were used otherwise.
    """

    def __init__(self, count: Callable[[torch.Tensor], int], storages: StorageTable) -> None:
        self.known: dict[int, tuple[weakref.ref[torch.Tensor], SelectedElements]] = {}
        self._count = count
        self._storages = storages
        self.back: set[Lines] = set()
        self.strayed: set[Lines] = set()

    def add(self, tensor: torch.Tensor, selected: SelectedElements) -> None:
        """The call has got such elements."""
        key = id(tensor)
        self.known[key] = weakref.ref(tensor, lambda gone: self._forget(key, gone)), selected

    def _forget(self, key: int, gone: weakref.ref[torch.Tensor]) -> None:
        if key in self.known and self.known[key][0] is gone:
            del self.known[key]

    @contextmanager
    def aside(self, tensor: torch.Tensor) -> Generator[None]:
        """A context in which such elements are tensors like others."""
        found = self.known.pop(id(tensor))
        try:
            yield
        finally:
            self.known[id(tensor)] = found

    def find(self, tensor: Any) -> SelectedElements | None:
        """What a tensor is, if it is such elements."""
        found = self.known.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def among(self, tensors: Iterable[torch.Tensor]) -> list[SelectedElements]:
        """Those among some tensors."""
        return [found for each in tensors if (found := self.find(each)) is not None] if self.known else []

    def select(
        self, tensor: torch.Tensor, mask: torch.Tensor, lines: Lines, *, lazily: bool, real: bool
    ) -> SelectedElements:
        """What a mask selects of a tensor; ``lazily`` where it will be chosen of all elements."""
        found = SelectedElements(
            weakref.ref(mask), self._count(mask), self._described(mask), None, 0,
            tensor.dim() - mask.dim(), frozenset([lines]), real,
        )  # fmt: skip
        return self.whole(found, tensor) if lazily else found

    def _described(self, tensor: torch.Tensor) -> Token | None:
        """How a tensor looks that the call has made."""
        origin = self._storages.origin(tensor)
        return self._storages.token(tensor) if origin is not None and origin[0] is NEW else None

    def whole(self, selected: SelectedElements, everything: torch.Tensor) -> SelectedElements:
        """Such elements, with what lies in all elements."""
        return replace(selected, all=everything, all_count=self._count(everything))

    def stray(self, selected: Iterable[SelectedElements]) -> bool:
        """These are used in a way that is not understood; whether one of them has no values."""
        found = list(selected)
        self.strayed.update(*[each.lines for each in found])
        return any([not each.real for each in found])

    def joined(
        self, func: Any, tensors: list[torch.Tensor], kwargs: dict[str, Any], done: Done
    ) -> SelectedElements | None:
        """What an operation gives of such elements, but for all of them; None if that is not understood."""
        found, (base, inplace) = self.among(tensors), _named(func)
        first, others = found[0], [each for each in tensors if self.find(each) is None]
        if kwargs or base not in _ANY | _EXACT or not all([self._is_now(each) for each in found]):
            return None
        if inplace and self.find(tensors[0]) is None:
            return None
        if any([not _is_of_one_mask(each, first, done) or each.rest != first.rest for each in found]):
            return None
        if not all([_is_beside(each, first.rest) for each in others]):
            return None
        if base not in _ANY and not _HALVES.isdisjoint([each.dtype for each in tensors]):
            return None
        if len({each.dtype for each in tensors if each.dim()}) > 1:
            return None
        if any([(each.all is None) is not (first.all is None) for each in found]):
            return None
        lines = frozenset[Lines]().union(*[each.lines for each in found])
        real = all([each.real for each in found])
        return replace(first, all=None, all_count=0, lines=lines, real=real)

    def _is_now(self, selected: SelectedElements) -> bool:
        """Whether neither the mask nor what it was asked of was written since."""
        mask, everything = selected.mask(), selected.all
        same = selected.token is not None if mask is None else self._count(mask) == selected.mask_count
        if not same:
            return False
        if everything is None:
            return True
        tracked = torch.is_grad_enabled() and everything.requires_grad
        return not tracked and self._count(everything) == selected.all_count

    def ends_at(self, tensor: Any, key: Any, new: Any, done: Done) -> bool:
        """Whether such elements are written where they would be chosen of all elements."""
        selected, target = self.find(new), tensor
        if selected is None or not self._is_now(selected) or not isinstance(key, torch.Tensor):
            return False
        if selected.mask() is not key:
            one, other = selected.token, self._described(key)
            if one is None or other is None or not _are_made_alike(one, other, done()):
                return False
        rest, own = new.shape[1:], target.shape[key.dim() :] if may_be_selected(target, key) else None
        if own is None or len(own) != selected.rest or target.dtype is not new.dtype:
            return False
        return all([one in (1, other) for one, other in zip(rest, own, strict=True)]) and _lies_apart(target)


def may_be_selected(tensor: Any, key: Any) -> bool:
    """Whether an index is a mask of the first dimensions of a tensor, or of all of them."""
    if not all([type(each) in PLAIN and not is_wrapped(each) for each in (tensor, key)]):
        return False
    return (
        key.dtype is torch.bool
        and 0 < key.dim() <= tensor.dim()
        and key.shape == tensor.shape[: key.dim()]
        and key.device == tensor.device
        and key.layout is tensor.layout is torch.strided
        and tensor.dtype in COPIED
        and tensor.numel() > 0
        and not (tensor.is_complex() or tensor.is_neg() or tensor.is_meta)
        and not (torch.is_grad_enabled() and tensor.requires_grad)
    )


def asks_nothing(func: Any) -> bool:
    """Whether a function leads to its operation, and looks at no tensor before."""
    return func in _LEADS_ON


def _is_of_one_mask(one: SelectedElements, other: SelectedElements, done: Done) -> bool:
    """Whether a mask has selected both, as it was at one time, or two that are equal."""
    mask = one.mask()
    if one is other or (mask is not None and mask is other.mask()):
        return one.mask_count == other.mask_count
    alike = one.token is not None and other.token is not None
    return alike and _are_made_alike(cast("Token", one.token), cast("Token", other.token), done())


def _are_made_alike(one: Token, other: Token, done: Sequence[Operation]) -> bool:
    """Whether two masks that a call has made are equal: one comparison of the same operands gave both.

    Neither they nor the operands were written since the first of the two was made.
    """
    first, second = (_maker_of(each, done) for each in (one, other))
    if first is None or second is None or not done[first].is_called_as(done[second]) or done[first].computes:
        return False
    fixed = {one.origin, other.origin, *[each.origin for each in done[first].tokens]}
    later = done[min(first, second) + 1 :]
    return all([each.name.startswith("aten::") and fixed.isdisjoint(_written(each)) for each in later])


def _maker_of(mask: Token, done: Sequence[Operation]) -> int | None:
    """Which operation has made a mask, if it gives nothing else, and the same for the same operands."""
    for number, each in enumerate(done):
        if any([type(result) is Token and result.origin == mask.origin for result in each.results]):
            name = each.name.removeprefix("aten::").partition(".")[0]
            return number if name in _COMPARE and each.results == (mask,) else None
    return None


def _written(operation: Operation) -> list[Any]:
    tokens = operation.tokens
    return [tokens[place].origin for place in operation.written]


def writes_first(func: Any) -> bool:
    """Whether an operation on such elements writes those that it is given first."""
    return _named(func)[1]


def choose(mask: torch.Tensor, everything: torch.Tensor, target: torch.Tensor) -> None:
    """Write what a mask selects."""
    spread = mask.view([*mask.shape, *[1] * (target.dim() - mask.dim())])
    target.copy_(torch.where(spread, everything, target))


def _named(func: Any) -> tuple[str, bool]:
    """The name of an operation, and whether it writes its first operand."""
    if getattr(func, "namespace", "") != "aten":
        return "", False
    name = func.overloadpacket.__name__
    return (name.removesuffix("_"), name.endswith("_"))


def _is_beside(tensor: torch.Tensor, rest: int) -> bool:
    """Whether an operand is the same for each of the selected elements, however many there are."""
    plain = type(tensor) in PLAIN and not is_wrapped(tensor) and tensor.layout is torch.strided
    return plain and tensor.dim() <= rest and not (torch.is_grad_enabled() and tensor.requires_grad)


def _lies_apart(tensor: torch.Tensor) -> bool:
    """Whether no two elements of a tensor lie in one place."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return False
        reach = max(reach, stride * size) if size > 1 else reach
    return True
