"""The differences between a replay and the plain call, in numbers.

Values are equal if their bits are; NaN equals NaN whatever its bits. A tolerance is for kernels that do not
repeat their own results (atomic additions).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ...base import Site
from ..arguments import FoundObject, GivenBranch, bytes_of, flatten, numbers_of, paths, sharing
from ..objects import mark
from ..state import same, show

_ASPECTS = ("shape", "dtype", "device", "layout", "requires_grad")


class Mismatch(NamedTuple):
    """One value that differs.

    Attributes:
        name: The value, as the user would write it.
        largest: The largest absolute difference of numbers.
        python: It is Python state, not a result of operations.
        site: The line behind it, if it is known.
    """

    name: str
    text: str
    largest: float | None = None
    python: bool = False
    site: Site | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.text}"


def compare_results(
    replayed: Any, plain: Any, kept: list[Any], arguments: dict[str, torch.Tensor], tolerance: float
) -> Iterator[Mismatch]:
    """Compare two results leaf by leaf."""
    ours: list[Any] = []
    theirs: list[Any] = []
    spec, wanted = flatten(replayed, ours, cuts=True), flatten(plain, theirs, cuts=True)
    if spec != wanted:
        yield Mismatch("result", "has another structure")
        return
    names = paths(spec, "result")
    for name, mine, other in zip(names, kept, theirs, strict=True):
        yield from _compare_leaf(name, mine, other, tolerance)
    for name, mine, other in zip(names, ours, theirs, strict=True):
        yield from compare_attributes(name, other, attributes_of(mine))
    others = list(arguments.values())
    was, now = sharing([*theirs, *others]), sharing([*ours, *others])
    if was != now:
        pair = next(pair for pair in (*was, *now) if (pair in was) != (pair in now))
        verb = "shares no memory" if pair in was else "shares memory"
        labels = [*names, *arguments]
        yield Mismatch(labels[pair[0]], f"{verb} with {labels[pair[1]]}, unlike in the plain call")


def same_leaves(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether the leaves of two results are exactly equal."""
    pairs = zip(ours, theirs, strict=False)
    return not any(True for mine, other in pairs for _ in _compare_leaf("", mine, other, 0.0))


def attributes_of(leaf: Any) -> set[str]:
    """Names of the attributes that Python code has set on a tensor."""
    return set(vars(leaf)) if isinstance(leaf, torch.Tensor) else set()


def compare_attributes(name: str, leaf: Any, known: set[str]) -> Iterator[Mismatch]:
    """The attributes of a tensor that the replay has not set."""
    for attribute in sorted(attributes_of(leaf) - known):
        yield Mismatch(f"{name}.{attribute}", "is an attribute that only the plain call sets", python=True)


def _compare_leaf(name: str, replayed: Any, plain: Any, tolerance: float) -> Iterator[Mismatch]:
    if isinstance(replayed, torch.Tensor) and isinstance(plain, torch.Tensor):
        yield from compare_tensors(name, replayed, plain, tolerance)
    elif not same(mark(plain), mark(replayed)) and not (
        type(plain) in (GivenBranch, FoundObject) and plain == replayed
    ):
        yield Mismatch(name, f"is {show(replayed)} and {show(plain)} in the plain call")


def compare_tensors(
    name: str, replayed: torch.Tensor, plain: torch.Tensor, tolerance: float
) -> Iterator[Mismatch]:
    """The first difference between two tensors, if there is one.

    ``tolerance`` is the relative and absolute difference that floating-point numbers may have; 0 compares
    bits.
    """
    for aspect in _ASPECTS:
        mine, other = getattr(replayed, aspect), getattr(plain, aspect)
        if mine != other:
            yield Mismatch(f"{name}.{aspect}", f"is {mine} and {other} in the plain call")
            return
    if replayed.layout is not torch.strided or replayed.is_meta or not replayed.numel():
        return
    if replayed.stride() != plain.stride():
        text = f"is {replayed.stride()} and {plain.stride()} in the plain call"
        yield Mismatch(f"{name}.stride()", text)
        return
    wrong, apart = differing(replayed, plain, tolerance)
    if not wrong.numel():
        return
    position = wrong[apart.argmax()]
    index = [int(each) for each in torch.unravel_index(position, plain.shape)]
    largest = float(apart.max())
    text = (
        f"differs in {wrong.numel()} of {plain.numel()} elements, by at most {largest:g} at "
        f"{name}{index or ''}: {replayed.reshape(-1)[position].item()!r} instead of "
        f"{plain.reshape(-1)[position].item()!r}"
    )
    yield Mismatch(name, text, largest)


def differing(
    ours: torch.Tensor, theirs: torch.Tensor, tolerance: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The flat positions of elements that differ, and by how much each; see :func:`compare_tensors`."""
    ours, theirs = ours.detach(), theirs.detach()
    wrong = (bytes_of(ours) != bytes_of(theirs)).any(-1).nonzero().view(-1)
    if not wrong.numel():
        return wrong, wrong
    mine, other = numbers_of(ours)[wrong], numbers_of(theirs)[wrong]
    apart = (mine - other).abs().nan_to_num(nan=torch.inf)
    fine = mine.isnan() & other.isnan()
    if theirs.dtype.is_floating_point or theirs.dtype.is_complex:
        fine |= (mine == other) & (mine.signbit() == other.signbit())
        if tolerance:
            fine |= other.isfinite() & (apart <= tolerance * (1 + other.abs()))
        apart = apart.masked_fill(fine, 0.0)
    bad = ~fine.all(-1)
    return wrong[bad], apart[bad].amax(-1)
