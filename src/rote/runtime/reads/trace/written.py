"""Slots and containers outside to which a call writes: what they held before, beside what they hold now."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from typing_extensions import override

from ....base import Site, cut, identity, is_instance
from ...arguments import ClassTarget, Target, read_from
from ...numbers import KINDS
from ...objects import (
    UNSET,
    Content,
    Itself,
    Members,
    Position,
    TensorMark,
    cut_off,
    exact,
    mark,
    members,
    text_of,
)
from ...state import ATTRIBUTE, CELL, ITEM, KIND, LAST, MISSING, SAID, same, show
from .kinds import PLAIN_TYPES

MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
"""Types of mappings whose members a replay can write."""
_OF_OBJECT = frozenset({ATTRIBUTE, KIND, SAID})
"""Kinds of slots that a container has beside its members: its class, what C says of it, slots of a class."""


class WrittenSlot(NamedTuple):
    """One slot, or all of a container, before it was first written.

    Attributes:
        was: What lay there, in the form in which it is compared.
        itself: The object that lay there, where an equal one may stand for it in that form.
    """

    kind: str
    container: Any
    key: Any
    was: Any
    owner: int
    site: Site
    itself: Any = None

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is, among those of one call."""
        return self.kind, identity(self.container), self.key

    @property
    def suffix(self) -> str:
        """What the user writes behind the name of the owner."""
        if self.kind == CELL:
            return ""
        member = self.kind == ITEM and self.owner == identity(self.container)
        return f"[{text_of(self.key)}]" if member else f".{self.key}"

    def is_in(self, container: Any) -> bool:
        """Whether it is a member of a container."""
        return self.kind == ITEM and self.container is container

    def now(self) -> Any:
        """What lies in it; UNSET or MISSING if nothing does."""
        return lies_in(self.kind, self.container, self.key)


def lies_in(kind: str, container: Any, key: Any) -> Any:
    """What lies in a slot; UNSET or MISSING if nothing does."""
    try:
        return read_from(kind, container, key)
    except (KeyError, IndexError, ValueError, AttributeError):
        return UNSET if kind == ATTRIBUTE else MISSING


class SlotChange(NamedTuple):
    """One slot outside, or one member of a container there, that is not as the call found it."""

    name: str  # what the user would write
    kind: str  # of the slot; empty for a container as a whole
    container: Any
    key: Any
    was: Any  # MISSING if nothing lay there
    now: Any
    owners: tuple[Any, ...]  # the object that it is a part of, and those through which that was found
    site: Site | None  # the line that wrote it, if it is known


@dataclass
class Growing:
    """A list or a deque outside to which members are added: what it was, and how many are added."""

    written: WrittenSlot
    count: int = 0

    def take_back(self) -> None:
        """It is what it was."""
        self.written.container.clear()
        self.written.container.extend(self.written.was)


@dataclass
class Told(Growing):
    """A stream outside to which text is written: where that begins, by what functions, and what."""

    end: int = 0
    calls: list[tuple[Any, tuple[str, ...], tuple[Any, ...]]] = field(
        default_factory=list[tuple[Any, tuple[str, ...], tuple[Any, ...]]]
    )
    given: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    @override
    def take_back(self) -> None:
        cut_off(self.written.container, self.end)


@dataclass(frozen=True)
class Reordered:
    """A namespace outside from which names are deleted: which it had, and which those are."""

    written: WrittenSlot
    deleted: set[Any] = field(default_factory=set[Any])


