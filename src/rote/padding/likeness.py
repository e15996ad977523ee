"""Did a padded call do what the exact one did? The operations of the two, compared one by one.

Values may agree by chance: a softmax that is saturated hides that its input was multiplied by the number of
rows, a sum that the padded rows add nothing on these values. So the programs have to agree too: the same
operations on the same tensors, with the same numbers, but for lists of sizes, in which a padded size (or a
multiple of it) may stand for the exact one. And no operation may take a padded tensor and return one without
the padded axis: it would join the rows, or choose among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ..runtime.program import Event, Token
from .rows import PaddedAxis


def program_difference(
    was: Sequence[Event], now: Sequence[Event], sources: Sequence[PaddedAxis]
) -> str | None:
    """Say where a padded call went another way than the exact one.

    Args:
        was: What the exact call did.
        now: What the padded one did.
        sources: What was padded.
    """
    for before, after in zip(was, now, strict=False):
        if before.operation != after.operation:
            return f"{before.operation} at {before.site} is {after.operation} with padding"
        if not _operands(before.operands, after.operands, sources):
            return f"{before.operation} at {before.site} takes another number or tensor with padding"
        if not _alike(before.results, after.results, sources):
            return f"{before.operation} at {before.site} has other results with padding"
        if _joins(before, after):
            return f"{before.operation} at {before.site} joins rows: its result has no padded axis"
    return None if len(was) == len(now) else "the number of operations depends on the size"


def _joins(was: Event, now: Event) -> bool:
    """Whether an operation takes a tensor whose shape padding changes, and returns one that is the same."""
    taken = zip(_tokens(was.operands), _tokens(now.operands), strict=True)
    if all(before.shape == after.shape for before, after in taken):
        return False
    made = zip(_tokens(was.results), _tokens(now.results), strict=True)
    return any(before.shape == after.shape for before, after in made)


def _tokens(value: Any) -> list[Token]:
    if isinstance(value, Token):
        return [value]
    if type(value) is not tuple:
        return []
    return [token for each in cast("tuple[Any, ...]", value) for token in _tokens(each)]


def _operands(was: Any, now: Any, sources: Sequence[PaddedAxis]) -> bool:
    """Compare the operands of an operation, as :func:`~..runtime.program.events.operands_of` wrote them."""
    if _named(was) and _named(now):
        names = [[name for name, _ in operands[1]] for operands in (was, now)]
        values = [tuple(value for _, value in operands[1]) for operands in (was, now)]
        return names[0] == names[1] and all(
            _each(one, two, sources) for one, two in ((was[0], now[0]), (values[0], values[1]))
        )
    return _each(was, now, sources)


def _named(operands: Any) -> bool:
    """Whether there are keyword operands: positional ones and pairs of name and value."""
    if type(operands) is not tuple or len(cast("tuple[Any, ...]", operands)) != 2:
        return False
    positional, named = cast("tuple[Any, Any]", operands)
    if type(positional) is not tuple or type(named) is not tuple:
        return False
    pairs = cast("tuple[Any, ...]", named)
    return bool(pairs) and all(
        type(pair) is tuple and len(pair) == 2 and type(pair[0]) is str for pair in pairs
    )


def _each(was: Any, now: Any, sources: Sequence[PaddedAxis]) -> bool:
    if type(was) is not tuple or type(now) is not tuple:
        return _alike(was, now, sources)
    before, after = cast("tuple[Any, ...]", was), cast("tuple[Any, ...]", now)
    return len(before) == len(after) and all(
        _alike(one, two, sources) for one, two in zip(before, after, strict=True)
    )


def _alike(was: Any, now: Any, sources: Sequence[PaddedAxis]) -> bool:
    if isinstance(was, Token) and isinstance(now, Token):
        return (was.origin, was.dtype, was.on_host) == (now.origin, now.dtype, now.on_host)
    if was == now:
        return True
    if type(was) is not tuple or type(now) is not tuple:
        return False
    before, after = cast("tuple[Any, ...]", was), cast("tuple[Any, ...]", now)
    if len(before) != len(after):
        return False
    sizes = all(type(each) is int for each in (*before, *after))
    return all(
        _scaled(one, two, sources) if sizes else _alike(one, two, sources)
        for one, two in zip(before, after, strict=True)
    )


def _scaled(was: int, now: int, sources: Sequence[PaddedAxis]) -> bool:
    return was == now or any(was * source.padded == now * source.size for source in sources)
