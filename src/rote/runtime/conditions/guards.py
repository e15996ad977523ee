"""Guards: is the Python state still what it was when the recording was made, and if not, what changed?

A guard is a list of conditions (:mod:`.conditions`) and the tensors that the recording reads in place
(:mod:`.watched`). The check is a handful of C loops; the explanation is slow and exact.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cached_property
from types import ModuleType
from typing import Any
from weakref import WeakSet

import numpy
import torch

from ...base import Site, identity, is_instance
from ..numbers import SCALARS, array_token, is_array
from ..objects import Content, Position, TensorMark, mark, pointer_of
from ..pytorch import plain_functions, was_destroyed
from ..state import (
    ATTRIBUTE,
    CELL,
    FOLLOWED,
    ITEM,
    LAST,
    LENGTH,
    LENGTHENED,
    LOOKED,
    NUMBERS,
    SAID,
    VARIABLE,
    Address,
    Argument,
    Difference,
    Entry,
    Reads,
    Snapshot,
    address_of,
    answer,
    form_of,
    is_among,
    read,
    show,
)
from .abandonment import is_plain, is_watched
from .conditions import Condition, conditions_of
from .paths import Followed, KnownPaths, Pairs, SlotPlace, can_pair
from .watched import Watched, WatchedTensors

OFTEN = 3
"""Other objects in one slot from which on those in it are followed."""


class Guard:
    """The state a recording depends on, in a form that is quick to check.

    Args:
        snapshot: The state when the recording was made.
        externals: Tensors that the recording reads in place, by storage handle.
        parameters: Parameters among the arguments, by storage handle, with their names.
        gradients: Gradients the recording may read: parameter name, parameter, gradient.
        readers: The user's line that first read each storage, by handle.
        arrays: Addresses of numpy arrays whose content is read again at every replay (not under guard).
        looked: Tensors that are not read, but asked for their shape, type, or whether they require grad.
        flags: Whether a tensor requires grad matters without gradients too.

    Attributes:
        entries: The slots under guard, with what lay in them.
        conditions: What has to hold of them.
        tensors: The tensors read in place.
        handles: Their storages.
        forms: Other forms of it that are in use, which hold what it holds.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        externals: dict[int, torch.Tensor],
        parameters: dict[int, tuple[str, torch.Tensor]],
        gradients: list[tuple[str, torch.Tensor, torch.Tensor]],
        readers: dict[int, Site],
        arrays: set[int],
        looked: Iterable[torch.Tensor] = (),
        *,
        flags: bool = False,
    ) -> None:
        self._arrays = arrays
        self._training = snapshot.training
        self._reads = snapshot.reads
        self._iterates = any([is_instance(entry.value, Position) for entry in snapshot.entries.values()])
        self._followed: Followed | None = None
        self.forms: WeakSet[Any] = WeakSet()
        self._moving = frozenset[int]()  # objects that were followed
        self._turns: Counter[Address] = Counter()  # how often another object lay in a slot
        self.entries = [
            kept for entry in snapshot.entries.values() if (kept := self._kept(entry)) is not None
        ]
        arrays_in_place = [entry for entry in self.entries if is_instance(entry.value, numpy.ndarray)]
        for entry in arrays_in_place:  # the array may get another shape, type or memory
            said, label = "__array_interface__", f"{entry.name} (how it lies)"
            self.entries.append(Entry(SAID, entry.value, said, answer(getattr(entry.value, said)), label))
        self.handles = set(externals)
        watched = [*_found(snapshot, externals, looked), *[(None, *each) for each in parameters.values()]]
        # Without gradients it changes nothing else whether a parameter requires grad.
        self.tensors = WatchedTensors(
            [Watched.of(*each, readers.get(each[2].untyped_storage()._cdata)) for each in watched],
            [tensor for _, _, tensor in watched],
            flags=flags or torch.is_grad_enabled(),
            known=self._known_tensors({id(tensor) for _, _, tensor in watched}),
        )
        for name, parameter, gradient in gradients:
            if gradient.untyped_storage()._cdata in externals:
                self.entries.append(Entry(ATTRIBUTE, parameter, "grad", mark(gradient), f"{name}.grad"))
        self._compile()

    def _kept(self, entry: Entry) -> Entry | None:
        """A slot as it is compared; None if it need not be."""
        if entry.kind == NUMBERS and is_among(entry, self._arrays) != (entry.key == LOOKED):
            return None  # read again at each replay; or by the slot that holds the array
        if self._arrays and self._is_reread(entry):
            return entry._replace(value=read(entry))
        if is_instance(entry.value, Position) and not entry.value.asked:
            return entry._replace(value=entry.value.value)  # what a replay does depends on which it is
        return entry

    def _is_reread(self, entry: Entry) -> bool:
        if not isinstance(entry.value, Content):
            return False
        now = read(entry)
        return isinstance(now, numpy.ndarray) and pointer_of(now) in self._arrays

    def _known_tensors(self, watched: AbstractSet[int]) -> list[torch.Tensor]:
        """The other tensors in slots that are asked for an identity alone."""
        slots = [each for each in self.entries if each.kind == ITEM and is_instance(each.value, TensorMark)]
        found = [read(each) for each in slots if each.value.identity not in watched]
        return list({id(each): each for each in found if is_instance(each, torch.Tensor)}.values())

    def _compile(self) -> None:
        """Sort the slots by how they are compared."""
        self.conditions = conditions_of(self.entries, self.tensors.where())
        self._doubt: Condition | None = None

    def holds(self) -> bool:
        """Whether everything is as it was; equal plain values under another identity are accepted.

        The slot that differed last is asked first. Where one number has changed for good, each call asks the
        guard for nothing, and that costs one question then, not all of them.
        """
        if self.still_differs() or not self.tensors.holds():
            return False
        for condition in self.conditions:
            if not condition.holds():
                self._doubt = condition.first_differing()
                return False
        return True

    def still_differs(self) -> bool:
        """Whether the slot that differed last does so now; if not, the guard may hold or not."""
        return self._doubt is not None and not self._doubt.holds()

    def moved(self) -> Guard | None:
        """The guard over other objects that lie in the place of those that were read, and read the same.

        Returns:
            It, if it holds; None if nothing is moved, or something else has changed.
        """
        if self.tensors.dead or self._is_refuted():
            return None
        whole = self._unfolded()
        pairs = whole._pairs()
        if pairs is None or not pairs.are_one_to_one():
            return None
        other = whole._follow(pairs)
        return other if other.holds() else None

    def _is_refuted(self) -> bool:
        """Whether one slot says that no objects could lie in the place of others and read the same.

        It does if what differed last still does, can have nothing in its place, and lies where it lay. That
        takes a few reads, and to look for what has been replaced one for each slot.
        """
        if self._followed is not None or not self.still_differs() or self._doubt is None:
            return False
        (entry,) = self._doubt.entries
        return not can_pair(type(entry.value)) and self._known.lies_as_before(entry.container)

    def _pairs(self) -> Pairs | None:
        """Objects in slots that differ, with what lies there now; None if there are none."""
        pairs = Pairs(self._known)
        for place in self._differing():
            if id(place.entry.container) not in pairs.found and not pairs.agree([place]):
                return None
        return pairs if pairs.found else None

    def _differing(self) -> list[SlotPlace]:
        """The slots that hold other objects than they did."""
        found = [place for each in self.conditions for place in each.differing()]
        return [place for place in found if can_pair(type(place.was))]

    @cached_property
    def _known(self) -> KnownPaths:
        return KnownPaths.from_slots(self.entries, self._reads)

    def _copy(self) -> Guard:
        """The same guard, with slots and names of its own."""
        other = copy(self)
        for name in ("_bare_containers", "_known"):
            other.__dict__.pop(name, None)
        return other

    def _unfolded(self) -> Guard:
        """A guard without slots that are followed."""
        if self._followed is None:
            return self
        other = self._copy()
        other._reads, other._followed, other._moving = self.reads, None, self._followed.objects
        own = [entry for entry in self.entries if entry.kind != FOLLOWED]
        other.entries = [*own, *self._followed.entries]
        other._compile()
        return other

    def _follow(self, pairs: Pairs) -> Guard:
        """A guard about the objects that lie in the place of others."""
        other, found = self._copy(), pairs.found
        other.entries = [pairs.follow_entry(entry) for entry in self.entries]
        other._reads = Reads.of(map(pairs.follow, self._reads), self._reads.pinned)
        roots = [entry for entry in self.entries
                 if id(entry.value) in found and id(entry.container) not in found]  # fmt: skip
        turns = Counter([address_of(*entry[:3]) for entry in roots])
        other._turns = self._turns + turns
        if self._moving or max([other._turns[each] for each in turns], default=0) >= OFTEN:
            before = [found[each][1] for each in self._moving & found.keys()]
            moving = {id(now) for now in (*before, *[now for _, now in found.values()])}
            other._fold(moving | (self._moving - found.keys()))
        other._watch_again(pairs)
        other._compile()
        return other

    def _fold(self, moving: AbstractSet[int]) -> None:
        """Objects are replaced again and again in some slots: what is read of them is compared apart."""
        known, reads = self._known, self._reads
        inner = [entry for entry in self.entries if id(entry.container) in moving]
        rest = [entry for entry in self.entries if id(entry.container) not in moving]
        roots = [entry for entry in rest if id(entry.value) in moving]
        self.entries = [entry for entry in rest if id(entry.value) not in moving]
        listed = {address_of(*entry[:3]) for entry in inner}
        of_them = [each for each in reads if id(each.container) in moving]
        inner += [Entry(*each[:4], each.name) for each in of_them if each.address not in listed]
        others = [each for each in reads if id(each.container) not in moving and id(each.value) not in moving]
        self._reads = Reads.of(others, reads.pinned)
        ids = frozenset({*known.of, *known.holders}.difference(moving))
        self._followed = Followed(roots, inner, moving, KnownPaths({}, {}, reads.pinned, {}, ids))
        self._moving = frozenset()
        self.entries.append(Entry(FOLLOWED, self._followed, None, Content(True), ""))
        self.__dict__.pop("_known", None)

    def _watch_again(self, pairs: Pairs) -> None:
        """Watch the tensors that are read in place, in the slots in which they lie now."""
        moving = self._followed.objects if self._followed is not None else frozenset[int]()

        def follow(entry: Entry) -> Entry | None:
            entry = pairs.follow(entry)
            return None if id(entry.container) in moving else entry

        self.tensors = self.tensors.again(follow)

    @property
    def reads(self) -> Reads:
        """What was read of the objects that are under guard."""
        if self._followed is None:
            return self._reads
        return Reads.of([*self._reads, *self._followed.reads], self._reads.pinned)

    def covers(self, reads: Reads) -> bool:
        """Whether everything that a call read is under guard here."""
        return reads.slots.keys() <= self.reads.slots.keys()

    @property
    def ignores(self) -> bool:
        """Whether a call may change slots, or find other objects there, without the guard noticing."""
        return self._iterates or self._followed is not None

    @property
    def containers(self) -> frozenset[int]:
        """Identities of what the slots under guard lie in, if it holds."""
        if self._followed is None or not self._followed.holds():
            return self._bare_containers
        return self._bare_containers | self._followed.objects

    @cached_property
    def _bare_containers(self) -> frozenset[int]:
        return frozenset([id(entry.container) for entry in self.entries])

    @property
    def _all_entries(self) -> list[Entry]:
        return [*self.entries, *(self._followed.entries if self._followed is not None else ())]

    def reachable(self) -> list[tuple[str, torch.Tensor]]:
        """Every tensor in the slots under guard, read in place or not."""
        slots = [entry for entry in self._all_entries if isinstance(entry.value, TensorMark)]
        found = [(entry.name, read(entry)) for entry in slots]
        return [(name, tensor) for name, tensor in found if isinstance(tensor, torch.Tensor)]

    def plainly(self, kinds: AbstractSet[type]) -> Iterator[tuple[str, Any]]:
        """The slots under guard that hold tensors or values of some types: name, and what lies there."""
        for entry in self._all_entries:
            known = type(entry.value) in kinds or isinstance(entry.value, TensorMark)
            of_function = type(entry.key) is str and entry.key.startswith("__")  # defaults, and the like
            if known and not of_function and entry.kind in (ITEM, ATTRIBUTE, CELL, VARIABLE):
                yield entry.name, read(entry)

    def changed_numbers(self) -> list[tuple[Address, Any, Any]]:
        """The slots that hold another number than they did, of the same type: what they held, and hold.

        Of arrays it is said what tells them apart.
        """
        places = [place for condition in self.conditions for place in condition.differing()]
        found = [(place, *_numbers_at(place)) for place in places]
        return [
            (address_of(*place.entry[:3]), was, now)
            for place, was, now in found
            if type(was) is type(now)
            and type(was) in SCALARS
            and place.entry.kind in (ITEM, ATTRIBUTE, CELL, LENGTH, LAST)
            and type(place.entry.container) is not Argument
        ]

    def replaced(self) -> list[Any]:
        """The objects under guard that were replaced where they lay, and that may keep others alive.

        An object of plain values is none of them, unless its identity matters or its death is noticed.
        """
        slots = [entry for entry in self._all_entries if _keeps_others(entry.value)]
        found = [entry.value for entry in slots if read(entry) is not entry.value]
        pinned = self.reads.pinned
        return [
            value for value in found if identity(value) in pinned or is_watched(value) or not is_plain(value)
        ]

    def users(self) -> set[int]:
        """Identities of the objects under guard, which are the caller's."""
        return {id(part) for entry in self._all_entries for part in (entry.container, entry.value)}

    def changed(self, bound: Collection[Address]) -> list[Difference]:
        """What a call has changed that found everything as it was.

        That is without slots that a replay has ``bound``, and without gradients, which are judged apart.
        """
        return [] if self.holds() else self.explain(bound)

    def explain(self, bound: Collection[Address] | None = None) -> list[Difference]:
        """Every slot that differs from the recording, moved tensors first."""
        with plain_functions():
            found = self.tensors.differences()
            known = {difference.name for difference in found}
            places = [place for condition in self.conditions for place in condition.differing()]
            if bound is not None:
                changed = [each for each in places if not _is_gradient(each.entry)]
                places = [each for each in changed if address_of(*each.entry[:3]) not in bound]
            found += [self._difference(each) for each in places if each.entry.name not in known]
        return sorted(found, key=lambda difference: (not difference.moved, "(" in difference.name))

    def _difference(self, place: SlotPlace) -> Difference:
        """What differs in a slot, in words."""
        entry, suffix, was, now = self._deepest(place)
        group = self._training.groups.get(id(entry.container))
        scheduler = self._training.schedulers.get(id(entry.container))
        moved = is_instance(was, TensorMark)
        name = entry.name + suffix
        return Difference(name, show(was), show(now), moved, None, group, entry.key, scheduler)

    def _deepest(self, place: SlotPlace) -> SlotPlace:
        """What differs in a slot; where another object of the same class lies there, what differs in that."""
        if place.entry.kind == FOLLOWED:
            inner = place.entry.container.difference()
        else:
            pairs = Pairs(self._known)
            agrees = not can_pair(type(place.now)) or pairs.agree([place])
            inner = place if agrees else pairs.difference or place
        return inner._replace(now=form_of(inner.was, inner.now))


