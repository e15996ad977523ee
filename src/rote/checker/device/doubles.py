"""Stand-ins for events and streams of CUDA: nothing lies on them, and nobody waits for them.

What a capture refuses to answer takes a note.
"""

from __future__ import annotations

from typing import Any

import torch

from ...hazards import rules
from ...hazards.rules import Severity
from ..trial import Trial


class Inert:
    """A context manager, or an object to hold, that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    pass


class FakeEvent:
    """A CUDA event that nothing waits for."""

    trial: Trial
    __init__ = record = wait = _nothing

    def query(self) -> bool:
        """It is always over; a capture refuses the question."""
        self.trial.notes.add(rules.SYNCHRONIZE, "an event is asked whether it is over")
        return True

    def synchronize(self) -> None:
        """A capture refuses to wait."""
        self.trial.notes.add(rules.SYNCHRONIZE, "the host waits for an event")

    def elapsed_time(self, other: Any) -> float:
        """A capture has no times."""
        self.trial.notes.add(rules.SYNCHRONIZE, "the time between two events is asked for")
        return 1.0


class Stream(Inert):
    """A CUDA stream with nothing on it."""

    trial: Trial
    current: Any = None
    wait_stream = wait_event = _nothing

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.device, self.cuda_stream, self.stream_id, self.device_index = torch.device("cuda", 0), 0, 0, 0
        if Stream.current is not None:
            text = "a stream is made at every call"
            self.trial.notes.add(rules.STREAM_INSIDE, text, severity=Severity.SPEED)

    def is_capturing(self) -> bool:
        """A call is checked as if it were captured."""
        return not self.trial.building

    def record_event(self, event: Any = None) -> FakeEvent:
        """An event that is over."""
        return event or FakeEvent()

    def query(self) -> bool:
        """It is always done; a capture refuses the question."""
        self.trial.notes.add(rules.SYNCHRONIZE, "a stream is asked whether it is done")
        return True

    def synchronize(self) -> None:
        """A capture refuses to wait."""
        self.trial.notes.add(rules.SYNCHRONIZE, "the host waits for a stream")
