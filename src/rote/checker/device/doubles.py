"""Stand-ins for CUDA's events and streams, which hold no work. What a capture refuses takes a note."""

from __future__ import annotations

from collections.abc import Callable
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


def _refused(text: str, answer: Any) -> Callable[..., Any]:
    """A method that a capture refuses."""

    def ask(self: FakeEvent | Stream, *args: Any) -> Any:
        self.trial.notes.add(rules.SYNCHRONIZE, text)
        return answer

    return ask


class FakeEvent:
    """A CUDA event that nothing waits for."""

    trial: Trial
    __init__ = record = wait = _nothing
    query = _refused("an event is asked whether it is over", True)
    synchronize = _refused("the host waits for an event", None)
    elapsed_time = _refused("the time between two events is asked for", 1.0)


class Stream(Inert):
    """A CUDA stream with nothing on it."""

    trial: Trial
    current: Any = None
    wait_stream = wait_event = _nothing
    query = _refused("a stream is asked whether it is done", True)
    synchronize = _refused("the host waits for a stream", None)

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
        """The event, or a new one; it is over."""
        return event or FakeEvent()
