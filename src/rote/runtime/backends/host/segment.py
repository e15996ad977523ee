"""A captured segment on the host: its entries until the recording is finished, then what replays them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch

from ....base import InternalError
from ...pytorch import dispatching_modes, function_modes, undispatched, unseen_functions
from ..protocol import Segment
from .journal import Journal
from .program import Modes, Program, ReplayStep, program, run_timed
from .tape import Entry

Steps = Sequence[tuple[Modes, ReplayStep]]


class HostSegment(Segment):
    """A run of captured operations with fixed addresses."""

    __slots__ = ("_journal", "_names", "_program", "_steps", "entries", "operations")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries  # empty once the recording is finished
        self.operations = len(entries)
        self._program: Program = _unfinished
        self._steps: Steps = ()
        self._names: Sequence[str] = ()
        self._journal: Journal | None = None

    def replay(self) -> None:
        """Run the operations again into the same memory.

        Raises:
            InternalError: The recording is not finished yet, or was released.
        """
        # The operations were captured below autocast (their casts are among them), and like those of a CUDA
        # replay they are no calls that a mode could see or change.
        if torch.is_autocast_enabled("cpu") or function_modes() or dispatching_modes():
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
