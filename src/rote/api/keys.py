"""The keys of a wrapper."""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from types import FrameType, NoneType
from typing import Any

from ..base import Site, user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..runtime.arguments import (
    MOVED_PARAMETER,
    ONE_OBJECT,
    OPAQUE,
    PARAMETER,
    TENSOR,
    Call,
    Key,
    Openings,
    at_any_length,
    changed_numbers,
    differing_leaf,
    explain_key,
    family,
    remedy_of_key,
    told_lengths,
)
from ..runtime.engine import Ledger, OtherLengths, Specialization, Subject, changing_leaves, drop_abandoned
from ..runtime.numbers import FEW
from ..runtime.program import may_be_renamed
from .options import Options
from .reasons import ReasonCounts

_log = logging.getLogger("rote")

_HOLD_NOTHING = (int, float, bool, NoneType)

MORE_SETS = (
    "Compile what calls these modules as one graph, or raise options={'max_parameter_sets': ...}: each set "
    "has a recording."
)
"""What to do where compiled code is called with more sets of parameters than have recordings."""

COMPARED = 8
"""The latest keys that a call without one is compared with: do they differ in a number?"""

MOST_IDLE = 3
"""Keys whose calls do next to nothing, until all run plainly: a queue is emptied between two refills."""

LOOKED_AT = 8
"""Keys whose recordings a traced call looks through for those that nothing can need any more. With 60 keys
to look through, that was a sixth of the call."""


