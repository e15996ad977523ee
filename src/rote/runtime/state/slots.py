"""Slots of Python state: their values now, comparison with earlier values, and the text of a difference."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import is_
from typing import Any

import numpy
import torch

from ...base import Site, bits_of, cut, is_instance
from ..objects import (
    PROXIES,
    UNSET,
    Content,
    DefinedOperators,
    Members,
    ParameterGroup,
    Position,
    Remembered,
    TensorMark,
    cached_in,
    counted,
    exact,
    hooks_of,
    is_bound_method,
    mark,
    pointer_of,
    text_of,
)
from ..pytorch import has_memory
from .executed import ExecutedCode
from .kinds import (
    CACHED,
    DEFINED,
    ITEM,
    LAST,
    LENGTH,
    LOOKED,
    MISSING,
    NUMBERED,
    NUMBERS,
    RESULT,
    Entry,
    container_of,
    read,
)
from .reads import Address, Read, Reads
from .snapshot import Snapshot

_tuple = tuple.__new__  # takes half the time of a named tuple's own constructor
_WIDEST = 60
"""The largest number of characters of a value that are shown."""
_VALUES = frozenset({int, bool, str, bytes, range, slice, torch.dtype, torch.device, torch.Size})
"""Types whose values may lie in the place of equal ones, unlike those of classes derived from them."""
_SHOWN = (int, float, str, bytes, complex, type(None), torch.dtype, torch.device, Enum)
"""Types whose values are shown by what they are."""


@dataclass(frozen=True)
class Difference:
    """One slot that differs between two moments."""

    name: str  # the slot, as the user would write it
    was: str  # the text of the earlier value
    now: str  # the text of the later value
    moved: bool = False  # the slot holds a tensor that the recording reads (its address is ``was``)
    site: Site | None = None  # the user's line that read the tensor, or that wrote the slot
    # the parameter group, if the slot is a hyperparameter of an optimizer
    group: ParameterGroup | None = None
    key: Any = None  # the key of the slot in its container
    scheduler: str | None = None  # the class of the scheduler, if the slot is an attribute of one
    advanced: bool = False  # the slot holds an iterator that was moved

    def __str__(self) -> str:
        if self.was != self.now:
            return f"{self.name} was {self.was} and is {self.now}"
        now = "is another one at the same address" if self.moved else "is not what it was"
        return f"{self.name} was {self.was} and {now}"


def _difference(snapshot: Snapshot, was: Read, now: Entry, site: Site | None) -> Difference:
    """The difference between two values of a slot."""
    advanced = _is_one_iterator(was.value, now.value)
    earlier, later = show(was.value), show(now.value)
    if advanced and earlier == later:
        later = "further" if now.value.known else "perhaps further: its position cannot be told"
    scheduler = snapshot.training.schedulers.get(id(now.container))
    return Difference(
        now.name, earlier, later, site=site, key=now.key, scheduler=scheduler, advanced=advanced
    )


@dataclass(frozen=True)
class Again:
    """The result of a second look at all slots that were read."""

    snapshot: Snapshot  # the slots with their values now
    changed: list[Difference]  # the slots whose values differ from those that were read


def look_again(
    reads: Reads,
    executed: ExecutedCode,
    lines: Mapping[Address, Site],
    written: Collection[int] = (),
    bound: Collection[Address] = (),
    returned: Collection[torch.Tensor] = (),
) -> Again:
    """Read all slots again that were read before, and compare.

    ``lines`` has the user's lines that wrote slots; an address without kind and key means any slot of a
    container. ``written`` are addresses of numpy arrays that may have changed; their changes are left out.
    So are those of slots that a replay has ``bound``, and begins with as they were. Tensors that have
    ``returned`` lay elsewhere for a while: where the call found one then tells nothing.
    """
    snapshot = Snapshot(reads)
    lay_elsewhere = {id(tensor) for tensor in returned}
    changed: list[tuple[Entry, Difference]] = []
    met: set[int] = set()
    for address, noted in reads.slots.items():
        if address[1] not in met:
            met.add(address[1])
            snapshot.training.meet(noted.container)
        if address in bound:
            snapshot.entries[address] = _tuple(Entry, (*noted[:4], noted))
            continue
        entry = snapshot.entries[address] = _entry_of(snapshot, noted, executed)
        if noted.kind == CACHED:
            _note_cached(snapshot, entry)
        was, now = noted.value, entry.value
        if was is now or same(was, now) or _is_at(entry, written) or _is_one_of(lay_elsewhere, was, now):
            continue
        where = [address, ("", address[1], None), ("", id(now.value) if type(now) is Position else 0, None)]
        site = next((lines[each] for each in where if each in lines), None)
        changed.append((entry, _difference(snapshot, noted, entry, site)))
    _note_hooks(snapshot, executed)
    return Again(snapshot, _in_order(changed))


def _in_order(changed: list[tuple[Entry, Difference]]) -> list[Difference]:
    """Sort slots before whole containers; leave out what a changed length says of the members already."""
    # The difference in length already says it: after an insertion, all later items differ as well.
    grown = {id(entry.container) for entry, _ in changed if entry.kind == LENGTH}
    found = [
        difference
        for entry, difference in changed
        if id(entry.container) not in grown
        or not (entry.kind in (DEFINED, LAST) or (entry.kind == ITEM and type(entry.key) is int))
    ]
    return sorted(found, key=lambda difference: "(" in difference.name)


def _entry_of(snapshot: Snapshot, noted: Read, executed: ExecutedCode) -> Entry:
    """The slot that was read, with its value now."""
    entry = _tuple(Entry, (*noted[:4], noted))
    was, value = noted.value, read(entry)
    if value is was or (noted.kind in NUMBERED and value == was):  # the common case, for speed
        return entry
    if type(value) in PROXIES:  # isinstance would ask its target, which may be gone
        return entry._replace(value=mark(value))
    if isinstance(value, torch.Tensor):
        snapshot.note_tensor(entry, value)
    elif isinstance(value, numpy.ndarray):
        snapshot.note_array(value)
    now = form_of(entry.value, value)
    if isinstance(now, Position):
        known = now.known and now.codes.isdisjoint(executed.resumed)
        now = now._replace(known=known, asked=isinstance(was, Position) and was.asked)
    return entry._replace(value=now)


def _note_hooks(snapshot: Snapshot, executed: ExecutedCode) -> None:
    """Add the hooks of the tensors found: autograd calls them from C++, so no traced read covers them."""
    for entry, tensor in [each for found in snapshot.tensors.values() for each in found]:
        for name, hooks in hooks_of(tensor):
            if any(map(executed.ran, hooks.values())):
                held = [(LENGTH, None, counted(len(hooks))), *[(ITEM, *pair) for pair in hooks.items()]]
                for kind, key, value in held:
                    slot = Entry(
                        kind, hooks, key, value, f"{entry.name}.{name}" + (f"[{key!r}]" if key else "")
                    )
                    snapshot.entries.setdefault((kind, id(hooks), key), slot)


def _note_cached(snapshot: Snapshot, entry: Entry) -> None:
    """Add the tensors that a cache holds, each as a slot with its place in the cache."""
    for place, value in enumerate(cached_in(container_of(entry), entry.key)):
        if isinstance(value, torch.Tensor):
            snapshot.note_tensor(
                entry._replace(kind=RESULT, key=(entry.key, place), value=mark(value)), value
            )


def _is_one_of(identities: Collection[int], was: Any, now: Any) -> bool:
    """Whether a slot holds one of some tensors, as it did."""
    marks = isinstance(was, TensorMark) and isinstance(now, TensorMark)
    return marks and was.identity == now.identity and was.identity in identities


def _is_at(entry: Entry, addresses: Collection[int]) -> bool:
    """Whether the slot holds a numpy array at one of the addresses."""
    if entry.kind == NUMBERS:
        return entry.key != LOOKED and is_among(entry, addresses)
    now = read(entry) if addresses and isinstance(entry.value, Content) else None
    return isinstance(now, numpy.ndarray) and pointer_of(now) in addresses


def is_among(entry: Entry, addresses: Collection[int]) -> bool:
    """Whether the array of a ``NUMBERS`` slot lies at one of the addresses."""
    return bool(addresses) and pointer_of(container_of(entry)) in addresses


def now_in(entry: Entry) -> Any:
    """The value in the slot now, in the form that the guard keeps."""
    return form_of(entry.value, read(entry))


def form_of(was: Any, value: Any) -> Any:
    """The form in which the guard keeps a value, given the kept form of the slot's earlier value."""
    as_it_is = is_instance(was, numpy.ndarray) or value is was  # a guard may keep an iterator itself
    return value if as_it_is else mark(value)


