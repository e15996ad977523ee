"""What a replay can give back where one of its operations raises.

Eager calls raise at an operation and have done all that stands before it, in Python too: slots are bound, a
handler may catch the error. A replay knows operations alone. So what it wrote before one that raised is taken
back, and the call is made plainly. Memory of the recording's own is nobody else's, and stays as it is.

Only what stands before an operation that may raise is kept, up to the end of the segment: an optimizer that
steps at the end of a call costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch

from ...operators import tensors_in
from ...pytorch import below_autograd
from ..protocol import NumberCell, holds
from .program import Modes, Program, ReplayStep
from .tape import Entry, LaunchEntry, TapePlace, places
from .torch_private import inference_guard

SMALL = 1 << 16
"""Bytes that are kept whatever an operation reads."""


class SeenByOthers(NamedTuple):
    """What an entry changes that others see.

    Attributes:
        outside: Tensors that were not made in the session.
        shown: Places in memory of the session that somebody holds, as gradients are.
        generators: Those that it may draw from.
    """

    outside: list[torch.Tensor]
    shown: list[TapePlace]
    generators: list[torch.Generator]


class Journal:
    """What the last replay of one segment wrote over.

    Attributes:
        raised: An operation raised in it.
        stays: It has written what would take long to keep, so it is not undone.
    """

    def __init__(self) -> None:
        self.raised = self.stays = False
        self._tensors: list[tuple[Modes, torch.Tensor, torch.Tensor]] = []
        self._states: list[tuple[torch.Generator, torch.Tensor]] = []

    def before(
        self,
        step: ReplayStep,
        modes: Modes,
        tensors: Sequence[torch.Tensor],
        generators: Sequence[torch.Generator],
    ) -> ReplayStep:
        """A step that keeps what it changes."""
        if not (tensors or generators):
            return step
        call = step.call

        def run(*args: Any, **kwargs: Any) -> Any:
            self._tensors += [(modes, each, each.clone()) for each in tensors]
            self._states += [(each, each.get_state()) for each in generators]
            return call(*args, **kwargs)

        return step._replace(call=run)

    def without(self, step: ReplayStep) -> ReplayStep:
        """A step behind which nothing is undone."""
        call = step.call

        def run(*args: Any, **kwargs: Any) -> Any:
            self.stays = True
            return call(*args, **kwargs)

        return step._replace(call=run)

    def around(self, program: Program, *, keeps: bool) -> Program:
        """A program that is told when it raises.

        Args:
            keeps: A later segment may raise, and then this one is taken back, too.
        """

        def replay() -> None:
            self.raised = self.stays = False
            self.forget()
            try:
                program()
            except BaseException:
                self.raised = True
                raise
            if not keeps:
                self.forget()

        return replay

    def put_back(self) -> None:
        """Undo what the last replay did, last things first."""
        self.raised = False
        for modes, tensor, values in reversed(self._tensors):
            with inference_guard(modes.inference), below_autograd():
                tensor.copy_(values)
        for generator, state in reversed(self._states):
            generator.set_state(state)
        self.forget()

    def forget(self) -> None:
        """Nothing can be undone any more."""
        self._tensors.clear()
        self._states.clear()


def may_raise(entry: Entry) -> bool:
    """Whether an entry may raise for some values, or for numbers of which nobody knows what they decide."""
    if isinstance(entry, LaunchEntry) or entry.literal is not None:
        return False
    facts = entry.operation.facts
    return not facts.total or (not facts.parameters and holds(NumberCell, entry.args, entry.kwargs))


def touched(entry: Entry) -> SeenByOthers:
    """What an entry changes that others see."""
    if isinstance(entry, LaunchEntry):
        return SeenByOthers(*_split(entry.tensors[entry.given :]), [])
    if entry.literal is not None:
        return SeenByOthers([], [], [])
    facts, args, kwargs = entry.operation.facts, entry.args, entry.kwargs
    written = [args[n] if n < len(args) else kwargs.get(name) for n, name in facts.written]
    if facts.training is not None and facts.training < len(args) and args[facts.training] is False:
        written = []
    outside, shown = _split(written)
    shown += [each.place for each in entry.products if each.place.block.storage() is not None]
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)]
    drawn = given or [torch.default_generator] if facts.seeded else []
    return SeenByOthers(outside, shown, drawn)


def is_dear(entry: Entry, step: ReplayStep, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an entry writes a part of something much larger, as what puts a row into a cache does."""
    if isinstance(entry, LaunchEntry) or entry.operation.facts.total:
        return False  # it writes all of it
    operands = tensors_in((*step.args, *step.kwargs.values()), [])
    written = {each.untyped_storage()._cdata for each in tensors}
    read = [each.nbytes for each in operands if each.untyped_storage()._cdata not in written]
    return sum([each.nbytes for each in tensors]) > max(SMALL, 2 * sum(read))


def _split(operands: Sequence[Any]) -> tuple[list[torch.Tensor], list[TapePlace]]:
    shown = [place for place in _places(operands) if place.block.storage() is not None]
    return tensors_in([_bare(each) for each in operands], []), shown


def _places(operands: Sequence[Any]) -> Iterator[TapePlace]:
    for each in operands:
        yield from places(each)


def _bare(operand: Any) -> Any:
    """An operand without places, which are tuples that hold no tensor."""
    if isinstance(operand, TapePlace):
        return None
    return [_bare(each) for each in cast("list[Any]", operand)] if isinstance(operand, list) else operand
