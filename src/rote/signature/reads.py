"""What traced calls were seen to read, slot by slot: the union over the calls of one state."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

Address = tuple[str, int, Any]
"""Kind, identity of the container, key."""


class Argument:
    """An argument that is known by its identity, and is not kept alive by what was read of it.

    Args:
        value: The argument.
    """

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


def identity_of(container: Any) -> int:
    """The identity of what something was read of."""
    return container.identity if type(container) is Argument else id(container)


class Read(NamedTuple):
    """One thing that was read.

    Attributes:
        kind: How it is read again; a kind of :mod:`.snapshot`.
        container: The object.
        key: Under what it lies there.
        value: What lay there, in the form in which it is compared.
        name: What the user would write.
    """

    kind: str
    container: Any
    key: Any
    value: Any
    name: str

    @property
    def address(self) -> Address:
        """Where it is, as long as the container lives."""
        return self.kind, identity_of(self.container), self.key


class Reads:
    """What was read.

    Args:
        reads: By one call, in order.
    """

    def __init__(self, reads: Iterable[Read] = ()) -> None:
        self.slots: dict[Address, Read] = {read.address: read for read in reads}
        self._keys = {(address[1], address[2]) for address in self.slots}

    def has(self, container: Any, key: Any) -> bool:
        """Whether something under a key was read, in whatever way."""
        return (identity_of(container), key) in self._keys

    def joined(self, other: Reads | None) -> Reads:
        """What was read here or there."""
        if other is None:
            return self
        return Reads({**other.slots, **self.slots}.values())
