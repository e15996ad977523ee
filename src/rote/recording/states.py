"""The life of a key, as a table. Everything that changes a key's state is in this file.

A key is *observing* until it was observed often enough; then the next call is *recording*, and if that call
agrees with the observation, later calls are *replaying*. What never agrees is *eager*; it is looked at again
after a while, seldom and ever more seldom, because calibration over many batches ends some day.
"""

from __future__ import annotations

from enum import Enum

from ..base.errors import InternalError


class State(Enum):
    """What the next call with this key does."""

    OBSERVING = "observing"
    RECORDING = "recording"
    REPLAYING = "replaying"
    EAGER = "eager"


class Event(Enum):
    """What may happen to a key."""

    AGREED = "observed calls agree"
    DIFFERED = "calls differ"
    RECORDED = "recording finished"
    GUARD_FAILED = "guard does not match"
    GAVE_UP = "unsteady for too long"
    LIMIT = "limit reached"
    CAPTURE_FAILED = "capture failed"
    RETRY = "time to look again"
    REFUTED = "a replay differed from the plain call"
    LOST = "replays are slower than plain calls"


TABLE: dict[State, dict[Event, State]] = {
    State.OBSERVING: {
        Event.AGREED: State.RECORDING,
        Event.DIFFERED: State.OBSERVING,
        Event.GAVE_UP: State.EAGER,
        Event.LIMIT: State.EAGER,
        Event.GUARD_FAILED: State.OBSERVING,
        Event.CAPTURE_FAILED: State.EAGER,
        Event.REFUTED: State.EAGER,
        Event.LOST: State.EAGER,
    },
    State.RECORDING: {
        Event.RECORDED: State.REPLAYING,
        Event.DIFFERED: State.OBSERVING,
        Event.CAPTURE_FAILED: State.EAGER,
        Event.GUARD_FAILED: State.OBSERVING,
        Event.LIMIT: State.EAGER,
        Event.GAVE_UP: State.EAGER,
        Event.REFUTED: State.EAGER,
        Event.LOST: State.EAGER,
    },
    State.REPLAYING: {
        Event.RECORDED: State.REPLAYING,
        Event.AGREED: State.REPLAYING,
        Event.DIFFERED: State.OBSERVING,
        Event.GUARD_FAILED: State.OBSERVING,
        Event.LIMIT: State.EAGER,
        Event.GAVE_UP: State.EAGER,
        Event.CAPTURE_FAILED: State.EAGER,
        Event.REFUTED: State.EAGER,
        Event.LOST: State.EAGER,
    },
    State.EAGER: {
        Event.RETRY: State.OBSERVING,
    },
}

PATIENCE = 8
"""Unsteady calls in a row after which a key runs eagerly for a while."""

FIRST_REST = 16
"""Calls a key runs eagerly after that; doubled each time."""


class Life:
    """Where a key is, and how long it stays eager."""

    def __init__(self) -> None:
        self.state = State.OBSERVING
        self.final = False
        self._unsteady = 0
        self._rest = FIRST_REST
        self._resting = 0

    def happen(self, event: Event) -> None:
        """Move on.

        Raises:
            InternalError: The table has no such transition; nothing changed.
        """
        target = TABLE[self.state].get(event)
        if target is None:
            raise InternalError(f"a key that is {self.state.value} cannot have '{event.value}' happen")
        self.state = target
        if event in (Event.LIMIT, Event.CAPTURE_FAILED, Event.REFUTED, Event.LOST):
            self.final = True

    def unsteady(self) -> None:
        """A call was not steady; after too many in a row the key rests."""
        self._unsteady += 1
        if self._unsteady >= PATIENCE:
            self.happen(Event.GAVE_UP)
            self._resting = self._rest
            self._rest *= 2
        elif self.state is not State.OBSERVING:
            self.happen(Event.DIFFERED)

    def steady(self) -> None:
        """A call was steady."""
        self._unsteady = 0

    def rest(self) -> bool:
        """Count an eager call; whether the key goes on resting."""
        if self.final:
            return True
        self._resting -= 1
        if self._resting >= 0:
            return True
        self.happen(Event.RETRY)
        self._unsteady = PATIENCE - 3  # three calls to show that it has settled
        return False
