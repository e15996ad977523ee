"""Calls by turns with rote and plainly: what follows each other faster is kept, whatever takes the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.clock import set_pace
from tests.hidden import queued
from torch import nn

import rote
from rote import Graphed
from rote.runtime.engine.ledger.pace import FIRST

LONG = 800
"""Calls after which it is known for a while."""


class Time:
    """Seconds that a loop takes, by what its calls do: the callables of the tests note here that they run."""

    def __init__(self) -> None:
        self.ran = queued()
        self.now = 0.0

    def passes(self, graphed: Graphed, replay: float, other: float, after: float = 0.0) -> Callable[..., Any]:
        """The graphed callable, of whose calls a replay takes so long, and one that runs Python a second.

        Where rote leaves one alone it takes no longer than that; else it takes ``other`` besides, and what
        the caller does then ``after`` besides.
        """

        def call(*args: Any) -> Any:
            ran, left = self.ran.qsize(), graphed._paths.alone.left
            value = graphed(*args)
            alone = graphed._paths.alone.left == left - 1 or graphed._pace.plainly
            self.now += 1.0 if self.ran.qsize() > ran else replay
            self.now += 0.0 if alone else after + (other if self.ran.qsize() > ran else 0.0)
            return value

        return call


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    made = Time()
    set_pace(monkeypatch, lambda: made.now)
    yield made


def doubled(time: Time) -> Callable[[torch.Tensor], torch.Tensor]:
    ran = time.ran

    def fn(x: torch.Tensor) -> torch.Tensor:
        ran.put(None)
        return x * 2

    return fn


def calls(call: Callable[..., Any], device: torch.device, number: int) -> None:
    for n in range(number):
        x = torch.full((4,), float(n), device=device)
        assert torch.equal(call(x), x * 2)


def replayed(g: Graphed, act: Callable[[], None]) -> int:
    before = g.report().replayed
    act()
    return g.report().replayed - before


def test_replays_that_are_faster_go_on(device: torch.device, time: Time) -> None:
    g = rote.graph(doubled(time))
    call = time.passes(g, replay=0.5, other=0.0)
    calls(call, device, LONG)
    assert replayed(g, lambda: calls(call, device, LONG)) >= 0.9 * LONG
    why = next(why for why in g.report().reasons if why.code == "RT308")
    assert "a plain call was made" in why.message and why.count <= 40


def test_what_costs_after_the_call_is_seen(device: torch.device, time: Time) -> None:
    """No replay takes longer than a plain call; what its caller does with the result does."""
    g = rote.graph(doubled(time))
    call = time.passes(g, replay=0.5, other=0.0, after=1.0)
    calls(call, device, LONG)
    assert replayed(g, lambda: calls(call, device, LONG)) <= 0.1 * LONG
    why = next(why for why in g.report().reasons if why.code == "RT308")
    assert "from call to call it took" in why.message and "plainly" in why.message
    assert g.report().calls == 2 * LONG and g.report().recordings  # it may come to pay


def test_looks_that_find_nothing_are_seen(device: torch.device, time: Time) -> None:
    """The results of all calls are kept with their graphs, so few have a recording."""
    ran, layer, kept = time.ran, nn.Linear(4, 4).to(device), list[torch.Tensor]()

    def act(x: torch.Tensor) -> torch.Tensor:
        ran.put(None)
        return layer(x)

    g = rote.graph(act)
    call = time.passes(g, replay=1.0, other=1.0, after=0.5)
    plainly = list[bool]()
    for n in range(2 * LONG):
        kept.append(call(torch.full((1, 4), float(n), device=device)))
        plainly.append(g._pace.plainly)
        if n % 20 == 19:
            torch.cat(kept).sum().backward()
            kept.clear()
            layer.zero_grad()
    assert sum(plainly[LONG:]) >= 0.8 * LONG


def test_a_program_that_comes_to_what_pays_replays_again(device: torch.device, time: Time) -> None:
    g = rote.graph(doubled(time))
    calls(time.passes(g, replay=3.0, other=0.0), device, 2 * FIRST)
    assert g._pace.plainly
    call = time.passes(g, replay=0.2, other=0.0)
    calls(call, device, 16 * LONG)
    assert replayed(g, lambda: calls(call, device, LONG)) >= 0.9 * LONG


@pytest.mark.parametrize("options", [{"keep": True}, {"enabled": False}])
def test_what_is_not_compared(device: torch.device, time: Time, options: dict[str, Any]) -> None:
    g = rote.graph(doubled(time), **options)
    calls(time.passes(g, replay=3.0, other=0.0), device, LONG)
    assert g.report().replayed == (LONG - 2 if "keep" in options else 0) and not g._pace.plainly


def test_reset_begins_anew(device: torch.device, time: Time) -> None:
    g = rote.graph(doubled(time))
    call = time.passes(g, replay=3.0, other=0.0)
    calls(call, device, LONG)
    assert g._pace.plainly
    g.reset()
    assert replayed(g, lambda: calls(call, device, FIRST)) >= FIRST - 16  # but for a contest