def _numbers_at(place: SlotPlace) -> tuple[Any, Any]:
    """What lay and lies in a slot; a number for the content of an array."""
    if place.entry.kind == LENGTH and type(place.entry.container) in LENGTHENED:
        return place.was.value, place.now.value
    if is_array(place.now) and type(place.was) is Content:
        return hash(place.was), hash(form_of(place.was, place.now))
    if is_array(place.now) and is_array(place.was):
        return hash(array_token(place.was)), hash(array_token(place.now))
    return place.was, place.now


def _keeps_others(value: Any) -> bool:
    known = (TensorMark, Content, Position, type, ModuleType)
    return was_destroyed(value) or (gc.is_tracked(value) and not is_instance(value, known))


def _is_gradient(entry: Entry) -> bool:
    return entry.kind == ATTRIBUTE and entry.key == "grad" and isinstance(entry.container, torch.Tensor)


def _found(
    snapshot: Snapshot, externals: Iterable[int], looked: Iterable[torch.Tensor]
) -> Iterator[tuple[Entry, str, torch.Tensor]]:
    """The slots of tensors that are read in place, or looked at, with their names."""
    for handle in externals:
        for entry, tensor in snapshot.tensors.get(handle, ()):
            yield entry, entry.name, tensor
    for tensor in looked:
        with plain_functions():
            entries = snapshot.tensors.get(tensor.untyped_storage()._cdata, ())
        for entry, found in entries:
            if found is tensor:
                yield entry, entry.name, tensor
