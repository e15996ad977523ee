"""Dicts under guard, and containers that are to be empty: asked as a whole, not slot by slot.

A dict whose version is the recorded one holds what it held. The versions, and the lengths of empty
containers, are words of memory (:mod:`..fingerprint.words`), one in each. A model of 150 parameters has 2,000
such containers. In a loop that keeps them in the processor's caches, reading them takes 3 us; for a caller
who waits for the device after each call they come from memory, which takes 100 us and more (H200's host).

So where there are many, and PyTorch can watch dicts (since Python 3.12), they are watched once they have kept
still for some calls, and the epoch (:mod:`..fingerprint.epoch`) says in one question whether any has changed.
It may end for a change elsewhere: then the words decide, as before.

An empty dict cannot be watched: ``update`` fills it from another one without a notice. So the lengths of
empty containers are always read. The tables of hooks, ordered dicts, notice their ``update``.
(``dict.update(table, ...)`` goes past an ordered dict's own, which leaves a table that says it has members
and lists none.)

So are dicts that no slot is in, but an answer: that of a function with a cache, which changes with its table,
and what is set for Dynamo. What an abstract class says of another one is as it was if the number of
registrations is. Asked one by one they take longer than all words of an optimizer's state.

A dict that changes again and again and yet holds what is under guard, a namespace in which other things
happen, is *busy*: it is looked into slot by slot from then on. A few changes are none: modules are imported
late.
"""

from __future__ import annotations

from abc import ABCMeta
from collections import Counter, OrderedDict, defaultdict
from typing import Any, NamedTuple

from ...base import ENVIRONMENT, identity
from ..fingerprint import (
    EPOCH,
    NEVER,
    Stage,
    find_lengths,
    find_registrations,
    find_version,
    joined,
    places,
    portions,
    stage,
    state_of,
    words_at,
)
from ..objects import Content, table_of
from ..pytorch import dict_version, stance, told_by_stance
from ..state import ASKED, CACHED, DEFINED, LENGTH, SUBCLASS, Argument, Entry
from .guards import Guard

_EMPTY_TESTED = (dict, OrderedDict, defaultdict, list, set)
"""Types whose truth value is whether they have a member."""

_NUMBERED = (dict, defaultdict)
"""Types whose version says everything; that of an ordered dict does not say the order of several members."""

MANY = 128
"""Containers from which on they are watched, where that is possible."""

SETTLED = 8
"""Calls for which they have to have kept still. Who watches a dict that changes all the time has no epoch."""


RARELY = 4
"""Changes up to which a dict is not busy."""


class SeenDicts(NamedTuple):
    """Containers as they were at one moment.

    Attributes:
        changing: The words that the epoch speaks for.
        portions: The same, as they are read.
        lengths: The words that it does not speak for.
    """

    versions: list[int]
    changing: Stage
    portions: tuple[Stage, ...]
    lengths: Stage


