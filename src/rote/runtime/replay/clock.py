"""Times the steps of one replay.

The general path runs each step through the clock that is set in its context; the function generated for a
recording knows of none, and costs nothing more.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

from ..backends.protocol import Backend, Timing
from ..recording import ON_HOST, Branch, Node, Step


class TimedStep(NamedTuple):
    """A step of a replay, with what it took."""

    node: Node
    step: Step | Branch
    timing: Timing
    operations: list[tuple[str, float]]


class ReplayClock:
    """Times the steps of the replays that are made in its context, see :data:`STEP_CLOCK`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.steps: list[TimedStep] = []

    def run(self, node: Node, step: Step) -> None:
        """Run a step."""
        timing, operations = self._backend.start_timing(), list[tuple[str, float]]()
        if isinstance(step, ON_HOST):
            step.replay()
        else:
            operations = step.replay_timed()
        timing.stop()
        self.steps.append(TimedStep(node, step, timing, operations))

    def read(self, node: Node, branch: Branch) -> tuple[Any, list[Any]]:
        """Read what the host reads at the end of a stretch."""
        timing = self._backend.start_timing()
        found = branch.read()
        timing.stop()
        self.steps.append(TimedStep(node, branch, timing, []))
        return found


STEP_CLOCK: ContextVar[ReplayClock | None] = ContextVar("rote_clock", default=None)
"""What times replays in this context."""
