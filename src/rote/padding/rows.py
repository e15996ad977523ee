"""Padding of arguments, and the valid rows of results.

Rows are padded with copies of the last one: a copy brings no new value, so indices stay in range, logarithms
finite, and a property of all rows or of any holds as before. Padding with other values as well (see
:func:`fills`) shows whether rows meet: a sum, a mean, a maximum over the axis changes then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..runtime.arguments import flatten, paths, unflatten
from ..runtime.program import OWN, VIEW, Template

Fill = Callable[[torch.Tensor, int, int], torch.Tensor]
"""Makes rows to pad with, from a tensor, the axis, and the number of rows."""

VARIATIONS = 5
"""The most fills of a type."""

Dimensions = tuple[tuple[int, tuple[int, ...]], ...]
"""The dimensions of a leaf to cut, each with the sources it may follow."""


class PaddedAxis(NamedTuple):
    """An axis of an argument, at a position or keyword, with its size in the call and the padded size."""

    name: str
    place: int | str
    axis: int
    size: int
    padded: int

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.name} is padded from {self.size} to {self.padded}"


def fills(tensor: torch.Tensor) -> list[Fill]:
    """The kinds of padding for a tensor: first the one in use, then others that may show.

    They hold numbers larger and smaller than all others, and from their whole range. Where numbers may be
    indices, they hold only numbers that are there.
    """
    if tensor.dtype is torch.bool:
        return [_last, lambda found, axis, rows: _last(found, axis, rows).logical_not(), _cycle]
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return [_last, _first, _cycle]
    return [_last, _above, _below, _ramp, _cycle]


def _last(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    return _repeat(tensor.narrow(axis, tensor.shape[axis] - 1, 1), axis, rows)


def _first(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    return _repeat(tensor.narrow(axis, 0, 1), axis, rows)


def _repeat(row: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    shape = list(row.shape)
    shape[axis] = rows
    return row.expand(shape)


def _cycle(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    """The rows that are there, from the first on."""
    return tensor.index_select(axis, torch.arange(rows, device=tensor.device) % tensor.shape[axis])


def _above(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    most = (tensor.abs().amax() * 4 + 1).to(tensor.dtype)
    return most.expand(_last(tensor, axis, rows).shape)


def _below(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    return -_above(tensor, axis, rows)


def _ramp(tensor: torch.Tensor, axis: int, rows: int) -> torch.Tensor:
    """From the largest magnitude's negative to it in even steps."""
    like = _last(tensor, axis, rows)
    steps = torch.linspace(-1, 1, like.numel() + 2, device=tensor.device)[1:-1].view(like.shape)
    return (steps * tensor.abs().amax()).to(tensor.dtype)