class Dicts:
    """The containers of a guard that are asked as a whole."""

    def __init__(self) -> None:
        self._version_of = dict_version()
        self._version_at = find_version() if self._version_of is not None else None
        self._reader = EPOCH.reader()
        self._read_epoch = self._reader if self._version_at is None else None
        self._busy: set[int] = set()
        self._changes: Counter[int] = Counter()
        self._seen: SeenDicts | None = None
        self._epoch: int | None = None
        self._left = SETTLED
        self._found: list[dict[Any, Any]] = []
        self._tables: list[Any] = []
        self._numbers: list[int] = []
        self._filling: list[int] = []
        self._lengths: list[int] = []
        self._answers: list[tuple[Entry, tuple[int, ...]]] = []
        self.empties: list[Any] = []

    def cover(self, guard: Guard) -> set[int]:
        """Find the containers that can be asked as a whole; returns their identities."""
        covered: set[int] = set()
        readable = find_lengths()
        self._found, self._tables, self.empties = [], [], []
        self._filling, self._lengths = [], []  # places of words; the plain guard keeps the containers alive
        self._answers = []
        for entry in guard.entries:
            kind = type(entry.container)
            if kind in _EMPTY_TESTED and _says_empty(entry) and identity(entry.container) not in covered:
                covered.add(identity(entry.container))
                if kind not in readable:
                    self.empties.append(entry.container)
                elif kind is OrderedDict and self._version_at is not None:
                    self._tables.append(entry.container)
                    self._filling += places(id(entry.container), [readable[kind]])
                else:
                    self._lengths += places(id(entry.container), [readable[kind]])
        for entry in guard.entries if self._version_of is not None else ():
            tables = _tables_of(entry)
            if tables:
                self._answers.append((entry, tuple(map(identity, tables))))
            for container in tables or (entry.container,):
                mapping = _behind(container)
                if not _is_numbered(mapping) or identity(container) in covered:
                    continue
                if identity(mapping) not in self._busy:
                    self._found.append(mapping)
                    covered.add(identity(container))
        place = find_registrations() if any(map(_is_registered, guard.entries)) else None
        self._lengths += [place] if place is not None else []
        at = [self._version_at] if self._version_at is not None else []
        self._numbers = [place for found in self._found for place in places(id(found), at)]
        if self._read_epoch is not None:
            self._watch()
        return covered

    def answer(self, entry: Entry, covered: set[int]) -> bool:
        """Whether the answer in a slot that is no member of a container is known to be as it was.

        Args:
            covered: What :meth:`cover` has returned.
        """
        if _is_registered(entry):
            return find_registrations() is not None
        tables = _tables_of(entry)
        return bool(tables) and covered.issuperset(map(identity, tables))

    # ------------------------------------------------------------------ noting

    def look(self) -> SeenDicts:
        """Read everything, before the plain guard looks at what is in the containers."""
        changing = stage([*self._numbers, *self._filling])
        return SeenDicts(self._read_versions(), changing, tuple(portions(changing)), stage(self._lengths))

    def forget(self) -> SeenDicts | None:
        """Nothing is known any more; returns what was."""
        was, self._seen, self._epoch = self._seen, None, None
        return was

    def adopt(self, was: SeenDicts | None, now: SeenDicts) -> bool:
        """The plain guard has held between two looks: the later one is what is known now.

        Returns:
            False if there are busy dicts, or other ones in which an answer lies; they have to be sorted out
            first (:meth:`cover`).
        """
        for entry, were in self._answers:
            if tuple(map(identity, _tables_of(entry))) != were:
                return False
        if was is None or was.versions == now.versions:
            self._seen = now
            return True
        dicts = zip(self._found, was.versions, now.versions, strict=True)
        changed = [identity(found) for found, before, after in dicts if before != after]
        self._changes.update(changed)
        busy = {each for each in changed if self._changes[each] > RARELY}
        if not busy:
            self._seen = now
            return True
        self._busy |= busy
        return False

    def _read_versions(self) -> list[int]:
        if self._version_at is not None:
            return [state_of(version) for version in words_at(self._numbers)]
        return list(map(self._version_of, self._found)) if self._version_of is not None else []

    # ------------------------------------------------------------------ asking

    @property
    def known(self) -> bool:
        """Whether the containers were looked at since the last change."""
        return self._seen is not None

    @property
    def apart(self) -> bool:
        """Whether :meth:`same` has to be asked; otherwise :attr:`words` are all."""
        many = len(self._numbers) + len(self._filling) >= MANY and self._reader is not None
        return many or (self._version_at is None and bool(self._found))

    @property
    def words(self) -> Stage:
        """The words to be looked at beside :meth:`same`."""
        if self._seen is None:
            return NEVER
        return self._seen.lengths if self.apart else joined(self._seen.changing, self._seen.lengths)

    def same(self) -> bool:
        """Whether dicts and tables of hooks are as they were."""
        if self._seen is None:
            return False
        epoch = self._read_epoch() if self._read_epoch is not None else None
        if epoch is not None and epoch == self._epoch:
            return True
        for read_words, where, were in self._seen.portions:
            if read_words(where).tobytes() != were:
                return False
        if self._version_at is None:
            if self._read_versions() != self._seen.versions:
                return False
        elif self._read_epoch is None:
            self._settle()
        self._epoch = epoch  # read before the versions: what changes from now on changes it
        return True

    def _settle(self) -> None:
        """Watch them, when they have kept still for long enough."""
        self._left -= 1
        if not self._left and self._reader is not None:
            self._watch()
            self._read_epoch = self._reader

    def _watch(self) -> None:
        """Let PyTorch number the changes of the containers from now on."""
        if self._version_of is not None:
            for container in (*self._found, *self._tables):
                self._version_of(container)


def _is_numbered(mapping: Any) -> bool:
    """Whether a version says all of what a container holds."""
    return (type(mapping) in _NUMBERED and bool(mapping)) or (
        type(mapping) is OrderedDict and len(mapping) == 1
    )


def _says_empty(entry: Entry) -> bool:
    """Whether a slot says that a container has no member, or lacks one key and all others."""
    says = entry.kind == LENGTH or (entry.kind == DEFINED and not entry.container)
    return says and isinstance(entry.value, Content) and not entry.value.value


def _tables_of(entry: Entry) -> tuple[dict[Any, Any], ...]:
    """The dicts that say whether an answer is as it was; none if that is not known."""
    if type(entry.container) is Argument:
        return ()
    if entry.kind == ASKED:
        return told_by_stance() if entry.container is stance else ()
    table = table_of(entry.container, entry.key) if entry.kind == CACHED else None
    return (table,) if table is not None else ()


def _is_registered(entry: Entry) -> bool:
    """Whether a slot is what an abstract class says of another class."""
    return entry.kind == SUBCLASS and type(entry.container) is ABCMeta


def _behind(container: Any) -> Any:
    """The dict in which the members of a container lie; something else if there is none."""
    if container is ENVIRONMENT:  # decoding all of it takes 15 us
        return getattr(container, "_data", None)
    return container
