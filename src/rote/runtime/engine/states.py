"""The life of a key, as a table. Everything that changes a key's state is in this file.

A key is *observing* until it was observed often enough. The next call is *recording*. If that call agrees
with the observations, later calls are *replaying*. A key that cannot be recorded, or that loses against plain
calls, is *eager* from then on. Calls that never agree are observed again and again, as seldom as the ledger
(:mod:`.ledger`) allows.
"""

from __future__ import annotations

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
    LIMIT = "limit reached"
    CAPTURE_FAILED = "capture failed"
    REFUTED = "a replay differed from the plain call"
    LOST = "replays are slower than plain calls"


_ENDS = dict.fromkeys(
    (LifeEvent.LIMIT, LifeEvent.CAPTURE_FAILED, LifeEvent.REFUTED, LifeEvent.LOST), State.EAGER
)
_BACK = dict.fromkeys((LifeEvent.DIFFERED, LifeEvent.GUARD_FAILED), State.OBSERVING)

TABLE: dict[State, dict[LifeEvent, State]] = {
    State.OBSERVING: {LifeEvent.AGREED: State.RECORDING, **_BACK, **_ENDS},
    State.RECORDING: {LifeEvent.RECORDED: State.REPLAYING, **_BACK, **_ENDS},
    State.REPLAYING: {
        LifeEvent.RECORDED: State.REPLAYING, LifeEvent.AGREED: State.REPLAYING, **_BACK, **_ENDS
    },
    State.EAGER: {},
}  # fmt: skip


class Life:
    """Where a key is."""

    def __init__(self) -> None:
        self.state = State.OBSERVING

    def happen(self, event: LifeEvent) -> None:
        """Move on.

        Raises:
            InternalError: The table has no such transition; nothing changed.
        """
        target = TABLE[self.state].get(event)
        if target is None:
            raise InternalError(f"a key that is {self.state.value} cannot have '{event.value}' happen")
        self.state = target
