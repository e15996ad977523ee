"""Conditions: what has to be as it was for a recording to answer, slot by slot.

Each class compares slots of one kind, with a handful of loops of C over parallel lists. Where objects are
compared by identity, a plain value that is equal takes the place of the one that was there.

The same conditions serve the search for a recording, which asks them all (:mod:`.guards`), the explanation,
which asks for the slots that differ, and the replay, which asks those of them that no word of memory answers
(:mod:`.quick`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import contains, eq, getitem, is_, is_not
from typing import Any, ClassVar

from typing_extensions import override

from .classes import UNSET
from .held import Held
from .iterators import Position
from .marks import Content, Members, TensorMark
from .members import has_plain_length, is_direct
from .paths import Place
from .reads import Argument
from .slots import MISSING, form_of, now_in, read, same
from .snapshot import (
    ASKED,
    ATTRIBUTE,
    BULK,
    CELL,
    DEFINED,
    ITEM,
    KIND,
    LENGTH,
    MEMBERS,
    ORDER,
    VARIABLE,
    Entry,
)

_GONE = (KeyError, IndexError, ValueError, AttributeError)
"""What is raised where a slot is no more."""
_EXACT = frozenset({str, int, bool, type(None)})
"""Types whose values are the same if they are equal and of one type."""
_COMPARED = (str, bytes, int, bool, type(None), type)
"""Types of which two members that are equal are the same, in sets that have no other types; 0.0 is -0.0."""
_DIRECT = frozenset({ITEM, LENGTH, MEMBERS, ORDER})
"""Kinds of slots that are asked of the container itself."""


class Condition:
    """Slots that are compared in one way; unless a class has a quicker one, each by itself.

    Args:
        entries: The slots, with what lay in them.

    Attributes:
        entries: The same.
        of_objects: Objects may lie in them, of which other ones may answer in their place.
        by_content: They are compared by content.
    """

    of_objects: ClassVar[bool] = True
    by_content: ClassVar[bool] = False

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self._containers = [entry.container for entry in self.entries]
        self._keys = [entry.key for entry in self.entries]

    def holds(self) -> bool:
        """Whether all slots hold what they held."""
        return all([same(entry.value, now_in(entry)) for entry in self.entries])

    def differing(self) -> Iterator[Place]:
        """The slots that do not, with what lies there."""
        return _differing(self.entries)

    def identity(self, place: int) -> int:
        """Identity of what has to lie in one of the slots.

        Args:
            place: The number of the slot.
        """
        raise NotImplementedError(f"{type(self).__name__} compares no identities")

    def is_read(self, place: int, held: Held) -> bool:
        """Whether words of memory say what lies in one of the slots; if so, they are asked from now on.

        Args:
            place: The number of the slot.
            held: The words.
        """
        return False

    def only(self, places: Sequence[int]) -> Condition:
        """The same condition for some of the slots.

        Args:
            places: Their numbers.
        """
        return type(self)([self.entries[place] for place in places])


class Lengths(Condition):
    """Containers have as many members as they had."""

    of_objects = False

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._lengths = [entry.value.value for entry in self.entries]

    @override
    def holds(self) -> bool:
        return all(map(eq, map(len, self._containers), self._lengths))

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return held.take_length(self._containers[place], self._lengths[place])


class Orders(Condition):
    """Mappings have the keys that they had, in their order."""

    of_objects = False

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._orders = [entry.value.value for entry in self.entries]

    @override
    def holds(self) -> bool:
        return list(map(tuple, self._containers)) == self._orders


class Names(Condition):
    """Plain dicts have the keys that they had, or still have not."""

    of_objects = False

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._defined = [entry.value.value for entry in self.entries]

    @override
    def holds(self) -> bool:
        return all(map(is_, map(contains, self._containers, self._keys), self._defined))


class Tensors(Condition):
    """Containers hold the tensors that they held."""

    of_objects = False

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._identities = [entry.value.identity for entry in self.entries]

    @override
    def holds(self) -> bool:
        try:
            return list(map(id, self._held())) == self._identities
        except _GONE:
            return False

    def _held(self) -> Iterable[Any]:
        return map(getitem, self._containers, self._keys)

    @override
    def identity(self, place: int) -> int:
        return self._identities[place]

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return held.take_member(self._containers[place], self._keys[place], self, place)


class CellTensors(Tensors):
    """Closures hold the tensors that they held."""

    def _held(self) -> Iterable[Any]:
        return [cell.cell_contents for cell in self._containers]

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return held.take_cell(self._containers[place], self, place)


class Values(Condition):
    """Containers hold the objects that they held, or plain values that are equal to them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._values = [entry.value for entry in self.entries]

    @override
    def holds(self) -> bool:
        try:
            return all(map(is_, self._held(), self._values)) or self._adopt()
        except _GONE:
            return False

    @override
    def differing(self) -> Iterator[Place]:
        try:
            return _differing(list(compress(self.entries, map(is_not, self._held(), self._values))))
        except _GONE:
            return super().differing()

    @override
    def identity(self, place: int) -> int:
        return id(self._values[place])

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return held.take_member(self._containers[place], self._keys[place], self, place)

    @override
    def only(self, places: Sequence[int]) -> Values:
        part = type(self)([self.entries[place] for place in places])
        part._values = [self._values[place] for place in places]
        return part

    def _held(self) -> Iterable[Any]:
        return map(getitem, self._containers, self._keys)

    def _adopt(self) -> bool:
        """Take equal plain values that are other objects; False if a value really differs."""
        for place, entry in enumerate(self.entries):
            now = read(entry)
            if now is self._values[place]:
                continue
            if not same(entry.value, now):
                return False
            self._values[place] = now
        return True