class Keys:
    """Finds the key of a call, makes new ones and drops the least recently used.

    ``entries`` are in order of last use. With ``shares`` the ledger belongs to other wrappers too.
    ``most_sets`` bounds the keys that differ in their parameters alone: modules that share compiled code.
    """

    def __init__(
        self,
        subject: Subject,
        options: Options,
        tally: ReasonCounts,
        ledger: Ledger,
        openings: Openings,
        *,
        shares: bool,
        most_sets: int | None = None,
    ) -> None:
        self.entries: OrderedDict[Any, Specialization] = OrderedDict()
        self.idle: Reason | None = None  # why all calls run plainly, if most do next to nothing
        self._subject = subject
        self._most = options.max_keys
        self._tally = tally
        self._ledger = ledger
        self._shares = shares
        self._openings = openings
        self._gone: Specialization | None = None
        self._called = False
        self._opened = ""
        self._carried = ""
        self._most_sets = most_sets
        self._sets: dict[Any, set[Any]] = {}  # keys by what they have in common apart from their parameters
        self._told = False  # that there are too many of these
        self._tells_gradients = False  # keys have which arguments have a gradient
        self._turn = 0
        self._refused = deque[Key](maxlen=FEW)  # of calls that were not traced
        self._other_lengths = weakref.WeakValueDictionary[Key, OtherLengths]()

    def find(self, call: Call) -> Specialization | None:
        """The key of a call, if there is one and its arguments are alive."""
        entry = self.entries.get(call.key)
        if entry is None:
            return None
        if entry.dead:
            self.drop(call.key)
            self._gone = entry
            return None
        self.entries.move_to_end(call.key)
        self._opened = ""
        return entry

    def opens(self, call: Call) -> bool:
        """Whether a call without a key has arguments that are taken apart from now on."""
        known = [leaf for leaf, kind in zip(call.leaves, call.kinds, strict=True) if kind == OPAQUE]
        if not known or not self._openings.meet(known):
            return False
        self._opened = _listed(call, lambda leaf, kind: type(leaf) in self._openings.open)
        return True

    def carry(self, names: list[str]) -> None:
        """What lies in further slots is taken for arguments: no key that there is has another call."""
        self.release()
        self._carried = ", ".join(names)

    def tell_gradients(self) -> None:
        """Once calls ask arguments for their ``.grad``: what was recorded before is not told who has one."""
        if self._openings.gradients and not self._tells_gradients:
            self._tells_gradients = True
            for key, entry in [*self.entries.items()]:
                if any([recording.recorded for recording in entry.recordings]):
                    self.drop(key)

    def varies(self, call: Call) -> bool:
        """Whether a call without a key differs from several in numbers alone; keys leave these out then."""
        known = changing_leaves(self._subject.store, call) if not call.changing else ()
        if self._openings.vary(call.spec, known):
            return True
        met: dict[int, set[Any]] = {}
        latest = [entry.key for entry in islice(reversed(self.entries.values()), COMPARED)]
        for key in (*latest, *self._refused) if self._subject.computes else ():
            for leaf in changed_numbers(key, call):
                met.setdefault(leaf, set()).add(key.tokens[leaf])
        changed = [leaf for leaf, values in met.items() if len(values) >= FEW]
        return self._openings.vary(call.spec, changed)

    def tells_apart(self, call: Call) -> bool:
        """Whether a call without a key differs from several in how tensors share memory, and nothing else.

        Where none of them writes those, keys leave it out. The keys that there are do not.
        """
        shared = frozenset([each for group in call.groups() if len(group) > 1 for each in group])
        if not shared or call.openings is None or not may_be_renamed(call, shared):
            return False
        alike = [key for key in self.entries if key._replace(common=call.key.common) == call.key]
        if len(alike) < FEW:
            return False
        known = [self.entries[key] for key in alike]
        if any([entry.writes(shared) for entry in known]) or not self._openings.tell_apart(call.spec, shared):
            return False
        for key in [key for key in self.entries if key.spec == call.spec]:
            self.drop(key)
        return True

    def fixes(self, call: Call, entry: Specialization) -> bool:
        """Whether calls of a key have turned out to depend on what it leaves out; it goes then."""
        fixed = entry.changing.fixed_leaves & call.changing
        if fixed:
            self._openings.fix(call.spec, fixed)
        together = bool(call.apart) and entry.writes(call.apart)
        if together:
            self._openings.keep_together(call.spec)
        if fixed or together:
            self.drop(call.key)
        return bool(fixed) or together

    def refuse(self, call: Call) -> Reason | None:
        """Why a call without a key is not traced; None if it may be."""
        if not self._called and self._shares:
            self._ledger.add_wrapper()
        self._called = True
        crowd = self._crowd(call)
        if crowd is not None:
            return crowd
        met = hash((id(self), call.key))
        lengths = self._other_lengths.get(at_any_length(call.key)) if self._other_lengths else None
        ahead = lengths is not None and lengths.model(call) is not None
        if self._ledger.admits(met, ahead=ahead):
            return None
        leaves = zip(call.leaves, call.kinds, strict=True)
        if all([kind == TENSOR or type(leaf) in _HOLD_NOTHING for leaf, kind in leaves]):
            self._refused.append(call.key)
        return reason(rules.TRACING_COSTS, f"{self._ledger}{self._what_differs(call, '; ')}")

    def make(self, call: Call, caller: FrameType, *, tell: bool = True) -> Specialization:
        """A new key for its first call; with ``tell`` the report says how it differs from the last one."""
        entries = self.entries
        if tell and self._opened:
            text = f"{self._opened} is another object, known from now on by what calls read of it"
            self._tally.add([reason(rules.NEW_KEY, text, user_site(caller))])
        elif tell and self._carried:
            text = f"{self._carried} holds another object from call to call: an argument from now on"
            self._tally.add([reason(rules.NEW_KEY, text, user_site(caller))], call.key)
        elif tell and self._gone is not None:  # a new object may get the address of the old one
            why = _replaced(self._gone, call) or _gone(call)
            self._tally.add(
                [why if why.where is not None else replace(why, where=user_site(caller))], call.key
            )
        elif tell and entries:
            remedy = remedy_of_key(next(reversed(entries.values())).key, call)
            text = self._what_differs(call) + told_lengths([entry.key for entry in entries.values()], call)
            why = reason(rules.NEW_KEY, text, self._line(call) or user_site(caller), remedy)
            self._tally.add([why], call.key)
        self._gone, self._opened, self._carried = None, "", ""
        lengths = self._other_lengths.setdefault(at_any_length(call.key), OtherLengths())
        entry = entries[call.key] = Specialization(self._subject, call, lengths)
        common = family(call.key) if self._most_sets is not None else None
        if common is not None:
            self._sets.setdefault(common, set()).add(call.key)
        while len(entries) > self._most:
            self.drop(next(iter(entries)))
            self._tally.add([reason(rules.TOO_MANY_KEYS, f"more than {self._most} keys")])
        return entry

    def _what_differs(self, call: Call, before: str = "") -> str:
        """The difference from the key that was used last, if there is one."""
        other = next(reversed(self.entries.values()), None)
        return before + explain_key(other.key, call, other.places) if other is not None else ""

    def _line(self, call: Call) -> Site | None:
        """The line that uses the argument that differs from the key used last, if compiled code tells."""
        other = next(reversed(self.entries.values()), None)
        at = differing_leaf(other.key, call) if other is not None else None
        return call.line_of(at) if at is not None else None

    def _crowd(self, call: Call) -> Reason | None:
        """Whether so many sets of parameters have recordings that the one of a call gets none."""
        if self._most_sets is None:
            return None
        common = family(call.key)
        sets = self._sets.get(common, ()) if common is not None else ()
        if len(sets) < self._most_sets:
            return None
        for key in [key for key in sets if self.entries[key].dead]:
            self.drop(key)
        if len(self._sets.get(common, ())) < self._most_sets:
            return None
        most = self._most_sets
        text = f"{most} sets of parameters have recordings of this compiled graph, and this is another one"
        line = call.line_of(call.kinds.index(PARAMETER))
        why = reason(rules.TOO_MANY_RECORDINGS, text, line, MORE_SETS)
        if not self._told:
            self._told = True
            _log.warning("%s runs eagerly for further sets: %s", self._subject.name, why)
        return why

    def drop(self, key: Any) -> None:
        """Free the recordings of a key, and forget it."""
        self.entries.pop(key).release()
        common = family(key) if self._most_sets is not None else None
        if common in self._sets:
            self._sets[common].discard(key)
            if not self._sets[common]:
                del self._sets[common]

    def any_replays(self) -> bool:
        """Whether there is a recording whose last replay came to its end."""
        return any(
            recording.recorded and not recording.strays_often
            for entry in self.entries.values()
            for recording in entry.recordings
        )

    def drop_abandoned(self, found: Specialization | None = None) -> None:
        """Let keys drop replaced state that nobody else holds; ``found`` was just traced, and has done so."""
        entries = [entry for entry in self.entries.values() if entry.recordings]
        if found is not None:
            entries = self._some(
                [each for each in entries if each is not found and each.shares_device(found)]
            )
        drop_abandoned([entry.choice for entry in entries], self._ledger)

    def _some(self, entries: list[Specialization]) -> list[Specialization]:
        """So many of the keys in turn, so that traced calls do not cost more for each key."""
        if len(entries) <= LOOKED_AT:
            return entries
        begin = self._turn % len(entries)
        self._turn = begin + LOOKED_AT
        return [*entries, *entries][begin : begin + LOOKED_AT]

    def release(self) -> None:
        """Free all recordings and forget the keys."""
        for entry in self.entries.values():
            entry.release()
        self.entries.clear()
        self._refused.clear()
        self._sets.clear()
        self._told = False

    def leave_idle(self, site: Site) -> None:
        """Calls of one more key do next to nothing: where most do, all run plainly, and parts replay."""
        entries = [*self.entries.values()]
        if self.idle is None and sum([entry.is_idle for entry in entries]) >= MOST_IDLE:
            text = "most calls do next to nothing, so all run plainly; modules in the others are graphed"
            self.idle = reason(rules.SLOWER, text, site)
            for entry in entries:
                entry.refuse(self.idle)

    def clear(self) -> None:
        """The same, and forget what they cost."""
        self.release()
        self.idle = None
        self._tells_gradients = False
        self._ledger.clear()
        self._openings.clear()


