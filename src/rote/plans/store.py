"""The facts of one callable in a directory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..runtime.engine import KeyFacts, KeyName, RanCode
from .directory import PlanDirectory
from .folder import FACTS, PlanError, seal, unseal
from .form import read, written
from .here import around, difference

ENDING = ".facts"
MOST_BYTES = 4 << 20
MOST_KEPT = 256
"""Keys of one callable that a process keeps facts of."""
MOST_NOTES = 64


@dataclass(frozen=True)
class PlanFile:
    """What a file of facts holds.

    Attributes:
        made: When it was written, in seconds since 1970.
        around: Versions, device and options.
        code: The files whose code was run, with digests.
    """

    callable: str
    made: float
    around: dict[str, str]
    code: dict[str, str]
    facts: KeyFacts = field(default_factory=lambda: KeyFacts(""))


@dataclass(frozen=True)
class PlanReport:
    """The part of a report on what earlier processes have found.

    Attributes:
        notes: What was taken from there, what was not, and why.
        reasons: Why calls were not replayed, as earlier processes have found.
    """

    directory: str
    notes: tuple[str, ...]
    reasons: tuple[str, ...]

    def lines(self) -> list[str]:
        """The report as text."""
        return [*[f"plan in {self.directory}: {note}" for note in self.notes], *self.reasons]


class PlanStore:
    """Keeps the facts of one callable, as :class:`~..runtime.engine.facts.FactStore` says.

    Args:
        name: The name of the callable, the same in all processes.
    """

    def __init__(self, directory: PlanDirectory, name: str, options: Mapping[str, str]) -> None:
        self.directory = directory
        self._name = name
        self._options = dict(options)
        self._notes: dict[str, None] = {}
        self._kept: dict[str, bytes] = {}
        self._known: dict[str, KeyFacts] = {}

    def report(self) -> PlanReport:
        """What was taken from the directory, and what earlier processes knew of the keys that calls had."""
        notes = tuple(dict.fromkeys([*self.directory.failures, *self._notes]))
        reasons = [
            why
            for facts in self._known.values()
            for why in (*([facts.verdict.reason] if facts.verdict is not None else []), *facts.reasons)
        ]
        return PlanReport(
            self.directory.path,
            notes,
            tuple(dict.fromkeys([f"an earlier process: {why}" for why in reasons])),
        )

    def note(self, text: str) -> None:
        """The report says this once."""
        if len(self._notes) < MOST_NOTES:
            self._notes[text] = None

    def hide(self, text: str) -> str:
        """What stands for a text that is not written down."""
        return self.directory.hide(text)

    def find(self, key: KeyName) -> KeyFacts | None:
        """What is known of a key, in so far as it may hold for this process."""
        folder, name = self.directory.folder, self._file(key)
        if folder is None:
            return None
        try:
            content = folder.read(name, MOST_BYTES)
            if content is None:
                return None
            found = read(PlanFile, unseal(FACTS, content))
        except PlanError as error:
            self.directory.fail(f"{os.path.join(folder.path, name)} is not used: {error}")
            return None
        stale = difference(found.around, around(self._options))
        if stale:
            self.note(f"{key.shown}: stale, {stale}")
            return None
        self._known[name] = found.facts
        changed = self.directory.sources.difference(found.code)
        if changed:
            self.note(f"{key.shown}: {changed}; a verdict, and numbers that change, are found anew")
        return found.facts.trusting(code=not changed)

    def keep(self, key: KeyName, facts: KeyFacts, codes: RanCode) -> None:
        """Keep what this process has found."""
        folder, name = self.directory.folder, self._file(key)
        if folder is None or (name not in self._kept and len(self._kept) >= MOST_KEPT):
            return
        content = written(facts)
        if self._kept.get(name) == content:
            return
        self._kept[name] = content
        made = PlanFile(
            self._name, time.time(), around(self._options), self.directory.sources.of(codes), facts
        )
        sealed = seal(FACTS, written(made))
        if len(sealed) > MOST_BYTES:
            self.note(f"{key.shown}: not kept, its facts take {len(sealed)} bytes")
            return
        try:
            folder.write(name, sealed)
        except PlanError as error:
            self.directory.fail(str(error))

    def _file(self, key: KeyName) -> str:
        return self.directory.digest(f"{self._name}\n{key.text}")[:40] + ENDING
