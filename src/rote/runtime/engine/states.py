"""The life of a key, as a table. Everything that changes a key's state is in this file.

A key is *observing* until it was observed often enough; then the next call is *recording*, and if that call
agrees with the observation, later calls are *replaying*. What never agrees is *eager*; it is looked at again
after a while, seldom and ever more seldom, because calibration over many batches ends some day. So does what
reads another value on the host in every call, for which each traced call leads to a path that is never taken
again.
"""

from __future__ import annotations

import sys
from enum import Enum

from ...base import InternalError


class State(Enum):
    """What the next call with this key does."""

    OBSERVING = "observing"
    RECORDING = "recording"
    REPLAYING = "replaying"
    EAGER = "eager"


class LifeEvent(Enum):
    """What may happen to a key."""

    AGREED = "observed calls agree"
    DIFFERED = "calls differ"
    RECORDED = "recording finished"
    GUARD_FAILED = "guard does not match"
    GAVE_UP = "unsteady for too long"
    FRUITLESS = "values do not come again"
    CROWDED = "too many values"
    LIMIT = "limit reached"
    CAPTURE_FAILED = "capture failed"
    RETRY = "time to look again"
    REFUTED = "a replay differed from the plain call"
    LOST = "replays are slower than plain calls"


TABLE: dict[State, dict[LifeEvent, State]] = {
    State.OBSERVING: {
        LifeEvent.AGREED: State.RECORDING,
        LifeEvent.DIFFERED: State.OBSERVING,
        LifeEvent.GAVE_UP: State.EAGER,
        LifeEvent.FRUITLESS: State.EAGER,
        LifeEvent.CROWDED: State.EAGER,
        LifeEvent.LIMIT: State.EAGER,
        LifeEvent.GUARD_FAILED: State.OBSERVING,
        LifeEvent.CAPTURE_FAILED: State.EAGER,
        LifeEvent.REFUTED: State.EAGER,
        LifeEvent.LOST: State.EAGER,
    },
    State.RECORDING: {
        LifeEvent.RECORDED: State.REPLAYING,
        LifeEvent.DIFFERED: State.OBSERVING,
        LifeEvent.CAPTURE_FAILED: State.EAGER,
        LifeEvent.GUARD_FAILED: State.OBSERVING,
        LifeEvent.LIMIT: State.EAGER,
        LifeEvent.GAVE_UP: State.EAGER,
        LifeEvent.FRUITLESS: State.EAGER,
        LifeEvent.CROWDED: State.EAGER,
        LifeEvent.REFUTED: State.EAGER,
        LifeEvent.LOST: State.EAGER,
    },
    State.REPLAYING: {
        LifeEvent.RECORDED: State.REPLAYING,
        LifeEvent.AGREED: State.REPLAYING,
        LifeEvent.DIFFERED: State.OBSERVING,
        LifeEvent.GUARD_FAILED: State.OBSERVING,
        LifeEvent.LIMIT: State.EAGER,
        LifeEvent.GAVE_UP: State.EAGER,
        LifeEvent.FRUITLESS: State.EAGER,
        LifeEvent.CROWDED: State.EAGER,
        LifeEvent.CAPTURE_FAILED: State.EAGER,
        LifeEvent.REFUTED: State.EAGER,
        LifeEvent.LOST: State.EAGER,
    },
    State.EAGER: {
        LifeEvent.RETRY: State.OBSERVING,
    },
}

PATIENCE = 8
"""Unsteady calls after which a key runs eagerly for a while, if too little is replayed between them."""

FIRST_REST = 16
"""Calls a key runs eagerly after that; doubled each time."""

LEAST_REST = {LifeEvent.GAVE_UP: FIRST_REST, LifeEvent.FRUITLESS: 64, LifeEvent.CROWDED: 512}
"""Calls a key rests at least, by the reason. Values that come in turn, more of them than patience lasts for,
need a second look; after that, and with all that may be kept, they hardly come again."""

RETRIES = 3
"""Calls in which a key has to show that it has settled, when it is looked at again."""

FOREVER = sys.maxsize


class Life:
    """Where a key is, and how long it stays eager.

    Attributes:
        state: Where it is.
        final: It stays eager.
        resting: Calls that run eagerly until the key is looked at again.
    """

    def __init__(self) -> None:
        self.state = State.OBSERVING
        self.final = False
        self.resting = 0
        self._unsteady = 0
        self._unseen = 0
        self._rest = FIRST_REST
        self._most = FOREVER  # unseen values in a row, whatever patience there is

    def happen(self, event: LifeEvent) -> None:
        """Move on.

        Raises:
            InternalError: The table has no such transition; nothing changed.
        """
        target = TABLE[self.state].get(event)
        if target is None:
            raise InternalError(f"a key that is {self.state.value} cannot have '{event.value}' happen")
        self.state = target
        if event in (LifeEvent.LIMIT, LifeEvent.CAPTURE_FAILED, LifeEvent.REFUTED, LifeEvent.LOST):
            self.final, self.resting = True, FOREVER
        elif event in LEAST_REST:
            self.resting = max(self._rest, LEAST_REST[event])
            self._rest = 2 * self.resting
            self._unsteady = PATIENCE - RETRIES if event is LifeEvent.GAVE_UP else 0
            self._unseen = 0
            if event is LifeEvent.CROWDED:
                self._most = RETRIES

    def unsteady(self) -> None:
        """A call was not steady; after too many in a row the key rests."""
        self._unsteady += 1
        if self._unsteady >= PATIENCE:
            self.happen(LifeEvent.GAVE_UP)
        elif self.state is not State.OBSERVING:
            self.happen(LifeEvent.DIFFERED)

    def unseen(self, patience: int = PATIENCE) -> int:
        """A call read a value that none before had; the number of them in a row if the key rests, else 0."""
        self._unseen += 1
        count = self._unseen
        if count < min(patience, self._most):
            return 0
        self.happen(LifeEvent.FRUITLESS)
        return count

    def steady(self) -> None:
        """A call was steady, and met nothing new for which too little was replayed."""
        self._unseen = 0

    def settle(self) -> None:
        """Enough was replayed since the last call that was not steady."""
        self._unsteady = 0

    def rest(self) -> bool:
        """Count an eager call; whether the key goes on resting."""
        if self.resting:
            self.resting -= 1
            return True
        self.happen(LifeEvent.RETRY)
        return False
