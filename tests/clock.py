"""A clock by which a call costs what its kind costs, whatever the machine is doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.hidden import queued

from rote.runtime.backends.cuda.backend import CudaBackend
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.select import Backends
from rote.runtime.engine.ledger import Ledger
from rote.runtime.program.torch_private import current_pass

COSTS = (
    Ledger.add_trace,
    Ledger.add_plain,
    Ledger.add_look,
    Ledger.time_replay,
    Ledger.add_work,
    Ledger.add_search,
)
ALLOWS_WORK, IS_PACED = Ledger.allows_work, Ledger.is_paced
"""As they are when nothing stands in for them."""


def set_costs(
    monkeypatch: pytest.MonkeyPatch, *, traced_s: float = 2e-3, plain_s: float = 1e-3, look_s: float = 0.0
) -> None:
    """What calls cost in every ledger from now on, wherever the tests run.

    A replay costs half of a plain call, and what else is done between calls as much as one. Recordings are
    always optimised as soon as they are due. No calls are made plainly to find out whether they follow each
    other faster so: :func:`set_pace` has that asked.
    """
    monkeypatch.setattr(Ledger, "is_paced", False)
    add_trace, add_plain, add_look, time_replay, add_work, add_search = COSTS
    monkeypatch.setattr(Ledger, "add_trace", lambda self, seconds, **how: add_trace(self, traced_s, **how))
    monkeypatch.setattr(Ledger, "add_plain", lambda self, seconds: add_plain(self, plain_s))
    monkeypatch.setattr(Ledger, "time_replay", lambda self, seconds: time_replay(self, plain_s / 2))
    monkeypatch.setattr(Ledger, "add_look", lambda self, seconds: add_look(self, look_s))
    monkeypatch.setattr(Ledger, "allows_work", True)
    monkeypatch.setattr(Ledger, "add_work", lambda self, seconds: add_work(self, plain_s))
    monkeypatch.setattr(Ledger, "add_search", lambda self, seconds: add_search(self, plain_s))


def set_pace(monkeypatch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """From now on it is asked whether calls follow each other faster plainly, by this time in seconds."""
    monkeypatch.setattr(Ledger, "is_paced", IS_PACED)
    monkeypatch.setattr(Backends, "time", lambda self: now())


class Clock:
    """Tells what a call costs from whether the callable itself ran in it.

    Attributes:
        ticks: Put into by the callables of the tests, which run in plain calls only. No guard sees it.
        replay_s: What a replay costs.
        plain_s: What a plain call costs.
        replay_walk_s: What the walk back through a replay's results costs.
        plain_walk_s: What that through a plain call's results costs.
        timed: Kinds of the calls that were timed.
        walked: Kinds of the calls whose walk was timed, if each was walked before the next call.
    """

    def __init__(self) -> None:
        self.ticks = queued()
        self.replay_s = self.plain_s = self.replay_walk_s = self.plain_walk_s = 100e-6
        self.timed: list[str] = []
        self.walked: list[str] = []

    @property
    def plain(self) -> int:
        """How often a callable ran."""
        return self.ticks.qsize()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on this is the clock."""

        def start(_: Any, spent: float = 0.0) -> _Timing:
            return _Timing(self)

        for backend in (HostBackend, CudaBackend):
            monkeypatch.setattr(backend, "start_timing", start)


class _Timing:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before = clock.plain
        self._walks = current_pass() is not None
        self._seconds: float | None = None

    def stop(self) -> None:
        clock = self._clock
        if self._walks:
            clock.walked.append(clock.timed[-1])
            self._seconds = clock.plain_walk_s if clock.timed[-1] == "plain" else clock.replay_walk_s
            return
        ran = clock.plain > self._before
        clock.timed.append("plain" if ran else "replay")
        self._seconds = clock.plain_s if ran else clock.replay_s

    def seconds(self) -> float | None:
        return self._seconds
