"""Objects that nobody holds but guards, and what such objects lead to.

A guard keeps alive what it compares by identity. Where the caller has replaced such an object (an adapter, a
list of weights) and keeps no reference to it, the state of the guard cannot come back, and the guard is all
that keeps the memory. Containers know no weak references, so the garbage collector is asked who refers to an
object, and who refers to that. Where more references are counted than were found, somebody holds it in C, or
in a local variable. A process group that was destroyed is of no use to others, so nobody is asked.

What is made of plain values keeps nothing alive, and one that is equal may come in its place: an adapter's
name in a list, a dict of options. Such objects count as held, unless somebody is told of their death.

The search looks at every object of the process, once for each level of references. It runs where a call has
to be traced because an object was replaced. Where it may not run, the references that guards themselves hold
are counted: most objects that nobody else holds have no others.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from types import FrameType, ModuleType
from typing import Any

import torch

from ...base import is_instance
from ..arguments import is_openable, slots_of, table_of
from ..objects import said_module
from ..pytorch import was_destroyed
from ..state import Entry

DEPTH = 6
"""References to references that are followed."""
MOST = 2_000
"""Objects that are looked at; what leads further counts as held."""
_LASTING = (ModuleType, FrameType)
_PLAIN = frozenset({int, float, complex, bool, str, type(None)})
_PLAIN_CONTAINERS = frozenset({list, tuple, set, frozenset, deque, dict, OrderedDict})
MOST_PLAIN = 1_024
"""Parts of an object that are looked at; more may take memory."""
_PACKAGE = f"{__name__.partition('.')[0]}."
_OF_GUARDS = frozenset({list, tuple, set, frozenset, dict, OrderedDict, defaultdict, Counter})
"""Types of containers that guards hold what they compare in."""
MOST_OF_GUARDS = 20_000
"""Objects of guards that are looked at; where there are more, all counts as held."""


def abandoned(values: list[Any]) -> list[bool]:
    """Whether each of some objects is held by guards only, or by others that nobody else holds.

    Nobody but this list may refer to the objects for the sake of the question.
    """
    search = _Search(values)
    return [was_destroyed(value) or search.is_free(id(value)) for value in values]


def held_by(holders: Iterable[Any], values: list[Any], others: Collection[int]) -> list[bool]:
    """Whether each of some objects is held by some objects of the runtime's alone.

    Nobody but this list may refer to the objects for the sake of the question, nor to the holders' parts.

    Args:
        others: Identities of objects that are the caller's, which are not looked into.
    """
    counts = dict.fromkeys(map(id, values), 0)
    left, met = [*holders], {id(holders), *others}
    for key in map(id, values):
        counts[key] += 1
    while left and len(met) < MOST_OF_GUARDS:
        holder = left.pop()
        ours = type(holder) in _OF_GUARDS or said_module(type(holder)).startswith(_PACKAGE)
        if not ours or id(holder) in met:
            continue
        met.add(id(holder))
        held = gc.get_referents(holder)
        for key in map(id, held):
            if key in counts:
                counts[key] += 1
        left += held
    left.clear()
    found = zip(map(id, values), map(sys.getrefcount, values), strict=True)
    return [references <= counts[key] + _EXTRA for key, references in found]


def is_watched(value: Any) -> bool:
    """Whether somebody may be told of the death of an object, or of what plain containers and objects hold.

    Guards themselves refer weakly to tensors in it.
    """
    return any(
        [_tells(part) for part in _parts(value) if part is value or not is_instance(part, torch.Tensor)]
    )


def _tells(value: Any) -> bool:
    """Whether somebody may be told of its death: by a weak reference, or by its class."""
    return bool(weakref.getweakrefcount(value)) or any(
        ["__del__" in vars(each) for each in type(value).__mro__]
    )


def runs_code_at_death(value: Any) -> bool:
    """Whether somebody has code run when an object dies; the runtime's own does not count."""
    return bool(weakref.getweakrefcount(value)) and any(
        [_is_others(reference.__callback__) for reference in weakref.getweakrefs(value)]
    )


