"""Handlers of signals, which Python runs between any two instructions: what they do is none of the call's."""

from __future__ import annotations

import signal
import threading

import pytest
import torch
from torch import nn

import rote

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
OFTEN_S = 1e-3
CALLS = 60


class Told:
    """Handles a signal, by functions of its own."""

    def __init__(self) -> None:
        self.times, self.last, self.scale = 0, {}, 2.0

    def handle(self, number, frame) -> None:
        self.times += 1
        self.note(frame)

    def note(self, frame) -> None:
        self.last[f"at {self.times % 50}"] = self.times
        self.last.pop(f"at {(self.times + 25) % 50}", None)


class Interrupted:
    """A context in which a signal comes again and again."""

    def __init__(self, handle) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGVTALRM, self._handle)
        signal.setitimer(signal.ITIMER_VIRTUAL, OFTEN_S, OFTEN_S)

    def __exit__(self, *error) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)


@pytest.fixture(params=["two arguments", "any number"])
def told(request):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")
    told = Told()
    told.way = told.handle if request.param == "two arguments" else lambda *given: told.handle(*given)
    return told


def test_a_call_is_recorded_while_they_come(device, told):
    torch.manual_seed(0)
    layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)]).to(device).requires_grad_(False)
    while told.times < 20:
        g = rote.graph(lambda x: layers(x).relu() * 2, keep=True)
        with Interrupted(told.way):
            for n in range(CALLS):
                x = torch.full((2, 4), float(n % 7) - 3, device=device)
                assert torch.equal(g(x), layers(x).relu() * 2)
        assert g.report().replayed >= CALLS - 5, g.explain()
        g.reset()


def test_what_they_change_is_a_condition(device, told):
    """As what anybody changes between two calls."""
    g = rote.graph(lambda x: x * told.scale, keep=True)

    def change(number, frame):
        told.scale = 5.0 - told.scale

    before = signal.signal(signal.SIGUSR1, change)
    try:
        for n in range(CALLS):
            if n % 5 == 4:
                signal.raise_signal(signal.SIGUSR1)
            x = torch.full((2, 4), float(n), device=device)
            assert torch.equal(g(x), x * told.scale)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert g.report().replayed >= CALLS // 2, g.explain()
    g.reset()


class Scaled:
    """Reads what changes, by functions of its own."""

    def __init__(self) -> None:
        self.factor = 2.0

    def scale(self, x) -> torch.Tensor:
        return x * self.factor + _OFFSETS["now"]


_OFFSETS = {"now": 1.0}


def test_a_handler_that_makes_the_calls(device):
    """Its own code is that of the call, for it runs what is called."""
    scaled, found = Scaled(), []
    g = rote.graph(lambda x: sum(map(scaled.scale, (x, x))), keep=True)

    def call(number, frame):
        x = torch.full((2,), float(len(found)), device=device)
        found.append(g(x))
        assert torch.equal(found[-1], scaled.scale(x) * 2), len(found)

    before = signal.signal(signal.SIGUSR1, call)
    try:
        for n in range(CALLS):
            scaled.factor, _OFFSETS["now"] = 2.0 + n // 40, 1.0 + n // 50
            signal.raise_signal(signal.SIGUSR1)
        assert len(found) == CALLS
        assert g.report().replayed >= 20, g.explain()
    finally:
        signal.signal(signal.SIGUSR1, before)
        _OFFSETS["now"] = 1.0
