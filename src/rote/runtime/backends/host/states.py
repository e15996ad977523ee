"""The states of a host session, and every allowed step between them.

    IDLE --begin--> OPEN --end--> IDLE --finish--> FROZEN --release--> RELEASED

``abort`` and ``release`` are allowed everywhere, so that an ``except`` branch need not know how far it got.
Only a FROZEN session replays.
"""

from __future__ import annotations

from enum import Enum

from ....base import InternalError


class SessionState(Enum):
    """Where a session is in its life."""

    IDLE = "no segment open"
    OPEN = "a segment open"
    FROZEN = "finished"
    RELEASED = "released"


class SessionStep(Enum):
    """What can happen to a session."""

    BEGIN = "begin"
    RUN = "run"
    END = "end"
    ABORT = "abort"
    FINISH = "finish"
    RELEASE = "release"


_IDLE, _OPEN, _FROZEN, _RELEASED = SessionState
_BEGIN, _RUN, _END, _ABORT, _FINISH, _RELEASE = SessionStep

TRANSITIONS: dict[SessionState, dict[SessionStep, SessionState]] = {
    _IDLE: {_BEGIN: _OPEN, _ABORT: _IDLE, _FINISH: _FROZEN, _RELEASE: _RELEASED},
    _OPEN: {_RUN: _OPEN, _END: _IDLE, _ABORT: _IDLE, _RELEASE: _RELEASED},
    _FROZEN: {_ABORT: _FROZEN, _RELEASE: _RELEASED},
    _RELEASED: {_ABORT: _RELEASED, _RELEASE: _RELEASED},
}


def after(state: SessionState, step: SessionStep) -> SessionState:
    """The state that follows, or an error that changes nothing."""
    following = TRANSITIONS[state].get(step)
    if following is None:
        allowed = ", ".join(each.value for each in TRANSITIONS[state])
        raise InternalError(
            f"host session: {step.value}() was called with {state.value}; allowed here: {allowed}. "
            "This is a bug in rote; please report it."
        )
    return following
