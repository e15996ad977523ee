"""What both stages tell of a run: the same readings of the mode that watches it."""

from __future__ import annotations

from typing import Any, Protocol

from .draws import Draws
from .notes import Notes
from .places import Place
from .raised import Raised


class Watcher(Protocol):
    """The dispatch mode of a stage."""

    notes: Notes
    raised: Raised
    trace: list[tuple[str, Any]]
    places: dict[int, Place]

    def begin(self, wanted: frozenset[int] = frozenset()) -> None:
        """A new run begins."""
        ...


class Observed:
    """Base of the stages.

    Args:
        watcher: Its dispatch mode.

    Attributes:
        sees_all: What is not found in a line that ran is not there, as far as a trial can find it.
    """

    sees_all = True

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._draws = Draws()

    def begin(self, wanted: frozenset[int] = frozenset()) -> None:
        """A new run begins; the places of some operations may be wanted."""
        self._draws.drawn.clear()
        self._watcher.begin(wanted)

    def returned(self) -> None:
        """The callable has returned."""
        self._watcher.raised.caught(self._watcher.notes)

    @property
    def notes(self) -> Notes:
        """The notes of the current run."""
        return self._watcher.notes

    @property
    def trace(self) -> list[tuple[str, Any]]:
        """The operations of the current run."""
        return self._watcher.trace

    @property
    def places(self) -> dict[int, Place]:
        """The places of the operations that were wanted, by position."""
        return self._watcher.places

    @property
    def drawn(self) -> dict[str, list[Place]]:
        """Where host random numbers were drawn in the current run, by module."""
        return {module: list(places.values()) for module, places in self._draws.drawn.items()}
