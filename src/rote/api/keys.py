"""The keys of a wrapper."""

from __future__ import annotations

from collections import OrderedDict
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
    """Finds the key of a call, makes new ones and drops those that were not used for longest.

    Args:
        subject: The callable.
        options: Those of the wrapper.
        tally: Counts reasons.
        ledger: What traced calls cost.
        openings: Which classes of arguments are taken apart.
        shares: The ledger is that of other wrappers, too.

    Attributes:
        entries: By key, in order of last use.
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
        """The key of a call, if it was looked at before and its arguments are alive."""
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
        """Whether a call, whose key was not found, has arguments that are to be taken apart from now on."""
        known = [leaf for leaf, kind in zip(call.leaves, call.kinds, strict=True) if kind == OPAQUE]
        if not known or not self._openings.meet(known):
            return False
        pairs = zip(call.names(), call.leaves, strict=True)
        opened = [
            f"{name} ({type(leaf).__name__})" for name, leaf in pairs if type(leaf) in self._openings.open
        ]
        self._opened = ", ".join(opened)
        return True

    def refuse(self, call: Call) -> Reason | None:
        """Why a call is not to be looked at, whose key was not found; None if it is."""
        if not self._called and self._shares:
            self._ledger.add_wrapper()
        self._called = True
        if self._ledger.admits(hash((id(self), call.key))):
            return None
        return reason(rules.TRACING_COSTS, f"{self._ledger}{self._what_differs(call, '; ')}")

    def make(self, call: Call, caller: FrameType, *, tell: bool = True) -> Specialization:
        """A key about which nothing is known yet.

        Args:
            call: Its first call.
            caller: The caller's frame.
            tell: Say in the report what differs from the key that was used last.
        """
        entries = self.entries
        if tell and self._opened:
            text = f"{self._opened} is another object, known from now on by what calls read of it"
            self._tally.add([reason(rules.NEW_KEY, text, user_site(caller))])
        elif tell and self._gone:  # the next one may come to lie where it lay
            pairs = zip(call.names(), call.leaves, call.kinds, strict=True)
            known = [
                f"{name} ({type(leaf).__name__})" for name, leaf, kind in pairs if kind in (OPAQUE, PARAMETER)
            ]
            text = f"{', '.join(known)}, known by identity, is another object; that of earlier calls is gone"
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
        """What differs from the key that was used last, if there is one."""
        other = next(reversed(self.entries.values()), None)
        return before + explain_key(other.key, call) if other is not None else ""

    def any_replays(self) -> bool:
        """Whether a call may be replayed: there is a recording, and its last replay came to its end."""
        return any(
            recording.recorded and not recording.strays
            for entry in self.entries.values()
            for recording in entry.recordings
        )

    def drop_abandoned(self, found: Specialization | None = None) -> None:
        """Keys need not keep what was replaced, if nobody else holds it.

        Args:
            found: A call of this key was traced, so it has looked itself.
        """
        if found is None:
            drop_abandoned([entry.choice for entry in self.entries.values()])
            return
        others = [
            entry for entry in self.entries.values() if entry is not found and entry.shares_device(found)
        ]
        drop_abandoned([entry.choice for entry in others])

    def release(self) -> None:
        """Free all recordings and forget the keys."""
        for entry in self.entries.values():
            entry.release()
        self.entries.clear()

    def clear(self) -> None:
        """The same, and forget how many there were."""
        self.release()
        self._ledger.clear()
        self._openings.clear()
