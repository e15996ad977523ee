"""Calls timed in the form that they have for good: blocks of replays and of plain calls, by turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.clock import Clock
from tests.hidden import queued
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import rote
from rote.runtime.engine import Specialization
from rote.runtime.recording.contest.contest import BLOCK, BLOCKS, FIRST_ROUND, WARM

BEFORE = 2 + FIRST_ROUND
"""Calls before the first that is timed: one observed, one recorded, and replays."""

BLOCK_CALLS = WARM + BLOCK


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    made.install(monkeypatch)
    yield made


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each call that took the general path."""
    looks, run = list[int](), Specialization.run
    monkeypatch.setattr(
        Specialization, "run", lambda self, *args: looks.append(self.calls) or run(self, *args)
    )
    return looks


def scaled(ran: Any) -> Any:
    def fn(x: Tensor) -> Tensor:
        ran.put(None)
        return x * 2

    return fn


def call(g: Any, device: torch.device, calls: int, size: int = 4) -> None:
    for n in range(calls):
        x = torch.full((size,), float(n), device=device)
        assert torch.equal(g(x), x * 2)


def test_no_general_path_is_taken_between_calls_that_are_timed(
    device: torch.device, clock: Clock, general: list[int]
) -> None:
    g = rote.graph(scaled(clock.ticks))
    call(g, device, BEFORE)
    general.clear()
    call(g, device, 2 * BLOCKS * BLOCK_CALLS + 8)
    assert clock.timed == (["replay"] * BLOCK + ["plain"] * BLOCK) * BLOCKS
    assert len(general) == BLOCKS + 1  # where a verdict is asked for
    assert clock.plain == 2 + BLOCKS * BLOCK_CALLS
    report = g.report()
    assert report.calls == report.replayed + clock.plain


def test_calls_in_a_row_are_not_looked_at_before_they_are_made(
    device: torch.device, clock: Clock, general: list[int]
) -> None:
    """To ask a guard before each would make short ones longer. Another state goes unnoticed, plainly."""
    holder, ticks = nn.Linear(4, 4).to(device), clock.ticks
    holder.scale = 1.0

    def fn(x: Tensor) -> Tensor:
        ticks.put(None)
        return holder(x) * holder.scale

    g, x = rote.graph(torch.no_grad()(fn)), torch.ones(2, 4, device=device)
    for _ in range(BEFORE + BLOCK_CALLS + WARM + 1):
        g(x)
    assert clock.timed[-1] == "plain"
    holder.scale = 2.0
    general.clear()
    assert torch.equal(g(x), holder(x).detach() * 2) and not general
    assert clock.timed[-2:] == ["plain", "plain"]


def test_somebody_who_watches_sees_the_call_alone(device: torch.device, clock: Clock) -> None:
    ticks, seen = clock.ticks, queued()

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.put(func)
            return func(*args, **(kwargs or {}))

    def fn(x: Tensor) -> Tensor:
        ticks.put(None)
        return x * 2

    g, x = rote.graph(fn), torch.ones(4, device=device)
    for _ in range(BEFORE + BLOCK_CALLS + WARM + 1):
        g(x)
    assert clock.timed[-1] == "plain"
    watched = list[Any]()
    for function in (g, fn):
        with Mode():
            function(x)
        watched.append([seen.get_nowait() for _ in range(seen.qsize())])
    assert watched[0] == watched[1] and len(watched[0]) == 1


def test_other_keys_in_between_replay(device: torch.device, clock: Clock) -> None:
    """They come by turns, so each call is asked whose it is."""
    clock.plain_s = 200e-6
    g = rote.graph(scaled(clock.ticks))
    for size in (4, 8):
        call(g, device, 8, size)
    before = g.report()
    for _ in range(2 * FIRST_ROUND):
        call(g, device, 1, 4)
        call(g, device, 1, 8)
    report = g.report()
    plain = clock.timed.count("plain")
    assert plain == 2 * BLOCK  # one clear round of each key
    made = report.calls - before.calls - (report.replayed - before.replayed)
    assert made == 2 * BLOCK_CALLS and len(report.recordings) == 2


def test_what_changes_among_plain_calls_is_noticed(device: torch.device, clock: Clock) -> None:
    """They are made without a look at the state: the replays behind them have to look."""
    holder = nn.Linear(4, 4).to(device)
    holder.scale = 1.0
    ticks = clock.ticks

    @torch.no_grad()
    def fn(x: Tensor) -> Tensor:
        ticks.put(None)
        return holder(x) * holder.scale

    g = rote.graph(fn)
    x = torch.ones(2, 4, device=device)
    for n in range(BEFORE + 4 * BLOCKS * BLOCK_CALLS):
        if n in (BEFORE + BLOCK_CALLS + 2, BEFORE + 3 * BLOCK_CALLS):
            holder.scale += 1.0
        with torch.no_grad():
            expected = holder(x) * holder.scale
        assert torch.equal(g(x), expected), n
    assert clock.timed.count("plain")


def test_a_call_that_raises_is_no_sample_and_the_block_goes_on(device: torch.device, clock: Clock) -> None:
    ticks, fails = clock.ticks, queued()
    for fail in [False] * (2 + WARM) + [True] + [False] * 99:
        fails.put(fail)

    def fn(x: Tensor) -> Tensor:
        ticks.put(None)
        if fails.get_nowait():
            raise ValueError("not now")
        return x * 2

    g, x, raised = rote.graph(fn), torch.ones(4, device=device), 0
    for _ in range(BEFORE + 2 * BLOCKS * BLOCK_CALLS + 4):
        try:
            assert torch.equal(g(x), x * 2)
        except ValueError:
            raised += 1
    assert raised == 1 and clock.timed.count("plain") == BLOCKS * BLOCK - 1


def test_threads_that_share_a_block(device: torch.device, clock: Clock) -> None:
    g = rote.graph(scaled(clock.ticks))
    call(g, device, BEFORE)

    def run() -> None:
        call(g, device, 8 * BLOCKS * BLOCK_CALLS)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = g.report()
    assert report.calls == BEFORE + 32 * BLOCKS * BLOCK_CALLS
    assert report.replayed >= 24 * BLOCKS * BLOCK_CALLS  # and not plainly, from some block on


def test_an_eviction_ends_the_block(device: torch.device, clock: Clock) -> None:
    """The contest goes on with the function that comes next."""
    g = rote.graph(scaled(clock.ticks))
    call(g, device, BEFORE + BLOCK_CALLS + 2)
    assert clock.timed[-1] == "plain" or clock.timed[-1] == "replay"
    g.reset()
    call(g, device, BEFORE + 2 * BLOCKS * BLOCK_CALLS + 8)
    assert clock.timed[-2 * BLOCK * BLOCKS :] == (["replay"] * BLOCK + ["plain"] * BLOCK) * BLOCKS
    assert len(g.report().recordings) == 1
