"""The guard of a replay: the verdict of :class:`.guards.Guard`, in a few microseconds.

``docs/call.md`` says what is read. A dict whose version is the recorded one holds what it held; a version
says nothing about the tensors themselves, which may be given other memory where they lie (``.data = ...``),
so they are read word by word, and the versions and lengths of containers with them
(:mod:`..fingerprint.words`): two or three questions for a model of any kind, 0.5 us for four linear layers,
where asking each for its address, its metadata and its version took 3 us.

It is never the last word: where a version, an identity or a flag differs, the plain guard decides, and if
that holds, the new versions are the recorded ones. So the two agree on every state.

What does not work: comparing ``dict.values()`` with recorded ones by ``==``. It takes identity for equality
and is the quickest of all, but it asks tensors for equality where they differ, and it takes 1 for ``True``.
"""

from __future__ import annotations

from operator import call
from typing import Any

import torch

from ...base import identity
from ..arguments import Switches
from ..fingerprint import (
    NEVER,
    NOTHING,
    Held,
    Stage,
    Words,
    find_layout,
    is_readable,
    joined,
    portions,
)
from ..pytorch import metadata_check
from ..state import ASKED, BULK, DEFINED, ITEM, LENGTH, OPERATORS, ORDER, Argument, Entry
from .conditions import PLAIN_TENSORS, Condition
from .dicts import Dicts
from .guards import Guard

_data_ptr = torch.Tensor.data_ptr

_OF_KEYS = (BULK, DEFINED, LENGTH, OPERATORS, ORDER)
"""Kinds of slots that say which members a container has."""

MANY = 1
"""Tensors from which they are read word by word, where that is possible at all: a single one takes 0.3 us,
asked by name 0.8 us."""


class QuickGuard:
    """Checks a guard, which decides in the end, and switches that have to hold as well."""

    def __init__(self, guard: Guard, switches: Switches | None = None) -> None:
        self._guard = guard
        guard.forms.add(self)
        self._switches = switches
        self._dicts = Dicts()
        self._stages: tuple[Stage, ...] = (NEVER,)
        self._is_apart = self._is_read = False
        self._sort()
        self._look_at_tensors()
        self._forget()

    def _sort(self) -> None:
        """Choose how each slot is checked."""
        self._held = Held()
        covered = self._dicts.cover(self._guard)
        self._left: list[Condition] = []
        for condition in self._guard.conditions:
            places = range(len(condition.entries))
            left = [place for place in places if not self._is_known(condition, place, covered)]
            self._left += [condition.only(left)] if left else []

    def _is_known(self, condition: Condition, place: int, covered: set[int]) -> bool:
        """Whether the version of its container, or a word of memory, says what lies in a slot."""
        entry = condition.entries[place]
        if type(entry.container) is Argument:
            return False
        if self._dicts.answer(entry, covered) or self._is_switch(entry):
            return True
        covers = identity(entry.container) in covered
        if covers and entry.kind in _OF_KEYS:
            return True
        if covers and entry.kind == ITEM and condition.is_kept(place, self._held):
            return True
        return condition.is_read(place, self._held)

    def _is_switch(self, entry: Entry) -> bool:
        """Whether a slot is one of PyTorch's switches, which are asked anyway."""
        if entry.kind != ASKED or self._switches is None:
            return False
        return self._switches.say(entry.container, entry.value.value)

    def _look_at_tensors(self) -> None:
        """Note how the tensors are now."""
        watched = self._guard.tensors
        found = {id(tensor): (reference, address, tensor)
                 for reference, address in zip(watched.references, watched.addresses, strict=True)
                 if (tensor := reference()) is not None}  # fmt: skip
        layout = find_layout() if len(found) >= MANY else None
        read = [
            tensor
            for _, address, tensor in found.values()
            if layout is not None
            and type(tensor) in PLAIN_TENSORS
            and tensor.data_ptr() == address
            and is_readable(layout, tensor)
        ]
        self._words = Words(layout, read, flags=watched.asks_flags) if layout is not None else None
        for tensor in read:
            del found[id(tensor)]
        self._references = [reference for reference, _, _ in found.values()]
        self._addresses = [address for _, address, _ in found.values()]
        asked = [tensor for _, _, tensor in found.values()]
        plain = all(type(tensor) in PLAIN_TENSORS for tensor in asked)
        self._metadata = metadata_check(asked) if plain else None

    # ------------------------------------------------------------------ checking

    def holds(self) -> bool:
        """Whether everything is as it was."""
        if self._guard.tensors.dead:
            return False
        if self._is_apart and not self._dicts.same():
            return self._ask()
        for read_words, where, were in self._stages:
            if read_words(where).tobytes() != were:
                return self._ask()
        return self._is_read or (self._asked_same() and self._others_same()) or self._ask()

    def _ask(self) -> bool:
        """The plain guard decides; if it holds, the words read before it looked are the known ones."""
        if self._guard.still_differs():
            return False
        if self._switches is not None and not self._switches.holds():
            return False  # and nothing is forgotten: they may be set for a part of the calls
        was = self._dicts.forget()
        self._forget()
        now = self._dicts.look()
        if not self._tensors_same():
            self._look_at_tensors()
        if not self._guard.holds():
            return False
        if self._dicts.adopt(was, now):
            self._join()
        else:  # a dict changes again and again
            self._sort()
        return True

    def _forget(self) -> None:
        """Nothing is known: whatever is asked, the plain guard decides."""
        self._stages = (NEVER,)
        self._is_apart = False

    def _join(self) -> None:
        """The guard keeps containers alive as it does objects, so the words of both are read at once."""
        heads, members = self._held.stages()
        switches = self._switches.words if self._switches is not None else NOTHING
        heads = joined(joined(self._dicts.words, switches), heads)
        first, second, *others = self._words.stages if self._words is not None else (NOTHING, NOTHING)
        stages = (joined(first, heads), joined(second, members), *others)
        self._stages = tuple([part for each in stages for part in portions(each)]) or (NOTHING,)
        self._is_apart = self._dicts.apart
        self._is_read = not (self._references or self._dicts.empties or self._left)

    def _tensors_same(self) -> bool:
        if self._guard.tensors.dead:
            return False
        if self._words is not None and not self._words.same():
            return False
        return self._asked_same()

    def _asked_same(self) -> bool:
        """Whether the tensors whose words are not read are as they were."""
        if not self._references:
            return True
        if self._metadata is None:
            return False
        tensors: list[Any] = list(map(call, self._references))
        # In this order: where a class has changed, a tensor may answer in its own way, with the user's code.
        return self._metadata(*tensors) and list(map(_data_ptr, tensors)) == self._addresses

    def _others_same(self) -> bool:
        """Whether the slots that are not read word by word are as they were."""
        return not any(self._dicts.empties) and all([condition.holds() for condition in self._left])