def _is_one_iterator(was: Any, now: Any) -> bool:
    return isinstance(was, Position) and isinstance(now, Position) and was.value is now.value


def same(was: Any, now: Any) -> bool:
    """Whether two values of a slot count as equal: one object, or equal plain values of one type."""
    if was is now:
        return True
    if is_instance(was, TensorMark):
        return isinstance(now, TensorMark) and was.identity == now.identity and was.address == now.address
    if is_instance(was, Position):
        return was.agrees(now)
    if is_instance(was, Content):
        return isinstance(now, Content) and _alike(was.value, now.value)
    if type(was) is not type(now):
        return False
    if type(was) in (float, complex):
        return bits_of(was) == bits_of(now)
    if type(was) in _VALUES:
        return exact(was) == exact(now) and bool(was == now)
    if is_instance(was, numpy.generic):  # a record can be written to
        return exact(was) == exact(now) and not is_instance(was, numpy.void)
    if is_bound_method(was) and is_bound_method(now):  # each access makes a new one
        return was.__func__ is now.__func__ and was.__self__ is now.__self__
    return False


def _alike(was: Any, now: Any) -> bool:
    if (
        type(was) is tuple
        and type(now) is tuple
        and any(isinstance(each, torch.Tensor) for each in was + now)
    ):
        return len(was) == len(now) and all(map(is_, was, now))
    if isinstance(was, (float, complex)):
        return same(was, now)
    if isinstance(was, (DefinedOperators, Remembered)):
        return was == now
    return exact(was) == exact(now) and bool(was == now)  # no code of the user's is asked who is equal


