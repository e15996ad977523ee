"""Objects that lie in the place of others, and of which a call would read what it read of those.

Programs put objects in place anew: a config, a dict of options, a lambda. Another object of the same class
answers for the one that was there if everything that was read of that is the same when it is read of the
other one by the same path. Objects found in it may be others, likewise. So objects are *paired*, each with
the one in whose place it lies, and two paths that led to one object have to lead to one object again.

The identity of an object may matter itself: it is compared by ``is``, looked up, handed to C, written to,
handed out, referred to weakly, or found in a way that is no slot. Such objects are *pinned* while a call is
traced (:meth:`..reads.trace.outside.Outside.pin`), and are in no pair. Neither are objects whose death has
code run, by a finalizer or a set of weak references: a guard that answers for another would keep them alive.

Where objects in a slot are replaced again and again, no new guard is made for each: what is read of them is
compared at each call (:class:`Followed`).

Immutable parts have no reads of their own: members of tuples, and what methods, partials and functions are
made of. They are paired part by part.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeVar, cast

from ...base import identity
from ..arguments import is_openable
from ..objects import Content, Position, TensorMark, members
from ..state import Argument, Entry, Names, Read, Reads, form_of, read, same
from .abandonment import runs_code_at_death

_tuple = tuple.__new__  # half the time of a named tuple's own constructor
_KINDS = frozenset({dict, OrderedDict, list, tuple, deque, FunctionType, MethodType, partial, CellType})
_COMPOSED = frozenset({FunctionType, MethodType, partial})
_ALONE = frozenset({Content, TensorMark, Position, int, float, bool, str, bytes, type(None), type})
"""Types of values that are compared by themselves, not by what is read of them."""
_PLAIN_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


_Slot = TypeVar("_Slot", Entry, Read)


class SlotPlace(NamedTuple):
    """Something that was read, and what is read there now.

    Attributes:
        entry: The slot, or the slot in which it was found.
        suffix: What is written behind the name of the slot.
        was: What lay there, as the guard keeps it.
    """

    entry: Entry
    suffix: str
    was: Any
    now: Any


class KnownPaths(NamedTuple):
    """What a guard knows of the objects that were read, all by identity.

    Attributes:
        of: The slots under guard in each container.
        holders: All slots that were read, by the object that lay in them.
        pinned: Objects in whose place no other will do.
        owners: Functions, methods and tuples, by each part they are made of.
        others: Objects that are known besides.
    """

    of: Mapping[int, list[Entry]]
    holders: Mapping[int, list[Entry | Read]]
    pinned: frozenset[int]
    owners: Mapping[int, list[int]]
    others: frozenset[int] = frozenset()

    @classmethod
    def from_slots(cls, entries: Iterable[Entry], reads: Reads) -> KnownPaths:
        """From the slots under guard, and from what was read."""
        of, holders = defaultdict[int, list[Entry]](list), defaultdict[int, list[Entry | Read]](list)
        for entry in entries:
            of[_which(entry.container)].append(entry)
        for each in reads:
            of[_which(each.container)]  # known, though nothing in it may change
        for each in (*of.values(), reads):
            for slot in each:
                if type(slot.value) not in _ALONE:
                    holders[id(slot.value)].append(slot)
        values = [slot.value for slots in holders.values() for slot in slots[:1]]
        return cls(of, holders, reads.pinned, _owners(values))

    def lies_as_before(self, container: Any) -> bool:
        """Whether an object lies in all slots in which it lay, and so do those to which the slots belong."""
        if type(container) is Argument:  # another one in each call
            return False
        left, met = [id(container)], set[int]()
        while left:
            which = left.pop()
            if which in met:
                continue
            met.add(which)
            left += self.owners.get(which, ())
            for slot in self.holders.get(which, ()):
                if type(slot.container) is Argument or read(_as_entry(slot)) is not slot.value:
                    return False
                left.append(id(slot.container))
        return True

    def has(self, value: Any) -> bool:
        """Whether something was read of an object, or in a slot where it lay."""
        return id(value) in self.of or id(value) in self.holders or id(value) in self.others


class Pairs:
    """Pairs objects that were read with the objects that lie in their place.

    Args:
        known: What was read.
        inside: Identities of the only objects that may be replaced, if there are any. They are read, and
            paired with themselves, even where they still lie.

    Attributes:
        found: By the identity of each object that was there: it, and the one in its place.
        difference: The first place that differs, if any does.
    """

    def __init__(self, known: KnownPaths, inside: frozenset[int] = frozenset()) -> None:
        self._known = known
        self._inside = inside
        self._taken: set[int] = set()
        self._staying: set[int] = set()
        self.found: dict[int, tuple[Any, Any]] = {}
        self.difference: SlotPlace | None = None

    def agree(self, places: Sequence[SlotPlace]) -> bool:
        """Whether reading from some places on gives what it gave."""
        left = [*reversed(places)]
        while left:
            place = left.pop()
            if not self._agrees(place, left):
                self.difference = place
                return False
        return True

    def are_one_to_one(self) -> bool:
        """Whether two paths lead to one object where they did, and nowhere else."""
        known, found = self._known, self.found
        if not self._staying.isdisjoint(found):
            return False
        for each, (_, now) in found.items():
            if id(now) not in found and (known.has(now) or id(now) in self._staying):
                return False
            if not all([owner in found for owner in known.owners.get(each, ())]):
                return False
            for entry in known.holders.get(each, ()):
                if _which(entry.container) not in found and read(_as_entry(entry)) is not now:
                    return False
        return True

    def instead(self, value: Any) -> Any:
        """What lies in the place of an object; itself if it has not been replaced."""
        pair = self.found.get(id(value))
        return value if pair is None else pair[1]

    def follow(self, slot: _Slot) -> _Slot:
        """A slot of an object, or one in which it lies, as a slot of the object in its place; else itself."""
        if id(slot.container) not in self.found and id(slot.value) not in self.found:
            return slot
        return slot._replace(container=self.instead(slot.container), value=self.instead(slot.value))

    def follow_entry(self, entry: Entry) -> Entry:
        """The same of an entry, which no longer keeps alive what was replaced by the read that names it."""
        slot, label = self.follow(entry), entry.label
        replaced = isinstance(label, Read) and self.follow(label) is not label
        return slot._replace(label=entry.name) if replaced else slot

    def _agrees(self, place: SlotPlace, left: list[SlotPlace]) -> bool:
        was, now = place.was, place.now
        pair = self.found.get(id(was))
        if pair is not None:
            return pair[1] is now
        if was is now and id(was) not in self._inside:
            self._staying.add(id(was))
            return True
        if was is not now and same(was, form_of(was, now)):
            return True
        parts = self._parts(was, now)
        if parts is None:
            return False
        self.found[id(was)] = was, now
        self._taken.add(id(now))
        entries = self._known.of.get(id(was), ())
        inner = [
            SlotPlace(entry, "", entry.value, read(_tuple(Entry, (entry.kind, now, *entry[2:]))))
            for entry in entries
        ]
        outer = [SlotPlace(place.entry, place.suffix + suffix, one, other) for suffix, one, other in parts]
        left.extend(reversed((*inner, *outer)))
        return True

    def _parts(self, was: Any, now: Any) -> list[tuple[str, Any, Any]] | None:
        """The immutable parts of two objects, with what one writes to get them; None if they differ."""
        kind = type(was)
        if kind is not type(now) or id(now) in self._taken:
            return None
        if self._inside and id(was) not in self._inside:
            return None  # what was read of it is not known here
        if not self._inside and not can_pair(kind):
            return None
        if runs_code_at_death(was):
            return None  # a guard that is kept would keep it alive
        if identity(was) in self._known.pinned or identity(now) in self._known.pinned:
            return None
        if issubclass(kind, dict):
            entries = self._known.of.get(id(was), ())
            return [] if all([type(entry.key) in _PLAIN_KEYS for entry in entries]) else None
        if kind is FunctionType and (
            was.__code__ is not now.__code__ or was.__globals__ is not now.__globals__
        ):
            return None
        mine, others = _made_of(was), _made_of(now)
        if len(mine) != len(others):
            return None
        return [(name, one, other) for (name, one), (_, other) in zip(mine, others, strict=True)]


_MADE_OF = {MethodType: ("__func__", "__self__"), partial: ("func", "args", "keywords")}


def _made_of(value: Any) -> list[tuple[str, Any]]:
    """The immutable parts of an object, with what one writes to get them."""
    kind = type(value)
    if issubclass(kind, tuple):
        held, fields = members.values(value), cast(Any, getattr(kind, "_fields", None))
        named = type(fields) is tuple and len(fields) == len(held)  # a class may be given others at any time
        names = [f".{name}" for name in fields] if named else [f"[{n}]" for n in range(len(held))]
        return [*zip(names, held, strict=True)]
    if kind is FunctionType:
        names = [f".{name}" for name in value.__code__.co_freevars]
        return [*zip(names, value.__closure__ or (), strict=True)]
    return [(f".{name}", getattr(value, name)) for name in _MADE_OF.get(kind, ())]


def _owners(values: Sequence[Any]) -> dict[int, list[int]]:
    """The owners of each part, of all that some values are made of."""
    found, met, left = defaultdict[int, list[int]](list), set[int](), [*values]
    while left:
        value = left.pop()
        kind = type(value)
        if id(value) in met or kind in _ALONE or not (kind in _COMPOSED or issubclass(kind, tuple)):
            continue
        met.add(id(value))
        for _, part in _made_of(value):
            found[id(part)].append(id(value))
            left.append(part)
    return found


def can_pair(kind: type) -> bool:
    """Whether an instance of a class is known by what is read of it."""
    return kind in _KINDS or is_openable(kind)


def _which(container: Any) -> int:
    return container.identity if type(container) is Argument else id(container)


def _as_entry(noted: Entry | Read) -> Entry:
    return Entry(*noted[:4], noted) if isinstance(noted, Read) else noted


class Followed:
    """Slots in which objects are replaced again and again, and what is read of those objects.

    Args:
        inner: What is read of the objects in them.
        objects: Identities of those objects.
        known: What is known of all other objects.
    """

    def __init__(
        self, roots: list[Entry], inner: list[Entry], objects: AbstractSet[int], known: KnownPaths
    ) -> None:
        self.roots = roots
        self.inner = inner
        self.objects = frozenset(objects)
        self._known = known
        self._difference: SlotPlace | None = None
        self._sort()

    def _sort(self) -> None:
        of = defaultdict[int, list[Entry]](list)
        for entry in self.inner:
            of[id(entry.container)].append(entry)
        self._inside = self._known._replace(of=of, holders={})

    @property
    def entries(self) -> list[Entry]:
        """All that is compared."""
        return [*self.roots, *self.inner]

    @property
    def reads(self) -> list[Read]:
        """The same, as what was read."""
        return [Read(*entry[:4], 0, entry.name, Names()) for entry in self.entries]

    def holds(self) -> bool:
        """Whether the objects that lie there now read the same; from then on it is about these."""
        pairs = Pairs(self._inside, self.objects)
        found = pairs.agree([SlotPlace(entry, "", entry.value, read(entry)) for entry in self.roots])
        if not (found and pairs.are_one_to_one()):
            self._difference = pairs.difference
            return False
        if any([was is not now for was, now in pairs.found.values()]):
            self.roots = [pairs.follow_entry(entry) for entry in self.roots]
            self.inner = [pairs.follow_entry(entry) for entry in self.inner]
            self.objects = frozenset([id(now) for _, now in pairs.found.values()])
            self._sort()
        return True

    def difference(self) -> SlotPlace:
        """What differed when it was asked last."""
        return self._difference or SlotPlace(self.roots[0], "", self.roots[0].value, read(self.roots[0]))