class Cells(Values):
    """Closures hold the objects that they held."""

    def _held(self) -> Iterable[Any]:
        return [cell.cell_contents for cell in self._containers]

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return held.take_cell(self._containers[place], self, place)


class Attributes(Values):
    """Objects have the attributes that they had."""

    def _held(self) -> Iterable[Any]:
        return map(getattr, self._containers, self._keys)

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return held.take_attribute(self._containers[place], self._keys[place], self._values[place])


class Variables(Values):
    """Context variables have the values that they had."""

    def _held(self) -> Iterable[Any]:
        return [variable.get(UNSET) for variable in self._containers]

    @override
    def is_read(self, place: int, held: Held) -> bool:
        return False


class Contents(Condition):
    """Slots hold what has the content that they held."""

    by_content = True


class SetMembers(Condition):
    """Sets of plain members, most of them names, hold what they held, in their order.

    Models have a dozen of them (which outputs a class records, which weights are kept in float32). To mark
    each of them and to compare the marks takes longer than to compare their members. Equality alone is not
    enough, since ``{1} == {True}``.
    """

    by_content = True

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        held = [_pairs_in(entry) for entry in self.entries]
        self._kinds = [_kind_of_set(entry) for entry in self.entries]
        self._types = [{kind for kind, _ in pairs} for pairs in held]
        self._members = [[member for _, member in pairs] for pairs in held]

    @override
    def holds(self) -> bool:
        try:
            found = list(map(_set_in, self.entries))
        except _GONE:
            return False
        if list(map(type, found)) != self._kinds or [{*map(type, each)} for each in found] != self._types:
            return False
        return all(map(eq, map(list, found), self._members))