def show(value: Any) -> str:
    """A short text for the value of a slot."""
    if value is MISSING:
        return "gone"
    if value is UNSET:
        return "not set"
    if is_instance(value, TensorMark):
        return f"a tensor at {value.address:#x}"
    if is_instance(value, Position):
        return cut(value.text, 100)
    if is_instance(value, Content):
        return _show_content(value.value)
    if is_instance(value, Remembered):
        return str(value)
    if type(value) is tuple or is_instance(value, _SHOWN):
        return _shortened(value)
    return f"a {type(value).__name__} (id {id(value):#x})"


def _show_content(value: Any) -> str:
    """A short text for a value that is compared by a copy."""
    if type(value) is tuple and value and type(value[-1]) is bytes and type(value[0]) in (tuple, torch.Size):
        kind = f"{numpy.dtype(value[1]).name}" if type(value[1]) is str else ""
        return f"an array {kind}{list(value[0])}"
    if type(value) is tuple and len(value) > 1 and isinstance(value[0], type):
        value = value[-1]  # a tuple of a type and its content
    if isinstance(value, DefinedOperators):
        return repr(value)
    if isinstance(value, Members):
        text = repr(value)
        return text if len(text) <= _WIDEST else f"a set of {len(value)}"
    if type(value) is frozenset:
        kept: Any = value
        pairs = all([type(each) is tuple and len(each) == 2 and each[0] is type(each[1]) for each in kept])
        text = "{" + ", ".join(sorted([text_of(each[1] if pairs else each) for each in kept])) + "}"
        return text if len(text) <= _WIDEST else f"a set of {len(kept)}"
    return show(value)


def _shortened(value: Any) -> str:
    return cut(text_of(value), _WIDEST)


def show_tensor(value: Any) -> str:
    """A short text for the new value of a slot that held a tensor."""
    if not isinstance(value, torch.Tensor):
        return show(value)
    return f"another one at {value.data_ptr():#x}" if has_memory(value) else "another one, without memory"
