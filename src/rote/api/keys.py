"""The keys of a wrapper."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..base import user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..runtime.arguments import ONE_OBJECT, OPAQUE, PARAMETER, Call, Openings, explain_key, remedy_of_key
from ..runtime.engine import Ledger, Specialization, Subject, drop_abandoned
from .options import Options
from .report import ReasonCounts


class Keys:
    """Finds the key of a call, makes new ones and drops the least recently used.

    ``entries`` are in order of last use. With ``shares`` the ledger belongs to other wrappers too.
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
    ) -> None:
        self.entries: OrderedDict[Any, Specialization] = OrderedDict()
        self._subject = subject
        self._most = options.max_keys
        self._tally = tally
        self._ledger = ledger
        self._shares = shares
        self._openings = openings
        self._gone = self._called = False
        self._opened = ""

    def find(self, call: Call) -> Specialization | None:
        """The key of a call, if there is one and its arguments are alive."""
        entry = self.entries.get(call.key)
        if entry is None:
            return None
        if entry.dead:
            self.entries.pop(call.key).release()
            self._gone = True
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

    def refuse(self, call: Call) -> Reason | None:
        """Why a call without a key is not traced; None if it may be."""
        if not self._called and self._shares:
            self._ledger.add_wrapper()
        self._called = True
        if self._ledger.admits(hash((id(self), call.key))):
            return None
        return reason(rules.TRACING_COSTS, f"{self._ledger}{self._what_differs(call, '; ')}")

    def make(self, call: Call, caller: FrameType, *, tell: bool = True) -> Specialization:
        """A new key for its first call; with ``tell`` the report says how it differs from the last one."""
        entries = self.entries
        if tell and self._opened:
            text = f"{self._opened} is another object, known from now on by what calls read of it"
            self._tally.add([reason(rules.NEW_KEY, text, user_site(caller))])
        elif tell and self._gone:  # a new object may get the address of the old one
            known = _listed(call, lambda leaf, kind: kind in (OPAQUE, PARAMETER))
            text = f"{known}, known by identity, is another object; that of earlier calls is gone"
            self._tally.add([reason(rules.NEW_KEY, text, user_site(caller), ONE_OBJECT)], call.key)
        elif tell and entries:
            remedy = remedy_of_key(next(reversed(entries.values())).key, call)
            why = reason(rules.NEW_KEY, self._what_differs(call), user_site(caller), remedy)
            self._tally.add([why], call.key)
        self._gone, self._opened = False, ""
        entry = entries[call.key] = Specialization(self._subject, call)
        while len(entries) > self._most:
            entries.popitem(last=False)[1].release()
            self._tally.add([reason(rules.TOO_MANY_KEYS, f"more than {self._most} keys")])
        return entry

    def _what_differs(self, call: Call, before: str = "") -> str:
        """The difference from the key that was used last, if there is one."""
        other = next(reversed(self.entries.values()), None)
        return before + explain_key(other.key, call) if other is not None else ""

    def any_replays(self) -> bool:
        """Whether there is a recording whose last replay came to its end."""
        return any(
            recording.recorded and not recording.strays
            for entry in self.entries.values()
            for recording in entry.recordings
        )

    def drop_abandoned(self, found: Specialization | None = None) -> None:
        """Let keys drop replaced state that nobody else holds; ``found`` was just traced, and has done so."""
        entries = self.entries.values()
        if found is not None:
            entries = [entry for entry in entries if entry is not found and entry.shares_device(found)]
        drop_abandoned([entry.choice for entry in entries])

    def release(self) -> None:
        """Free all recordings and forget the keys."""
        for entry in self.entries.values():
            entry.release()
        self.entries.clear()

    def clear(self) -> None:
        """The same, and forget what they cost."""
        self.release()
        self._ledger.clear()
        self._openings.clear()


def _listed(call: Call, wanted: Callable[[Any, Any], bool]) -> str:
    """The arguments of a call whose leaf and kind are wanted, with their types."""
    given = zip(call.names(), call.leaves, call.kinds, strict=True)
    return ", ".join(f"{name} ({type(leaf).__name__})" for name, leaf, kind in given if wanted(leaf, kind))
