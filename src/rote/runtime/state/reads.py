"""The reads of traced calls, slot by slot: the union over the calls of one state."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Address = tuple[str, int, Any]
"""Kind, identity of the container, key."""

_DEPTH = 40
_OF_TABLES = re.compile(
    r"(?:\._(?:parameters|buffers|modules)|\['_(?:parameters|buffers|modules)'\])\['(\w+)'\]"
)
"""Items of a module's tables, which the user writes as attributes."""


class Argument:
    """An argument, known by its identity; reads from it do not keep it alive."""

    __slots__ = ("_reference", "identity")

    def __init__(self, value: Any) -> None:
        self._reference = weakref.ref(value)
        self.identity = id(value)

    def __call__(self) -> Any:
        """The argument.

        Raises:
            ValueError: The argument is gone.
        """
        value = self._reference()
        if value is None:
            raise ValueError("an argument is no more")
        return value


def address_of(kind: str, container: Any, key: Any) -> Address:
    """The address of a slot, valid as long as the container lives."""
    return kind, container.identity if type(container) is Argument else id(container), key


class Names(dict[int, tuple[int, str]]):
    """Names, as the user would write them, of objects that a call has found outside of itself.

    The key is the identity of an object. The value is the identity of the object in which it was found, or 0,
    and the suffix to the name of that object.
    """

    def path(self, owner: int, suffix: str) -> str:
        """The name of a part of an object."""
        parts = [suffix]
        while owner and len(parts) < _DEPTH:
            owner, part = self.get(owner, (0, ""))
            parts.append(part)
        return _OF_TABLES.sub(r".\1", "".join(reversed(parts))).removeprefix(".")

    def owners(self, owner: int) -> Iterator[int]:
        """The identity of an object, and of those through which it was found."""
        for _ in range(_DEPTH):
            if not owner:
                return
            yield owner
            owner = self.get(owner, (0, ""))[0]


class Read(NamedTuple):
    """One slot that a call has read, with its value.

    A traced call reads thousands of slots and hardly one is ever named, so the name is built on demand.
    """

    kind: str  # a kind of :mod:`.kinds`, which says how to read the slot again
    container: Any
    key: Any
    value: Any  # the value at that time, in the form in which it is compared
    owner: int  # the identity of the object whose name begins the slot's name
    suffix: str  # the rest of the slot's name
    names: Names

    @property
    def name(self) -> str:
        """The name of the slot, as the user would write it."""
        return self.names.path(self.owner, self.suffix)

    @property
    def address(self) -> Address:
        """The address of the slot, valid as long as the container lives."""
        return address_of(self.kind, self.container, self.key)


class Reads:
    """The reads of one state's calls, by address."""

    def __init__(self, slots: dict[Address, Read], pinned: frozenset[int] = frozenset()) -> None:
        self.slots = slots
        self.pinned = pinned  # identities of objects whose identity may matter

    @classmethod
    def of(cls, found: Iterable[Read], pinned: Iterable[int] = ()) -> Reads:
        """Collect reads in order; the last read of a slot counts."""
        return cls({address_of(*read[:3]): read for read in found}, frozenset(pinned))

    def __iter__(self) -> Iterator[Read]:
        return iter(self.slots.values())

    def __len__(self) -> int:
        return len(self.slots)

    def joined(self, other: Reads | None) -> Reads:
        """The union of two sets of reads; the reads here win."""
        if other is None:
            return self
        return Reads({**other.slots, **self.slots}, other.pinned | self.pinned)