def _is_others(callback: Any) -> bool:
    function = callback.func if type(callback) is partial else callback
    return function is not None and not str(getattr(function, "__module__", "")).startswith(_PACKAGE)


def is_plain(value: Any) -> bool:
    """Whether an object holds numbers and strings alone, and few of them."""
    looked = 0
    for part in _parts(value):
        held = _members_of(part)
        looked += len(held) * (1 + isinstance(held, dict)) if held is not None else 0
        if held is None or looked > MOST_PLAIN:
            return False
    return True


def _parts(value: Any) -> Iterator[Any]:
    """An object and what it holds, but for numbers and strings: through plain containers, and attributes."""
    left, met = [value], set[int]()
    while left and len(met) <= MOST_PLAIN:
        part = left.pop()
        if type(part) in _PLAIN or id(part) in met:
            continue
        met.add(id(part))
        yield part
        held = _members_of(part)
        if held is not None and len(held) <= MOST_PLAIN:
            left += [*held, *held.values()] if isinstance(held, dict) else held


def _members_of(value: Any) -> Any:
    """The members of a plain container, or the attributes of an object that is nothing else."""
    return value if type(value) in _PLAIN_CONTAINERS else _attributes_of(value)


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object that is nothing else; None of any other."""
    kind = type(value)
    return table_of(value) if is_openable(kind) and not slots_of(kind) else None


class _Search:
    def __init__(self, values: list[Any]) -> None:
        self._ours: set[int] = {id(values)}
        self._from: dict[int, list[int]] = {}
        self._held: set[int] = set()
        asked = list({id(value): value for value in values}.values())
        keys, level, depth = list(map(id, asked)), asked, 0
        while level and any(map(self.is_free, keys)) and depth < DEPTH and len(self._from) < MOST:
            level, depth = self._look(level), depth + 1
        self._held.update(map(id, level))  # nobody knows who refers to these

    def _look(self, level: list[Any]) -> list[Any]:
        """Count the references to some objects; returns those who refer to them and are not known yet."""
        self._ours.add(id(level))
        given = (*level,)  # since Python 3.13 it is among what refers to its members
        found = [each for each in gc.get_referrers(*given) if each is not given]
        del given
        self._ours.add(id(found))
        counts = {id(value): 0 for value in level}
        self._from.update({key: [] for key in counts})
        for key in map(id, found):  # this list refers to them as well
            if key in counts:
                counts[key] += 1
        referrer = None
        for referrer in found:
            for key in map(id, gc.get_referents(referrer)):
                if key in counts:
                    counts[key] += 1
                    if id(referrer) not in self._ours:
                        self._from[key].append(id(referrer))
        del referrer
        for key, references in zip(counts, map(sys.getrefcount, level), strict=True):
            if references > counts[key] + _EXTRA:
                self._held.add(key)
        others = [each for each in found if not self._is_known(each)]
        self._ours.add(id(others))
        self._held.update([id(each) for each in others if isinstance(each, _LASTING)])
        return others

    def _is_known(self, referrer: Any) -> bool:
        """Whether it need not be asked who refers to an object: it is ours, or was asked about."""
        if id(referrer) in self._ours or id(referrer) in self._from:
            return True
        return isinstance(referrer, Entry) or type(referrer).__module__.startswith(_PACKAGE)

    def is_free(self, key: int) -> bool:
        """Whether nobody holds an object, nor any of the objects that refer to it."""
        seen, queue = {key}, [key]
        while queue:
            at = queue.pop()
            if at in self._held:
                return False
            new = [each for each in self._from.get(at, ()) if each not in seen]
            seen.update(new)
            queue += new
        return True


_EXTRA = next(map(sys.getrefcount, [object()])) - 1
"""References that counting itself takes, the list apart in which the objects are."""
