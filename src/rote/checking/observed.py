"""What both stages tell of a run: the same readings of the mode that watches it."""

from __future__ import annotations

from typing import Any, Protocol

from .draws import Draws
from .notes import Notes
from .places import Place


class Watcher(Protocol):
    """The dispatch mode of a stage."""

    notes: Notes
    trace: list[tuple[str, Any]]
    place: Place | None

    def begin(self, wanted: int = -1) -> None:
        """A new run begins."""
        ...


class Observed:
    """Base of the stages.

    Args:
        watcher: Its dispatch mode.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._draws = Draws()

    def begin(self, wanted: int = -1) -> None:
        """A new run begins; the place of one operation may be wanted."""
        self._draws.drawn.clear()
        self._watcher.begin(wanted)

    @property
    def notes(self) -> Notes:
        """The notes of the current run."""
        return self._watcher.notes

    @property
    def trace(self) -> list[tuple[str, Any]]:
        """The operations of the current run."""
        return self._watcher.trace

    @property
    def place(self) -> Place | None:
        """The place of the operation that was wanted."""
        return self._watcher.place

    @property
    def drawn(self) -> dict[str, list[Place]]:
        """Where host random numbers were drawn in the current run, by module."""
        return {module: list(places.values()) for module, places in self._draws.drawn.items()}
