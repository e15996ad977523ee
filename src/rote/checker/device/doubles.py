"""Stand-ins for events and streams of CUDA: nothing lies on them, and nobody waits for them.

What a capture refuses to answer takes a note.
"""

from __future__ import annotations

from typing import Any

import torch

from ...hazards import rules
from ...hazards.rules import Severity
from ..trial import Trial


class FakeEvent:
    """A CUDA event that nothing waits for."""

    trial: Trial | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, *args: Any) -> None:
        """Nothing happens."""

    def wait(self, *args: Any) -> None:
        """Nothing happens."""

    def query(self) -> bool:
        """It is always over; a capture refuses the question."""
        note(FakeEvent.trial, rules.SYNCHRONIZE, "an event is asked whether it is over")
        return True

    def synchronize(self) -> None:
        """A capture refuses to wait."""
        note(FakeEvent.trial, rules.SYNCHRONIZE, "the host waits for an event")

    def elapsed_time(self, other: Any) -> float:
        """A capture has no times."""
        note(FakeEvent.trial, rules.SYNCHRONIZE, "the time between two events is asked for")
        return 1.0


class Stream:
    """A CUDA stream with nothing on it."""

    trial: Trial | None = None
    current: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.cuda_stream, self.stream_id, self.device_index = torch.device("cuda", 0), 0, 0, 0
        if Stream.trial is not None and Stream.current is not None:
            note(Stream.trial, rules.STREAM_INSIDE, "a stream is made at every call", Severity.SPEED)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def is_capturing(self) -> bool:
        """A call is checked as if it were captured."""
        return Stream.trial is not None and not Stream.trial.building

    def wait_stream(self, other: Any) -> None:
        """Nothing happens."""

    def wait_event(self, event: Any) -> None:
        """Nothing happens."""

    def record_event(self, event: Any = None) -> FakeEvent:
        """An event that is over."""
        return event or FakeEvent()

    def query(self) -> bool:
        """It is always done; a capture refuses the question."""
        note(Stream.trial, rules.SYNCHRONIZE, "a stream is asked whether it is done")
        return True

    def synchronize(self) -> None:
        """A capture refuses to wait."""
        note(Stream.trial, rules.SYNCHRONIZE, "the host waits for a stream")


class Inert:
    """A context manager, or an object to hold, that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def note(trial: Trial | None, rule: rules.Rule, text: str, severity: Severity | None = None) -> None:
    """Note something, if there is a trial."""
    if trial is not None:
        trial.notes.add(rule, text, severity=severity)