@dataclass(frozen=True)
class Slots:
    """Slots outside in which lies what was put there for this call or by it: to read that is no condition."""

    written: dict[tuple[str, int, Any], WrittenSlot] = field(
        default_factory=dict[tuple[str, int, Any], WrittenSlot]
    )
    # containers of which any member may be written, by identity
    changed: dict[int, WrittenSlot] = field(default_factory=dict[int, WrittenSlot])
    # namespaces from which names are deleted, by identity
    reordered: dict[int, Reordered] = field(default_factory=dict[int, Reordered])
    growing: dict[int, Growing] = field(default_factory=dict[int, Growing])
    looked: set[int] = field(default_factory=set[int])  # what grew and was read afterwards
    # mappings of which keys are stored, by identity; and whether each key was there before
    stored: dict[int, dict[Any, bool]] = field(default_factory=dict[int, dict[Any, bool]])
    # dicts and lists to which something is stored under a number that is followed, by identity: that number
    keyed: dict[int, Any] = field(default_factory=dict[int, Any])
    own: set[int] = field(default_factory=set[int])  # namespaces of classes that the call has made
    # those that held what was seen to die: a replay puts nothing there unasked
    dying: set[tuple[str, int, Any]] = field(default_factory=set[tuple[str, int, Any]])
    # what was laid into slots before the call
    carried: dict[tuple[str, int, Any], Any] = field(default_factory=dict[tuple[str, int, Any], Any])
    # of these, members of lists that are known by how far they lie before the end: where that is
    last: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    # those in which what was given lies again
    taken_back: set[tuple[str, int, Any]] = field(default_factory=set[tuple[str, int, Any]])
    # tensors by the identity of their attributes
    carriers: dict[int, weakref.ref[Any]] = field(default_factory=dict[int, weakref.ref[Any]])

    def begin_again(self, is_given: Callable[[Any], bool]) -> None:
        """The call is attempted once more, with other arguments in place of those that were taken apart."""
        self.taken_back.clear()
        self.keyed.clear()
        self.last.clear()
        for each in self.growing.values():
            each.take_back()
        self.growing.clear()
        for address in [address for address, each in self.written.items() if is_given(each.container)]:
            del self.written[address]
        for which in [which for which, each in self.changed.items() if is_given(each.container)]:
            del self.changed[which]
        for which in [which for which, each in self.reordered.items() if is_given(each.written.container)]:
            del self.reordered[which]

    def has_changed(self, kind: str, where: int) -> bool:
        """Whether a slot of this kind is told with all members of its container, which the call changes."""
        return where in self.changed and kind not in _OF_OBJECT

    def left_in(self, each: WrittenSlot) -> Any:
        """What a slot held when the call returned."""
        return self.carried[each.address] if each.address in self.taken_back else each.now()

    def take_written(self, container: Any) -> Any:
        """What a container held before the call; what was written of it is told with the rest from now on."""
        was = self.contents_before(container)
        for address in [address for address, each in self.written.items() if each.is_in(container)]:
            del self.written[address]
        return was

    def contents_before(self, container: Any) -> Any:
        """What a container held before single members of it were written."""
        written = {each.key: each.was for each in self.written.values() if each.is_in(container)}
        was = contents(container)
        if not written or type(was) is not tuple:
            return was
        if issubclass(type(container), dict):
            reordered = self.reordered.get(identity(container))
            held = dict(was)
            keys = held if reordered is None else reordered.written.was
            before = [(key, written.get(key, held.get(key, MISSING))) for key in keys]
            return tuple([pair for pair in before if pair[1] is not MISSING])
        return tuple([written.get(place, value) for place, value in enumerate(was)])

    def was_there(self, kind: str, container: Any, key: Any) -> bool:
        """Whether a slot of a container that grows is one that it had before, and nothing has moved there."""
        if kind == LAST:
            return True
        return kind == ITEM and type(container) is list and 0 <= key < self.length_before(container)[0]

    def length_before(self, container: Any) -> tuple[int, int]:
        """How long a container was before the call, and how many members that has added."""
        grown = self.growing.get(identity(container))
        if grown is not None:
            return len(grown.written.was), grown.count
        now = members.length(container)
        before = len(self.contents_before(container)) if identity(container) in self.stored else now
        return before, now - before

    def let_go(self) -> None:
        """The call is over: nothing is held any more."""
        for held in (
            *(self.written, self.changed, self.reordered, self.growing),
            *(self.carried, self.last, self.keyed, self.taken_back, self.carriers, self.dying),
        ):
            held.clear()


