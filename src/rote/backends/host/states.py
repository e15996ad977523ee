"""The states of a host session, and every allowed step between them.

    IDLE --begin--> OPEN --end--> IDLE --finish--> FROZEN --release--> RELEASED

``abort`` and ``release`` are allowed everywhere, so that an ``except`` branch need not know how far it got.
Only a FROZEN session replays.
"""

from __future__ import annotations

from enum import Enum

from ...base.errors import InternalError


class State(Enum):
    """Where a session is in its life."""

    IDLE = "no segment open"
    OPEN = "a segment open"
    FROZEN = "finished"
    RELEASED = "released"


class Step(Enum):
    """What can happen to a session."""

    BEGIN = "begin"
    RUN = "run"
    END = "end"
    ABORT = "abort"
    FINISH = "finish"
    RELEASE = "release"


TRANSITIONS: dict[State, dict[Step, State]] = {
    State.IDLE: {
        Step.BEGIN: State.OPEN,
        Step.ABORT: State.IDLE,
        Step.FINISH: State.FROZEN,
        Step.RELEASE: State.RELEASED,
    },
    State.OPEN: {
        Step.RUN: State.OPEN,
        Step.END: State.IDLE,
        Step.ABORT: State.IDLE,
        Step.RELEASE: State.RELEASED,
    },
    State.FROZEN: {
        Step.ABORT: State.FROZEN,
        Step.RELEASE: State.RELEASED,
    },
    State.RELEASED: {
        Step.ABORT: State.RELEASED,
        Step.RELEASE: State.RELEASED,
    },
}


def after(state: State, step: Step) -> State:
    """The state that follows, or an error that changes nothing.

    Raises:
        InternalError: The step is not allowed in this state.
    """
    following = TRANSITIONS[state].get(step)
    if following is None:
        allowed = ", ".join(each.value for each in TRANSITIONS[state])
        raise InternalError(
            f"host session: {step.value}() was called with {state.value}; allowed here: {allowed}. "
            "This is a bug in rote; please report it."
        )
    return following
