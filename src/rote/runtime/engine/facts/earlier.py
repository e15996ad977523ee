"""What earlier processes have found for one key, and what this one adds to it.

**What facts may change.** When something is tried, and nothing else. A recording is made from what this
process observes, under the conditions that it has read, and its first replay stands on that alone.

- *Numbers that change* are followed from the second call on (arguments from the first one), instead of after
  a few values. Following a number finds out what a call does with it; that others were seen decides only
  that it is worth the trouble. One that is followed without need is computed in each replay, or found to be
  a condition; where nothing comes of it, the facts are forgotten. The call that checks what was found, with
  other numbers and not followed, is made as ever: nothing else would show that a computation is right.
- *Observations*. One observation and a recorded call that agrees with it are always made: they show that
  state has settled, that nothing is initialised lazily any more, and that operations come again. Only those
  that ``warmup`` asks for beyond the first are left out, where the observed call has done what the facts
  say. What more of them would show, that a value is the same from call to call, is a condition of the
  recording, and is asked before each replay.
- *The exact tier* is made at the first replay instead of the 128th. It is proved and compared as ever, and
  its last step is timed against the one before.
- *A verdict* that nothing comes of a key spares calls that would be traced in vain. It holds until plain
  calls have paid for one traced call (:meth:`..ledger.Ledger.pays`), at a price that is bounded. So no fact
  keeps a program from its recordings for ever, and who writes a false one gains a delay.

So false facts cost time. They come from files, and nobody relies on who wrote those.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType
from typing import Any, Protocol, TypeVar

from ....hazards.rules import Reason
from ...arguments import Call
from ...conditions import ChangingNumbers
from ...recording import Recording
from ...state import ATTRIBUTE, CELL, ITEM, Reads
from .facts import KeyFacts, ReasonFacts, StateFacts, VerdictFacts
from .texts import KeyName, facts_of, hide_strings

RanCode = Mapping[CodeType, Mapping[str, Any]]
"""Code that calls have run, with its globals."""


class FactStore(Protocol):
    """Keeps the facts of one callable; :mod:`rote.plans` has them in a directory.

    Nothing here raises: what cannot be kept or read is said in a note.
    """

    def find(self, key: KeyName) -> KeyFacts | None:
        """What is known of a key, in so far as it may hold for this process."""
        ...

    def keep(self, key: KeyName, facts: KeyFacts, codes: RanCode) -> None:
        """Keep what this process has found; ``codes`` are what its calls have run."""
        ...

    def note(self, text: str) -> None:
        """The report says this once."""
        ...

    def hide(self, text: str) -> str:
        """What stands for a text that is not to be kept: a digest and a length."""
        ...


MOST_STATES = 8
"""States whose facts are kept, those of earlier processes included."""
MOST_REASONS = 16
MOST_NUMBERS = 64
LEAST_PRICE, MOST_PRICE = 1.0, 1_000.0
"""Of a traced call, in plain calls; what a verdict says beyond that is not believed."""


class EarlierFacts:
    """What is known of one key.

    Args:
        store: Where facts are kept; None if nowhere.
    """

    def __init__(self, store: FactStore | None, call: Call) -> None:
        self._store = store
        self._name = self._family = KeyName("", "")
        self._facts = KeyFacts("")
        self._reasons: dict[tuple[str, str], ReasonFacts] = {}
        self._written = weakref.WeakKeyDictionary[Recording, tuple[int, StateFacts]]()
        self._fits = self._exact = self._compared = self._followed = False
        with self._apart() as facts:
            if facts is not None:
                self._name = KeyName.of(call, facts.hide)
                self._family = KeyName.of(call, facts.hide, numbers=False)
                self._facts = facts.find(self._name) or KeyFacts(self._name.shown)
        self._found = self._facts
        self._verdict = self._found.verdict

    @contextmanager
    def _apart(self) -> Generator[FactStore | None]:
        """What goes wrong with facts is no matter of the call: the report says so, and there are no more."""
        store = self._store
        try:
            yield store
        except Exception as error:
            self._store = None
            if store is not None:
                store.note(f"{self._facts.key}: given up, {type(error).__name__}: {error}")

    # ------------------------------------------------------------------ what they change

    @property
    def exact(self) -> bool:
        """Whether the exact tier of such calls has won."""
        return self._exact

    @property
    def spares(self) -> bool:
        """Whether calls are not traced until they have paid for it."""
        return self._verdict is not None

    @property
    def reasons(self) -> list[Reason]:
        """Why the key came to nothing earlier, if it did."""
        if self._found.verdict is None:
            return []
        why = self._found.verdict.reason
        place = f", at {why.where}" if why.where else ""
        return [Reason(why.code, f"{why.message}{place}, as an earlier process has found", None, why.remedy)]

    def spare(self, pays: Callable[[float], bool]) -> bool:
        """Whether a call is not traced, since that has come to nothing and is not paid for.

        Args:
            pays: Tells whether a traced call is paid for that costs as much as so many plain calls.
        """
        if self._verdict is None:
            return False
        if pays(min(max(self._verdict.price, LEAST_PRICE), MOST_PRICE)):
            self._verdict = None
            return False
        return True

    def follow(self, reads: Reads, changing: ChangingNumbers) -> None:
        """After the first call: which of the numbers that it has read are others in each call."""
        names, lines = self._found.slots, self._found.lines
        if self._followed or not (names or lines):
            return
        self._followed = True
        with self._apart() as store:
            numbers = [each for each in reads if type(each.value) in (int, float) and each.kind in _SLOTS]
            if store is not None:
                found = [each for each in numbers if hide_strings(each.name, store.hide) in names]
                changing.suppose([each.address for each in found], [(site,) for site in lines])

    def compare(self, recording: Recording) -> bool:
        """Whether an observed call is one that the facts are about; the report says what differs."""
        if self._fits or not self._found.states:
            return self._fits
        with self._apart() as store:
            if store is not None:
                now = self._facts_of(recording, store)
                self._compare(now, store)
        return self._fits

    def _compare(self, now: StateFacts, store: FactStore) -> None:
        differences = [was.difference(now) for was in self._found.states]
        if "" in differences:
            self._fits, self._exact = True, self._found.states[differences.index("")].exact
            store.note(f"{self._found.key}: the call is as it was when the plan was made")
        elif not self._compared:
            self._compared = True
            store.note(f"{self._found.key}: stale, {differences[0]}")

    # ------------------------------------------------------------------ what is kept

    def meet(self, reasons: Iterable[Reason]) -> None:
        """A call was not replayed."""
        if self._store is None:
            return
        with self._apart() as store:
            for why in reasons if store is not None else ():
                if len(self._reasons) < MOST_REASONS or (why.code, why.place) in self._reasons:
                    self._reasons[why.code, why.place] = self._reason(why)

    def keep(
        self, recordings: Sequence[Recording], calls: int, codes: RanCode, end: VerdictFacts | None = None
    ) -> None:
        """Keep what is known by now.

        Args:
            calls: How many calls it has had.
            end: Why nothing comes of it, if so.
        """
        with self._apart() as store:
            if store is None:
                return
            self._facts = self._now(store, [each for each in recordings if each.recorded], calls, end)
            store.keep(self._name, self._facts, codes)
            if self._facts.leaves and self._family != self._name:
                store.keep(self._family, KeyFacts(self._family.shown, leaves=self._facts.leaves), codes)

    def end(
        self, why: Reason, price: float, recordings: Sequence[Recording], calls: int, codes: RanCode
    ) -> None:
        """Nothing comes of the key; ``price`` is what a traced call has cost, in plain calls."""
        with self._apart() as store:
            if store is not None:
                self.keep(recordings, calls, codes, VerdictFacts(self._reason(why), price))

    def _now(
        self, store: FactStore, recorded: Sequence[Recording], calls: int, end: VerdictFacts | None
    ) -> KeyFacts:
        before = self._facts
        states = [self._facts_of(each, store) for each in recorded]
        others = [was for was in before.states if all([was.difference(now) for now in states])]
        sources = [place for each in recorded for place in each.places()]
        slots = [hide_strings(each.name, store.hide) for each in sources if each.kind in _SLOTS]
        lines = [each.lines[-1] for each in sources if each.lines is not None]
        return KeyFacts(
            before.key,
            calls=before.calls or (calls if states else 0),
            states=tuple([*states, *others][:MOST_STATES]),
            verdict=end,
            lines=(_once(lines) if states else before.lines)[:MOST_NUMBERS],
            slots=(_once(slots) if states else before.slots)[:MOST_NUMBERS],
            leaves=_once([each.key for each in sources if not each.kind]),
            reasons=tuple(self._reasons.values()) or before.reasons,
        )

    def _reason(self, why: Reason) -> ReasonFacts:
        found = ReasonFacts.of(why)
        hide = self._store.hide if self._store is not None else str
        return replace(
            found, message=hide_strings(found.message, hide), remedy=hide_strings(found.remedy, hide)
        )

    def _facts_of(self, recording: Recording, store: FactStore) -> StateFacts:
        """The facts of a recording; its operations are written down once, until it has more ways."""
        paths, (known, found) = recording.root.paths(), self._written.get(recording, (0, None))
        found = facts_of(recording, store.hide, found if paths == known else None)
        self._written[recording] = paths, found
        return found


_Each = TypeVar("_Each")
_SLOTS = frozenset({ITEM, ATTRIBUTE, CELL})


def _once(found: Iterable[_Each]) -> tuple[_Each, ...]:
    return tuple(dict.fromkeys(found))


def changing_leaves(store: FactStore | None, call: Call) -> tuple[int, ...]:
    """The argument leaves that were numbers which changed from call to call, in earlier processes."""
    if store is None:
        return ()
    found = store.find(KeyName.of(call, store.hide, numbers=False))
    return found.leaves if found is not None else ()