def pad(
    args: tuple[Any, ...], kwargs: dict[str, Any], sources: Sequence[PaddedAxis], variation: int = 0
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Pad arguments along some axes, none of size 0, with one of the fills."""
    positional, named = list(args), dict(kwargs)
    for source in sources:
        values: Any = positional if isinstance(source.place, int) else named
        tensor = values[source.place]
        found = fills(tensor)
        fill = found[min(variation, len(found) - 1)]
        rows = fill(tensor, source.axis, source.padded - source.size)
        values[source.place] = torch.cat([tensor, rows], source.axis)
    return tuple(positional), named


@dataclass(frozen=True)
class ResultCut:
    """The dimensions of each leaf of a result that are cut back to the valid rows."""

    leaves: tuple[Dimensions, ...]

    def fits(self, sources: Sequence[PaddedAxis]) -> bool:
        """Whether the sizes of a call tell how much of every dimension is valid."""
        return all(
            len({sources[index].size for index in following}) == 1
            for leaf in self.leaves
            for _, following in leaf
        )

    def apply(self, value: Any, sources: Sequence[PaddedAxis]) -> Any:
        """The result with its valid rows only, in memory of their own."""
        leaves: list[Any] = []
        spec = flatten(value, leaves)
        for position, dimensions in enumerate(self.leaves):
            if dimensions:
                leaf = leaves[position]
                for dimension, following in dimensions:
                    leaf = leaf.narrow(dimension, 0, sources[following[0]].size)
                leaves[position] = leaf.clone(memory_format=torch.contiguous_format)
        return unflatten(spec, iter(leaves))

    def both(self, other: ResultCut) -> ResultCut | None:
        """The cut on which two checks agree, or None if they contradict each other."""
        found: list[Dimensions] = []
        for one, two in zip(self.leaves, other.leaves, strict=True):
            if [dimension for dimension, _ in one] != [dimension for dimension, _ in two]:
                return None
            both = [
                (dimension, tuple(sorted(set(first) & set(second))))
                for (dimension, first), (_, second) in zip(one, two, strict=True)
            ]
            if not all(following for _, following in both):
                return None
            found.append(tuple(both))
        return ResultCut(tuple(found))


class CannotCutError(Exception):
    """Why the valid rows of a result are not known, as text for people."""


def find_cut(template: Template, exact: Any, padded: Any, sources: Sequence[PaddedAxis]) -> ResultCut:
    """Compare the shapes of an exact and a padded result; sizes may only differ as a padded axis does."""
    was: list[Any] = []
    now: list[Any] = []
    spec = flatten(exact, was)
    if flatten(padded, now) != spec:
        raise CannotCutError("the structure of the result depends on the size")
    found: list[Dimensions] = []
    for name, leaf, before, after in zip(paths(spec, "result"), template.leaves, was, now, strict=False):
        made = leaf.kind in (OWN, VIEW)
        found.append(_dimensions(name, before, after, sources) if made else ())
        if made or isinstance(before, torch.Tensor):
            continue
        if type(before) is not type(after) or before != after:
            raise CannotCutError(f"{name} is {before!r:.40}, and {after!r:.40} with padding")
    return ResultCut(tuple(found))


def _dimensions(
    name: str, before: torch.Tensor, after: torch.Tensor, sources: Sequence[PaddedAxis]
) -> Dimensions:
    if before.dim() != after.dim() or before.dtype is not after.dtype:
        raise CannotCutError(f"{name} has another number of dimensions or type with padding")
    if not before.is_contiguous():
        raise CannotCutError(f"{name} is not contiguous")
    found: list[tuple[int, tuple[int, ...]]] = []
    for dimension, (size, padded) in enumerate(zip(before.shape, after.shape, strict=True)):
        if size == padded:
            continue
        following = tuple(
            index for index, source in enumerate(sources) if (source.size, source.padded) == (size, padded)
        )
        if not following:
            raise CannotCutError(
                f"dimension {dimension} of {name} is {size}, and {padded} with padding, as no padded axis is"
            )
        found.append((dimension, following))
    return tuple(found)


def difference(exact: Any, cut: Any, tolerance: float) -> str | None:
    """The first difference between an exact result and the valid rows of a padded one, as text.

    Differences up to ``tolerance``, as a part of the largest value of the result, do not count.
    """
    was: list[Any] = []
    now: list[Any] = []
    spec = flatten(exact, was)
    flatten(cut, now)
    for name, before, after in zip(paths(spec, "result"), was, now, strict=True):
        if isinstance(before, torch.Tensor) and before is not after:
            apart = _apart(before, after, tolerance)
            if apart is not None:
                return f"{name} {apart}"
    return None


def _apart(before: torch.Tensor, after: torch.Tensor, tolerance: float) -> str | None:
    same = (before == after) | ((before != before) & (after != after))
    if bool(same.all()):
        return None
    if not (before.is_floating_point() or before.is_complex()):
        return "differs"
    apart = (before - after).abs().masked_fill(same, 0).nan_to_num(nan=float("inf")).amax().item()
    finite = before.abs().nan_to_num(nan=0.0, posinf=0.0)
    if apart <= tolerance * finite.amax().item():
        return None
    return f"differs by up to {apart:.3g}"
