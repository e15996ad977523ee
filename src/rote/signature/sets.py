"""Whether sets hold what they held: the quick answer for sets of names and of classes.

Models have a dozen of them (which outputs a class records, which weights are kept in float32), nearly all of
strings. To mark each of them and to compare the marks takes longer than to compare their members.

Equality alone is not enough, since ``{1} == {True}``. Members of one type whose equality is not the user's
code are compared after their types; of any other set the mark decides.

What does not work: to read a set's table word by word (:mod:`.words`), as dicts and tensors are. Of the calls
in ``benchmarks/words.py`` it took less than 1 % off any (``nvidia-h200/2026-11-23-words.json``).
"""

from __future__ import annotations

from operator import eq
from typing import Any

from .marks import Content, Members
from .slots import read
from .snapshot import BULK, ITEM, Entry

_COMPARED = (str, bytes, int, bool, type(None), type)
"""Types of which two members that are equal are the same, in sets that have no other types; 0.0 is -0.0."""

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
        self._members: list[list[Any]] = []  # in order
        self._found: list[Any] = []

    def take(self, entry: Entry) -> bool:
        """Take a slot on if it holds such a set, or one that cannot change.

        Returns:
            Whether it did.
        """
        content: Any = entry.value.value if isinstance(entry.value, Content) else None
        if entry.kind == BULK and type(entry.container) is set:
            content = Members([(type(member), member) for member in content])
        elif entry.kind == ITEM and type(content) is tuple and isinstance(content[-1], Members):
            content = content[-1]
        else:
            return False
        if type(_set_of(entry)) is frozenset:
            self._frozen.append(entry)
            return True
        if type(_set_of(entry)) is not set:
            return False
        pairs: Any = content  # of types and members
        types = {kind for kind, _ in pairs}
        if len(types) > 1 or not types.issubset(_COMPARED):
            return False
        self.entries.append(entry)
        self._types.append(types)
        self._members.append([member for _, member in pairs])
        return True

    def look(self) -> None:
        """Note which objects lie in the slots."""
        found = [_set_of(entry) for entry in self.entries]
        self._found = [each if type(each) is set else _NO_SET for each in found]

    def thawed(self) -> bool:
        """Whether one that could not change has given its place to one that can, perhaps an equal one."""
        return any([type(_set_of(entry)) is not frozenset for entry in self._frozen])

    def same(self) -> bool:
        """Whether they hold what the slots held when they were marked."""
        if [{*map(type, each)} for each in self._found] != self._types:
            return False
        return all(map(eq, map(list, self._found), self._members))


def _set_of(entry: Entry) -> Any:
    """The set itself: what lies in the slot, or the container of which all members are under guard."""
    return entry.container if entry.kind == BULK else read(entry)
