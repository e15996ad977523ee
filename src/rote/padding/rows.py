"""Padding arguments, and finding the valid rows in what comes out.

Rows are padded with copies of the last one: a copy brings no value that was not there, so indices stay in
range, logarithms finite, and what is true of all rows or of any stays so. Whether rows meet is found out by
padding with other things as well (see :func:`fills`): a sum, a mean, a maximum over the axis changes then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..runtime.arguments import flatten, paths, unflatten
from ..runtime.program import OWN, VIEW, Template

Fill = Callable[[torch.Tensor, int, int], torch.Tensor]
"""Makes rows to pad with, from a tensor, the axis, and how many are needed."""


class PaddedAxis(NamedTuple):
    """An axis of an argument that is padded.

    Attributes:
        name: The argument, for messages.
        place: Where it is given: its position, or its keyword.
        axis: The axis.
        size: Its size in the call.
        padded: The size it is padded to.
    """

    name: str
    place: int | str
    axis: int
    size: int
    padded: int

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.name} is padded from {self.size} to {self.padded}"


def fills(tensor: torch.Tensor) -> list[Fill]:
    """What a tensor is padded with: first as in use, then to see whether padding shows.

    Numbers are tried that are larger and smaller than all there are, and some from all over their range;
    where numbers may be indices, only those that are there.
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
    """Pad arguments.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        sources: The axes; none of their sizes is 0.
        variation: Which of the fills to use; the first is the one in use.
    """
    positional, named = list(args), dict(kwargs)
    for source in sources:
        values: Any = positional if isinstance(source.place, int) else named
        tensor = values[source.place]
        found = fills(tensor)
        fill = found[min(variation, len(found) - 1)]
        rows = fill(tensor, source.axis, source.padded - source.size)
        values[source.place] = torch.cat([tensor, rows], source.axis)
    return tuple(positional), named


VARIATIONS = 5
"""The most fills there are for a type."""


@dataclass(frozen=True)
class ResultCut:
    """How the results of padded calls are cut back to the valid rows.

    Attributes:
        leaves: For each leaf of the result the dimensions to cut, each with the sources it may follow.
    """

    leaves: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]

    def fits(self, sources: Sequence[PaddedAxis]) -> bool:
        """Whether the sizes of a call say of every dimension how much of it is valid."""
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
        """The cut that two checks agree on, or None if they contradict each other."""
        found: list[tuple[tuple[int, tuple[int, ...]], ...]] = []
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
    """Why the valid rows of a result cannot be told; the text is for people."""


def find_cut(template: Template, exact: Any, padded: Any, sources: Sequence[PaddedAxis]) -> ResultCut:
    """Compare the shapes of an exact and a padded result.

    Raises:
        CannotCutError: A size of a result differs in another way than a padded axis does.
    """
    was: list[Any] = []
    now: list[Any] = []
    spec = flatten(exact, was)
    if flatten(padded, now) != spec:
        raise CannotCutError("the structure of the result depends on the size")
    found: list[tuple[tuple[int, tuple[int, ...]], ...]] = []
    for name, leaf, before, after in zip(paths(spec, "result"), template.leaves, was, now, strict=False):
        if leaf.kind in (OWN, VIEW):
            found.append(_dimensions(name, before, after, sources))
        elif isinstance(before, torch.Tensor):
            found.append(())
        else:
            if type(before) is not type(after) or before != after:
                raise CannotCutError(f"{name} is {before!r:.40}, and {after!r:.40} with padding")
            found.append(())
    return ResultCut(tuple(found))


def _dimensions(
    name: str, before: torch.Tensor, after: torch.Tensor, sources: Sequence[PaddedAxis]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
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
    """Say which part of a result differs from the exact one.

    Args:
        exact: The exact result.
        cut: The valid rows of a padded one.
        tolerance: Largest difference that counts as equal, as a part of the largest value of the result.
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
