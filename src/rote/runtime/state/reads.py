"""What traced calls were seen to read, slot by slot: the union over the calls of one state."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

Address = tuple[str, int, Any]
"""Kind, identity of the container, key."""

_DEPTH = 40
_OF_TABLES = re.compile(
    r"(?:\._(?:parameters|buffers|modules)|\['_(?:parameters|buffers|modules)'\])\['(\w+)'\]"
)
"""What a module keeps in tables, which is written as an attribute."""


class Argument:
    """An argument that is known by its identity, and is not kept alive by what was read of it."""

    __slots__ = ("_reference", "identity")

    def __init__(self, value: Any) -> None:
        self._reference = weakref.ref(value)
        self.identity = id(value)

    def __call__(self) -> Any:
        """The argument.

        Raises:
            ValueError: It is no more.
        """
        value = self._reference()
        if value is None:
            raise ValueError("an argument is no more")
        return value


def address_of(kind: str, container: Any, key: Any) -> Address:
    """Where something is, as long as the container lives."""
    return kind, container.identity if type(container) is Argument else id(container), key


class Names(dict[int, tuple[int, str]]):
    """What the user would write for what a call has found outside of itself.

    For the identity that each object had in the call: that of the object in which it was found, or 0, and
    what is written behind the name of that.
    """

    def path(self, owner: int, suffix: str) -> str:
        """The name of something in an object."""
        parts = [suffix]
        while owner and len(parts) < _DEPTH:
            owner, part = self.get(owner, (0, ""))
            parts.append(part)
        return _OF_TABLES.sub(r".\1", "".join(reversed(parts))).removeprefix(".")


class Read(NamedTuple):
    """One thing that was read.

    A traced call reads thousands, of which hardly one is ever named: the name is put together when it is
    asked for.
    """

    kind: str  # how it is read again; a kind of :mod:`.snapshot`
    container: Any
    key: Any  # under what it lies there
    value: Any  # what lay there, in the form in which it is compared
    owner: int  # the identity of the object by whose name it is known
    suffix: str  # what is written behind the name of that
    names: Names

    @property
    def name(self) -> str:
        """What the user would write."""
        return self.names.path(self.owner, self.suffix)

    @property
    def address(self) -> Address:
        """Where it is, as long as the container lives."""
        return address_of(self.kind, self.container, self.key)


class Reads:
    """What was read."""

    def __init__(self, slots: dict[Address, Read], pinned: frozenset[int] = frozenset()) -> None:
        self.slots = slots
        self.pinned = pinned  # identities of objects for which it may matter which object they are

    @classmethod
    def of(cls, found: Iterable[Read], pinned: Iterable[int] = ()) -> Reads:
        """From reads in order."""
        return cls({address_of(*read[:3]): read for read in found}, frozenset(pinned))

    def __iter__(self) -> Iterator[Read]:
        return iter(self.slots.values())

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def keys(self) -> set[tuple[int, Any]]:
        """Identities of containers, with the keys under which something was read, in whatever way."""
        return {(identity, key) for _, identity, key in self.slots}

    def joined(self, other: Reads | None) -> Reads:
        """What was read here or there."""
        if other is None:
            return self
        return Reads({**other.slots, **self.slots}, other.pinned | self.pinned)
