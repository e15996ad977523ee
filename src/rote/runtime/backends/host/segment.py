"""A captured segment on the host: its entries until the recording is finished, then what replays them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch

from ....base import InternalError
from ...pytorch import undispatched, unseen_functions
from ..protocol import CopyingSegment
from .program import Modes, Program, ReplayStep, run_timed
from .tape import Entry
from .torch_private import mode_counters

Steps = Sequence[tuple[Modes, ReplayStep]]


class HostSegment:
    """A run of captured operations with fixed addresses."""

    __slots__ = ("_dispatches", "_functions", "_names", "_program", "_steps", "entries", "operations")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries  # empty once the recording is finished
        self.operations = len(entries)
        self._program: Program = _unfinished
        self._steps: Steps = ()
        self._names: Sequence[str] = ()
        self._functions, self._dispatches = mode_counters()

    def replay(self) -> None:
        """Run the operations again into the same memory."""
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
            return list(zip(self._names, run_timed(self._steps), strict=True))

    def with_copies(
        self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> CopyingSegment | None:
        """None: a copy is an operation like any other here."""
        del inputs, outputs

    def freeze(self, program: Program, steps: Steps, names: Sequence[str]) -> None:
        """Take the function that replays the segment, its steps and their names; let go of the entries."""
        self._program, self._steps, self._names, self.entries = program, steps, names, ()

    def release(self) -> None:
        """Let go of everything the segment holds."""
        self._program, self._steps, self._names, self.entries = _released, (), (), ()


def _unfinished() -> NoReturn:
    raise InternalError(
        "a host segment was replayed before its session was finished; call Session.finish() first. "
        "This is a bug in rote; please report it."
    )


def _released() -> NoReturn:
    raise InternalError(
        "a host segment was replayed after its session was released. This is a bug in rote; please report it."
    )
