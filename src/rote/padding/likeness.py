"""The operations of an exact call and of a padded one, compared one by one.

Values may agree by chance: a saturated softmax hides that its input was multiplied by the number of rows, a
sum hides padded rows that add nothing on these values. So the programs have to agree too: the same operations
on the same tensors, with the same numbers. Only in lists of sizes a padded size, or a multiple of it, may
stand for the exact one. And no operation may take a padded tensor and return one without the padded axis: it
would join the rows, or choose among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..runtime.program import Number, Operand, Operation, Token
from .rows import PaddedAxis


def program_difference(
    was: Sequence[Operation], now: Sequence[Operation], sources: Sequence[PaddedAxis]
) -> str | None:
    """The first difference between the operations of the two, as text."""
    for before, after in zip(was, now, strict=False):
        if before.name != after.name:
            return f"{before.name} at {before.site} is {after.name} with padding"
        if not _operands(before, after, sources):
            return f"{before.name} at {before.site} takes another number or tensor with padding"
        if not _same_results(before, after):
            return f"{before.name} at {before.site} has other results with padding"
        if _joins(before, after):
            return f"{before.name} at {before.site} joins rows: its result has no padded axis"
    return None if len(was) == len(now) else "the number of operations depends on the size"


def _joins(was: Operation, now: Operation) -> bool:
    """Whether padding changes the shape of a taken tensor, but not that of a returned one."""
    taken = zip(was.tokens, now.tokens, strict=True)
    if all(before.shape == after.shape for before, after in taken):
        return False
    made = zip(was.results, now.results, strict=True)
    return any(isinstance(before, Token) and before.shape == after.shape for before, after in made)


def _same_results(was: Operation, now: Operation) -> bool:
    return len(was.results) == len(now.results) and all(
        _same_tensor(one, two) if isinstance(one, Token) and isinstance(two, Token) else one == two
        for one, two in zip(was.results, now.results, strict=True)
    )


def _operands(was: Operation, now: Operation, sources: Sequence[PaddedAxis]) -> bool:
    """Whether two operations take the same, where a padded size may stand for the exact one."""
    names = [[name for name, _ in each.named] for each in (was, now)]
    before, after = was.every_operand, now.every_operand
    return (
        names[0] == names[1]
        and len(before) == len(after)
        and all(_alike(one, two, sources) for one, two in zip(before, after, strict=True))
    )


def _alike(was: Operand, now: Operand, sources: Sequence[PaddedAxis]) -> bool:
    if isinstance(was, Token) and isinstance(now, Token):
        return _same_tensor(was, now)
    if was == now:
        return True
    if type(was) is not tuple or type(now) is not tuple:
        return False
    before, after = cast("tuple[Operand, ...]", was), cast("tuple[Operand, ...]", now)
    if len(before) != len(after):
        return False
    sizes = all(type(each) is Number and each.kind is int for each in (*before, *after))
    return all(
        _scaled(one, two, sources) if sizes else _alike(one, two, sources)
        for one, two in zip(before, after, strict=True)
    )


def _same_tensor(was: Token, now: Token) -> bool:
    return (was.origin, was.dtype, was.on_host) == (now.origin, now.dtype, now.on_host)


def _scaled(was: Number, now: Number, sources: Sequence[PaddedAxis]) -> bool:
    return was == now or any(
        was.bits * source.padded == now.bits * source.size  # pyright: ignore[reportOperatorIssue]
        for source in sources
    )
