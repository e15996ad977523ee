"""Whether sets hold what they held: the quick answer for sets of names and of classes.

Models have a dozen of them (which outputs a class records, which weights are kept in float32), nearly all of
strings. To mark each of them and to compare the marks takes 1 to 4 us; here it takes a tenth of that.

Equality alone is not enough, since ``{1} == {True}``. Members of one type whose equality is not the user's
code are compared after their types; of any other set the mark decides.
"""

from __future__ import annotations

from operator import eq
from typing import Any

from .marks import Content
from .slots import read
from .snapshot import ITEM, Entry

_COMPARED = (str, bytes, int, float, bool, type(None), type)
"""Types of which two members that are equal are the same, in sets that have no other types."""

_NO_SET: Any = frozenset({object()})
"""Differs from whatever was recorded."""


class Sets:
    """Sets in slots that hold the same object as when it was looked at.

    Attributes:
        entries: The slots.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._frozen: list[Entry] = []
        self._types: list[set[type]] = []
        self._members: list[set[Any]] = []
        self._found: list[Any] = []

    def take(self, entry: Entry) -> bool:
        """Take a slot on if it holds such a set, or one that cannot change.

        Returns:
            Whether it did.
        """
        content = entry.value.value if isinstance(entry.value, Content) else None
        if entry.kind != ITEM or not isinstance(content, frozenset):
            return False
        if type(read(entry)) is frozenset:
            self._frozen.append(entry)
            return True
        if type(read(entry)) is not set:
            return False
        pairs: Any = content  # of types and members
        types = {kind for kind, _ in pairs}
        if len(types) > 1 or not types.issubset(_COMPARED):
            return False
        self.entries.append(entry)
        self._types.append(types)
        self._members.append({member for _, member in pairs})
        return True

    def look(self) -> None:
        """Note which objects lie in the slots."""
        found = [read(entry) for entry in self.entries]
        self._found = [each if type(each) is set else _NO_SET for each in found]

    def thawed(self) -> bool:
        """Whether one that could not change has given its place to one that can, perhaps an equal one."""
        return any([type(read(entry)) is not frozenset for entry in self._frozen])

    def same(self) -> bool:
        """Whether these objects hold what the slots held when they were marked."""
        if [{*map(type, each)} for each in self._found] != self._types:
            return False
        return all(map(eq, self._found, self._members))