def _gone(call: Call) -> Reason:
    """An argument that is known by its identity is another object, where the old one died."""
    known = _listed(call, lambda leaf, kind: kind in (OPAQUE, PARAMETER))
    text = f"{known}, known by identity, is another object; that of earlier calls is gone"
    return reason(rules.NEW_KEY, text, None, ONE_OBJECT)


def _replaced(gone: Specialization, call: Call) -> Reason | None:
    """The first parameter of compiled code that lies elsewhere than one that died; None if none does."""
    moved = zip(gone.places, call.addresses(), strict=False)
    at = next((number for number, (was, now) in enumerate(moved) if was and now and was != now), None)
    if at is None:
        return None
    was, now = gone.places[at], call.addresses()[at]
    text = f"{call.names()[at]} was a parameter at {was:#x}, which is gone, and is another one at {now:#x}"
    return reason(rules.NEW_KEY, text, call.line_of(at), MOVED_PARAMETER)


def _listed(call: Call, wanted: Callable[[Any, Any], bool]) -> str:
    """The arguments of a call whose leaf and kind are wanted, with their types."""
    given = zip(call.names(), call.leaves, call.kinds, strict=True)
    return ", ".join(f"{name} ({type(leaf).__name__})" for name, leaf, kind in given if wanted(leaf, kind))
