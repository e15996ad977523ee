"""Whether sets hold what they held: the quick answer for sets of names and of classes.

Models have a dozen of them (which outputs a class records, which weights are kept in float32), nearly all of
strings. To mark each of them and to compare the marks takes 1 to 4 us; here it takes a tenth of that.

A set is a table of addresses, and read word by word (:mod:`.words`) it costs next to nothing: no member is
touched. The members are kept alive, so that another one cannot lie where one of them lay.

Sets that cannot be read so are compared. Equality alone is not enough, since ``{1} == {True}``. Members of
one type whose equality is not the user's code are compared after their types; of any other set the mark
decides.
"""

from __future__ import annotations

from operator import eq
from typing import Any

from .layout import Table, find_table
from .marks import Content, Members
from .slots import read
from .snapshot import BULK, ITEM, Entry
from .words import BYTES, Stage, expecting, places
from .words import read as read_words

_COMPARED = (str, bytes, int, float, bool, type(None), type)
"""Types of which two members that are equal are the same, in sets that have no other types."""

MOST_PLACES = 256
"""Places of a table up to which it is read."""

_NO_SET: Any = frozenset({object()})
"""Differs from whatever was recorded."""


class Sets:
    """Sets in slots that hold the same object as when it was looked at.

    Attributes:
        entries: The slots.
        asked: There are some that cannot be read.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._frozen: list[Entry] = []
        self._types: list[set[type]] = []
        self._members: list[list[Any]] = []  # in order
        self._found: list[Any] = []
        self._kept: list[Any] = []
        self._asked: list[int] = []
        self._table = find_table()
        self.asked = False

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

    def stages(self) -> tuple[Stage, Stage]:
        """The words of the sets, and those of their tables; what cannot be read is left to :meth:`same`."""
        at, words = list[int](), list[int]()
        inside, members = list[int](), list[int]()
        self._kept, self._asked = [], []
        for index, found in enumerate(self._found):
            rows = _rows(self._table, found) if self._table is not None and type(found) is set else None
            if rows is None or self._table is None or not self._is_recorded(index, rows[3]):
                self._asked.append(index)
                continue
            head, start, keys, kept = rows
            at += places(id(found), self._table.head)
            words += head
            inside += places(start, range(0, 2 * len(keys), 2))
            members += keys
            self._kept.append(kept)
        self.asked = bool(self._asked)
        return expecting(at, words), expecting(inside, members)

    def _is_recorded(self, index: int, members: list[Any]) -> bool:
        """Whether members are what the slot held when it was marked, and not what a thread has made of it."""
        return {*map(type, members)} == self._types[index] and members == self._members[index]

    def same(self) -> bool:
        """Whether those that cannot be read hold what the slots held when they were marked."""
        found = [self._found[index] for index in self._asked]
        if [{*map(type, each)} for each in found] != [self._types[index] for index in self._asked]:
            return False
        return all(map(eq, map(list, found), [self._members[index] for index in self._asked]))


def _set_of(entry: Entry) -> Any:
    """The set itself: what lies in the slot, or the container of which all members are under guard."""
    return entry.container if entry.kind == BULK else read(entry)


def _rows(table: Table, found: set[Any]) -> tuple[list[int], int, list[int], list[Any]] | None:
    """A set's own words, where its table is, its members' addresses, and they themselves; None to ask."""
    kept = list(found)
    words = read_words(id(found), set.__basicsize__ // BYTES)
    head = [words[place] for place in table.head]
    used, mask, start = head
    if used != len(kept) or mask >= MOST_PLACES:
        return None
    keys = read_words(start, 2 * (mask + 1))[::2] if used else []
    return (head, start, keys, kept) if {*keys}.difference(table.nobody) == {*map(id, kept)} else None
