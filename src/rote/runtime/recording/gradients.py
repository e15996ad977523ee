"""The ``.grad`` slots that replays fill, and whether they are still as the last replay left them.

A step with two backwards and two optimizers may add to what the call before it has left, and replace it: the
backward of a generator goes through its critic, whose gradients are cleared behind it. So it finds them
somewhere else in each call. Where nobody but the slot holds such a gradient, nobody can tell where it lies:
before a call it is moved to where an observed one has found it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from functools import cache

import torch

from ..arguments import describe_tensor
from ..autograd import note_gradients
from ..fingerprint import WatchedWords
from ..program import GradientEffect, GradientSlot, slot_of
from ..pytorch import plain_functions, storage_owners, tensor_owners

NOTES = 8
"""How often the slots are noted anew; it takes longer than to ask them once."""

Present = Sequence[tuple[weakref.ref[torch.Tensor], GradientSlot]]
"""Slots that a recording depends on, with what lay in them."""


def hooks_hold(passed: Present) -> bool:
    """Whether autograd would call as many hooks of some tensors as when a recording was made."""
    with plain_functions():
        for reference, slot in passed:  # which say nothing of gradients
            tensor = reference()
            if tensor is None or slot_of(tensor, None) != slot:
                return False
    return True


class ShownGradients:
    """The slots of one recording.

    Attributes:
        effects: The slots that replays fill.
        copies: Gradients are copied into memory of the caller's own, since somebody holds earlier ones, since
            of a sharded one it is not known who does, or since several lie in one memory.
    """

    def __init__(self, *, copies: bool = False) -> None:
        self.effects: list[GradientEffect] = []
        self.copies = copies
        self._words: WatchedWords | None = None
        self._resting: WatchedWords | None = None  # of empty slots, with gradients that nobody holds
        self._notes = 0

    def stand(self) -> bool:
        """Whether the slots are known to be as the last replay left them, and to be nobody else's."""
        return self._words is not None and self._words.same()

    def _rest(self) -> bool:
        """Whether all slots are known to be empty, and the gradients that were shown there to be nobody's."""
        if self._resting is None or not self._resting.same():
            return False
        return not any([vars(effect.shown) for effect in self.effects if effect.shown is not None])

    def hold(self, present: Present) -> bool:
        """Whether the slots are as they were when the recording was made."""
        if self.stand() or self._rest():
            return True
        with plain_functions():  # to ask a tensor of the user's class is not to use it
            for reference, slot in present:
                parameter = reference()
                if parameter is None or slot_of(parameter, parameter.grad) != slot:
                    return False
        return True

    def add(self, fresh: list[GradientEffect]) -> None:
        """A newly recorded path fills more slots."""
        self.effects = [*self.effects, *fresh]
        storages = [effect.storage._cdata for effect in fresh if effect.storage is not None]
        beside = len({*storages}) < len(storages)
        self.copies = self.copies or beside or any([effect.spread is not None for effect in fresh])
        self.forget()

    def forget(self) -> None:
        """The slots have to be looked at one by one."""
        self._words = self._resting = None

    def withdraw(self, present: Present) -> bool:
        """Before a replay: False if somebody still holds a gradient in memory that it is about to write."""
        self._words = None  # they are those of gradients that may be gone now
        if self.copies or self._rest():
            return True
        self._resting = None
        with plain_functions():
            if not all([effect.withdraw() for effect in self.effects]):
                return False
            rests = self._notes < NOTES and all([effect.rests() for effect in self.effects])
        if rests and self.hold(present):
            self._notes += 1
            self._resting = note_gradients(present, self.effects)
        return True

    def show(self, effects: list[GradientEffect], present: Present) -> None:
        """After a replay: fill the slots, and note them so that the next one need not ask each."""
        with plain_functions():
            for effect in effects:
                effect.hand_out(self.copies)
        self._words = None
        if not present or self.copies or self._notes >= NOTES:
            return
        if self.hold(present):
            self._notes += 1
            self._words = note_gradients(present, self.effects)

    def copy_from_now(self) -> None:
        """Leave to others what they hold: gradients get memory of their own at each replay."""
        self.copies = True

    def restore(self) -> None:
        """Put back what lay in the slots before the last replay."""
        for effect in self.effects:
            effect.restore()

    def put_back(self) -> None:
        """The rest of the call runs in Python: it finds the slots as it would have."""
        for effect in self.effects:
            effect.put_back()

    def release(self) -> None:
        """The recording is gone."""
        self.effects = []
        self.forget()


class FoundGradients:
    """Gradients that a call found in slots, read and replaced: the tensors, and so their memory."""

    def __init__(self) -> None:
        self._homes: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []

    def keep(self, found: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Keep these gradients, each behind its parameter."""
        self._homes = [(weakref.ref(parameter), gradient) for parameter, gradient in found]

    def nbytes(self) -> int:
        """Bytes of those that lie in no slot now."""
        with plain_functions():
            return sum([home.nbytes for reference, home in self._homes if not _lies_in(reference(), home)])

    def bring_back(self, effects: Iterable[GradientEffect]) -> bool:
        """Move gradients to where the call has found those before, if nobody can tell; whether any was."""
        if not self._homes:
            return False
        moved = False
        with plain_functions(), torch.no_grad():
            shown = {id(each.shown) for each in effects if each.shown is not None and each.stands()}
            for reference, home in self._homes:
                parameter = reference()
                if parameter is None or parameter.grad is None or parameter.grad is home:
                    continue
                if _held(home) == _of_kept() and _can_move(parameter, home, id(parameter.grad) in shown):
                    home.copy_(parameter.grad)
                    parameter.grad, moved = home, True
        return moved

    def has(self, gradient: torch.Tensor) -> bool:
        """Whether others are moved to where a gradient lies."""
        return any([home is gradient for _, home in self._homes])


def _lies_in(parameter: torch.Tensor | None, gradient: torch.Tensor) -> bool:
    return parameter is not None and parameter.grad is gradient


def _can_move(parameter: torch.Tensor, home: torch.Tensor, shown: bool) -> bool:
    """Whether a gradient looks like the one in whose place it would come, and is in nobody else's hands.

    Args:
        shown: A replay has put it there, and it is known that nobody else has taken it.
    """
    gradient = parameter.grad
    if type(gradient) is not torch.Tensor or gradient.requires_grad or gradient.__dict__:
        return False
    if describe_tensor(gradient) != describe_tensor(home) or gradient.is_inference() != home.is_inference():
        return False
    return shown or _held(gradient) == _of_slot()


def _held(gradient: torch.Tensor) -> tuple[int, int, int]:
    """References to a gradient from Python, to its memory, and to it from C++."""
    return sys.getrefcount(gradient), storage_owners(gradient.untyped_storage()), tensor_owners(gradient)


@cache
def _of_slot() -> tuple[int, int, int]:
    """The same of a gradient that nobody but its slot holds."""
    parameter = torch.zeros(1, requires_grad=True)
    parameter.grad = torch.zeros(1)
    gradient = parameter.grad
    return _held(gradient)


@cache
def _of_kept() -> tuple[int, int, int]:
    """The same of one that is kept for others to come in its place."""
    kept = [(None, torch.zeros(1))]
    for _, home in kept:
        return _held(home)
    raise AssertionError
