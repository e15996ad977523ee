"""One call as it is shown: of a recording, or timed step by step while it is made."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch

from ..runtime.backends.protocol import Backend
from ..runtime.engine import Specialization
from ..runtime.program import PLAINLY
from ..runtime.pytorch import plain_functions
from ..runtime.recording import Recording
from ..runtime.replay import STEP_CLOCK, ReplayClock, TimedStep
from .masking import hidden
from .modules import ModuleNames
from .steps import CallReport, steps_of
from .torch_private import structured_log_is_open, write_artifact

_log = logging.getLogger("rote")

ARTIFACT = "rote_recording"
"""The name of what the structured log has of each recording."""


@dataclass(frozen=True)
class ShownCallable:
    """A graphed callable, as far as its calls are shown."""

    function: Callable[..., Any]
    name: str

    def most_replayed(self, entries: Iterable[Specialization]) -> tuple[CallReport | None, float | None]:
        """A call of the recording with most replays, with the time of a replay if that is known."""
        found = [(entry, each) for entry in entries for each in entry.recordings if each.recorded]
        if not found:
            return None, None
        entry, recording = max(found, key=lambda each: each[1].replays)
        figures = recording.contest.figures
        return self._report(entry, recording), figures.replay_s * 1e6 if figures is not None else None

    def note_recording(self, entry: Specialization) -> None:
        """Add the newest recording of a key to PyTorch's structured log, if somebody keeps that."""
        if structured_log_is_open():
            made = [each for each in entry.recordings if each.recorded]
            try:
                for each in made[-1:]:
                    write_artifact(ARTIFACT, asdict(hidden(self._report(entry, each))))
            except Exception as error:  # a module of the user's may refuse to be looked through
                _log.warning("%s: a recording is not in the structured log: %s", self.name, repr(error))

    def timed(
        self, entry: Specialization, backend: Backend, answer: Callable[[], Any]
    ) -> tuple[Any, CallReport]:
        """Make a call of a key with a clock at each step of its replay, and wait for the device.

        Returns:
            The value, PLAINLY if the function has to be called; and the call, without steps if it was not
            wholly replayed.
        """
        clock, began = ReplayClock(backend), perf_counter()
        before = sum([each.replays for each in entry.recordings])
        token = STEP_CLOCK.set(clock)
        try:
            value = answer()
        finally:
            STEP_CLOCK.reset(token)
        backend.synchronize()
        recording = _recording_of(entry, clock.steps)
        after = sum([each.replays for each in entry.recordings])
        if value is PLAINLY or recording is None or after == before:
            return value, self.plain(perf_counter() - began)
        return value, self._report(entry, recording, clock.steps)

    def plain(self, seconds: float) -> CallReport:
        """A call that was not replayed."""
        return CallReport(self.name, "", "", (), seconds * 1e6)

    def _report(
        self, entry: Specialization, recording: Recording, timed: Sequence[TimedStep] = ()
    ) -> CallReport:
        with plain_functions():  # to look at a tensor of the user's class is not to use it
            modules = ModuleNames(self.function, self.name, recording.guard.python.tensors.named())
            steps = steps_of(recording, modules, timed)
        us = sum([step.us or 0.0 for step in steps]) if timed else None
        return CallReport(self.name, entry.description, _device(recording), steps, us)


def _recording_of(entry: Specialization, timed: Sequence[TimedStep]) -> Recording | None:
    """The recording that the steps belong to."""
    for recording in entry.recordings if timed else ():
        if any([node is timed[0].node for node in recording.root.walk()]):
            return recording
    return None


def _device(recording: Recording) -> str:
    memory = recording.memory
    if memory is None:
        return ""
    device = memory.holding.backend.device
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