def target_of(kind: str, container: Any, key: Any, owner: Any, name: str) -> Target:
    """A slot outside, as it is written."""
    if kind == ITEM and issubclass(type(owner), type):
        return ClassTarget(owner, container, key, name)
    return Target(kind, container, key, name)


def contents(value: Any) -> Any:
    """What a container holds, in a form that can be compared."""
    if issubclass(type(value), dict):
        return members.slots(value)
    if issubclass(type(value), (list, tuple, set, frozenset)) or type(value).__name__ == "deque":
        return members.keys(value)
    return mark(value)


def has_tensors(value: Any, depth: int = 2) -> bool:
    """Whether something is a tensor, or a tuple or a list in which there is one not far down."""
    if not depth or type(value) not in (tuple, list):
        return is_instance(value, torch.Tensor)
    return any([has_tensors(each, depth - 1) for each in value])


def is_same(was: Any, now: Any) -> bool:
    """Whether what lies in a slot is what lay there, or an equal plain value."""
    if was is now:
        return True
    if type(was) is Itself:
        return was == now
    if type(was) in (Content, TensorMark, Position):
        return same(was, now)
    if type(was) is not type(now) or (type(was) not in PLAIN_TYPES and type(was) not in KINDS):
        return False
    return (was == now and exact(was) == exact(now)) or (was != was and now != now)


def has_same_members(was: Any, now: Any) -> bool:
    """Whether a container holds what it held, in the form of :func:`contents`."""
    if type(was) is Position:
        return was.agrees(now)
    if type(was) is not tuple or type(now) is not tuple:
        return is_same(was, now)
    if len(was) != len(now):
        return False
    return all(map(_is_same_member, was, now))


def _is_same_member(was: Any, now: Any) -> bool:
    """Whether one member is as it was; members of a mapping are pairs."""
    return has_same_members(was, now) if type(was) is tuple and type(now) is tuple else is_same(was, now)


def difference(container: Any, was: Any, now: Any) -> tuple[str, Any, Any]:
    """What to say of a container that has changed: what it is about, and what that was and is."""
    if type(was) is not tuple or type(now) is not tuple:
        return "", was, now
    if len(was) != len(now):
        return " (length)", len(was), len(now)
    if issubclass(type(container), (set, frozenset)):
        return "", *[Content(Members(zip(map(type, each), each, strict=True))) for each in (was, now)]
    index = list(map(_is_same_member, was, now)).index(False)
    if not issubclass(type(container), dict):
        return f"[{index}]", was[index], now[index]
    (key, value), (other, later) = was[index], now[index]
    return (f"[{text_of(key)}]", value, later) if is_same(key, other) else (" (order)", key, other)


def changed_members(container: Any, was: Any, now: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, key and contents of each member that has changed; the container itself where it has no keys."""
    if issubclass(type(container), (set, frozenset)) or type(was) is not tuple or type(now) is not tuple:
        if not has_same_members(was, now):
            yield "", None, was, now
        return
    earlier, later = (each if issubclass(type(container), dict) else enumerate(each) for each in (was, now))
    before, after = dict(earlier), dict(later)
    keys = [
        key for key in {**before, **after} if not is_same(before.get(key, MISSING), after.get(key, MISSING))
    ]
    for key in keys:
        yield f"[{text_of(key)}]", key, before.get(key, MISSING), after.get(key, MISSING)
    if not keys and list(before) != list(after):
        yield " (order)", None, tuple(before), tuple(after)


def as_text(value: Any) -> str:
    """What lies in a slot, for a message."""
    if value is MISSING or value is UNSET:
        return "not there"
    if type(value) in PLAIN_TYPES:
        return cut(repr(value), 60)
    if type(value) in (Position, TensorMark, Content):
        return show(value)
    return f"{len(value)} long" if type(value) is tuple else f"a {type(value).__name__}"
