"""A captured segment on the host: its entries until the recording is finished, then what replays them.

The states of a session:

    IDLE --begin--> OPEN --end--> IDLE --finish--> FROZEN --release--> RELEASED

``abort`` and ``release`` are allowed everywhere, so that an ``except`` branch need not know how far it got.
Only a FROZEN session replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

import torch

from ....base import InternalError
from ...pytorch import undispatched, unseen_functions
from ..protocol import Segment
from .journal import Journal
from .program import Modes, Program, ReplayStep, program, run_timed
from .tape import Entry
from .torch_private import mode_counters


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


Steps = Sequence[tuple[Modes, ReplayStep]]


class HostSegment(Segment):
    """A run of captured operations with fixed addresses."""

    __slots__ = (
        "_dispatches", "_functions", "_journal", "_names", "_program", "_steps", "entries", "operations",
    )  # fmt: skip

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries  # empty once the recording is finished
        self.operations = len(entries)
        self._program: Program = _unfinished
        self._steps: Steps = ()
        self._names: Sequence[str] = ()
        self._journal: Journal | None = None
        self._functions, self._dispatches = mode_counters

    def replay(self) -> None:
        """Run the operations again into the same memory.

        Raises:
            InternalError: The recording is not finished yet, or was released.
        """
        # The operations were captured below autocast (their casts are among them), and like those of a CUDA
        # replay they are no calls that a mode could see or change.
        if torch.is_autocast_enabled("cpu") or self._functions() or self._dispatches():
            with torch.autocast("cpu", enabled=False), unseen_functions(), undispatched():
                self._program()
        else:
            self._program()

    def replay_timed(self) -> list[tuple[str, float]]:
        """:meth:`replay`, with name and seconds of each operation."""
        with torch.autocast("cpu", enabled=False), unseen_functions(), undispatched():
            times = run_timed(self._steps)
        if self._journal is not None:
            self._journal.forget()
        return list(zip(self._names, times, strict=True))

    @property
    def raised(self) -> bool:
        """Whether an operation raised in its last replay."""
        return self._journal is not None and self._journal.raised

    @property
    def stays(self) -> bool:
        """Whether its last replay has done what is not undone."""
        return self._journal is not None and self._journal.stays

    def take_back(self) -> None:
        """Undo its last replay, as far as others see it."""
        if self._journal is not None:
            with torch.autocast("cpu", enabled=False), unseen_functions(), undispatched():
                self._journal.put_back()

    def freeze(self, steps: Steps, names: Sequence[str], journal: Journal | None, *, keeps: bool) -> None:
        """Take the steps that replay the segment and their names; let go of the entries.

        Args:
            journal: By which it is taken back where an operation raises; None if none does.
            keeps: A later segment may raise.
        """
        replay = program(steps)
        self._program = replay if journal is None else journal.around(replay, keeps=keeps)
        self._steps, self._names, self._journal, self.entries = steps, names, journal, ()

    def release(self) -> None:
        """Let go of everything the segment holds."""
        self._program, self._steps, self._names, self.entries = _released, (), (), ()
        self._journal = None


def _unfinished() -> NoReturn:
    raise InternalError(
        "a host segment was replayed before its session was finished; call Session.finish() first. "
        "This is a bug in rote; please report it."
    )


def _released() -> NoReturn:
    raise InternalError(
        "a host segment was replayed after its session was released. This is a bug in rote; please report it."
    )