class Answers(Condition):
    """Functions without arguments that change say what they said, which is plain."""

    of_objects = False

    def __init__(self, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self._said = [entry.value.value for entry in self.entries]
        self._kinds = list(map(_kinds, self._said))

    @override
    def holds(self) -> bool:
        try:
            said = [ask(*key) for ask, key in zip(self._containers, self._keys, strict=True)]
        except _GONE:
            return False
        return said == self._said and list(map(_kinds, said)) == self._kinds


class Kinds(Condition):
    """Objects are of the classes that they were of, and have their attributes in the same dicts."""

    @override
    def is_read(self, place: int, held: Held) -> bool:
        entry = self.entries[place]
        if read(entry) is not entry.value:
            return False
        return held.take_table(entry.container, entry.value) if entry.key else held.take_kind(entry.container)


IN_ORDER: tuple[type[Condition], ...] = (
    Lengths, Orders, Tensors, CellTensors, Values, Cells, Attributes, Variables, Kinds, Names, Answers,
    SetMembers, Contents,
)  # fmt: skip
"""All of them, in the order in which they are asked: members of a list after its length."""
_PLAIN: dict[str, type[Condition]] = {ATTRIBUTE: Attributes, CELL: Cells, KIND: Kinds, VARIABLE: Variables}


def _kinds(said: Any) -> Any:
    """What tells plain values from those that are equal to them."""
    return tuple(map(type, said)) if type(said) is tuple else type(said)


def _set_in(entry: Entry) -> Any:
    """The set itself: what lies in the slot, or the container of which all members are under guard."""
    return entry.container if entry.kind == BULK else entry.container[entry.key]


def _pairs_in(entry: Entry) -> Any:
    """The members of a set as they were, with their types, in order; None if the slot held no set."""
    content: Any = entry.value.value if isinstance(entry.value, Content) else None
    if entry.kind == BULK and type(entry.container) is set:
        return [(type(member), member) for member in content]
    pairs = content[-1] if entry.kind == ITEM and type(content) is tuple else None
    return pairs if isinstance(pairs, Members) else None


def _kind_of_set(entry: Entry) -> type:
    return set if entry.kind == BULK else entry.value.value[0]


def _is_plain_set(entry: Entry) -> bool:
    """Whether a slot held a set whose members are compared as they are."""
    pairs = _pairs_in(entry)
    if pairs is None or _kind_of_set(entry) not in (set, frozenset):
        return False
    types = {kind for kind, _ in pairs}
    return len(types) < 2 and types.issubset(_COMPARED)


def _says_plainly(entry: Entry) -> bool:
    """Whether a function gives what is compared as it is: plain values, or a tuple of such."""
    try:
        said = entry.container(*entry.key)
    except _GONE:
        return False
    return _EXACT.issuperset(_kinds(said) if type(said) is tuple else (type(said),))


def _differing(entries: Iterable[Entry]) -> Iterator[Place]:
    for entry in entries:
        now = read(entry)
        if now is not entry.value and not same(entry.value, form_of(entry.value, now)):
            yield Place(entry, "", entry.value, now)


def kind_of(entry: Entry, watched: set[tuple[int, int]]) -> type[Condition] | None:
    """How a slot is compared; None if nothing in it can change.

    Args:
        entry: The slot.
        watched: Identities and addresses of tensors that are watched themselves.
    """
    container, value = type(entry.container), entry.value
    if container is Argument or value is MISSING:
        return Contents
    if entry.kind == BULK and _is_plain_set(entry):
        return SetMembers
    if entry.kind in _DIRECT:
        return _kind_in_container(entry, container)
    if entry.kind == ASKED and type(entry.key) is tuple:
        return Answers if _says_plainly(entry) else Contents
    if entry.kind == DEFINED:
        return Names if container is dict else Contents
    if isinstance(value, TensorMark):
        return CellTensors if entry.kind == CELL and (value.identity, value.address) in watched else Contents
    kept = value is not UNSET and not isinstance(value, (Content, Position)) and entry.kind in _PLAIN
    return _PLAIN[entry.kind] if kept and read(entry) is value else Contents


def _kind_in_container(entry: Entry, container: type) -> type[Condition] | None:
    value = entry.value
    if entry.kind == MEMBERS:
        return Lengths
    if not (is_direct(container) or (entry.kind == LENGTH and has_plain_length(container))):
        return Contents
    if entry.kind == LENGTH:
        return Lengths
    if entry.kind == ORDER:
        return Orders if all([type(key) is str for key in value.value]) else Contents
    if isinstance(value, TensorMark):
        return Tensors
    if isinstance(value, (Content, Position)):
        return SetMembers if _is_plain_set(entry) else Contents
    return None if container is tuple else Values
