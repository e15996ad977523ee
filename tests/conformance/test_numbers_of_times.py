"""Times that a call reads: replays read the clock themselves, where nothing is computed on from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import rote

CALLS = 40


class Average:
    def __init__(self) -> None:
        self.last = self.total = self.mean = 0.0
        self.count = 0

    def update(self, value: float) -> None:
        self.last = value
        self.total += value
        self.count += 1
        self.mean = self.total / self.count


def _state() -> Any:
    return SimpleNamespace(average=Average(), log=[], first=0.0, second=0.0, laps=0, n=0, since=0.0)


def kept(s: Any, x: Tensor) -> Tensor:
    s.first = time.time()
    return x * 2


def logged(s: Any, x: Tensor) -> Tensor:
    y = x * 2
    s.n += 1
    s.log.append((s.n, time.perf_counter()))
    return y


def measured(s: Any, x: Tensor) -> Tensor:
    begun = time.perf_counter()
    y = x * 2 + 1
    s.average.update(time.perf_counter() - begun)
    return y


def twice(s: Any, x: Tensor) -> Tensor:
    s.first = s.second = time.monotonic()
    s.laps = time.monotonic_ns() // 1000
    return x * 2


def returned(s: Any, x: Tensor) -> tuple[Tensor, float]:
    return x * 2, time.time()


def elapsed(s: Any, x: Tensor) -> Tensor:
    s.since = time.time() - s.first
    return x + 1


def in_a_branch(s: Any, x: Tensor) -> Tensor:
    return x * 2 if time.time() % 1 < 0.5 else x * 2 + 0


def as_an_operand(s: Any, x: Tensor) -> Tensor:
    return x * (time.time() * 0 + 1)


def as_text(s: Any, x: Tensor) -> Tensor:
    s.text = f"{time.time():.0f}"
    return x * 2


def by_the_second(s: Any, x: Tensor) -> Tensor:
    begun = time.perf_counter()
    y = x * 2
    s.rate = 1 / (time.perf_counter() - begun + 1)
    return y


REPLAYED = (kept, logged, measured, twice, returned, elapsed)
OTHERS = (in_a_branch, as_an_operand, as_text, by_the_second)


def _graphed(program: Callable[[Any, Tensor], Any], state: Any) -> Any:
    return rote.graph(lambda x: program(state, x), keep=True)


@pytest.mark.parametrize("program", REPLAYED, ids=lambda each: each.__name__)
def test_replays_read_the_clock(program: Callable[[Any, Tensor], Any], device: torch.device) -> None:
    state = _state()
    act, x = _graphed(program, state), torch.ones(3, device=device)
    for _ in range(CALLS):
        act(x)
    assert act.report().replayed >= CALLS // 2


@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_nothing_else_is_computed_from_a_time(
    program: Callable[[Any, Tensor], Any], device: torch.device
) -> None:
    state = _state()
    act, x = _graphed(program, state), torch.ones(3, device=device)
    for _ in range(CALLS // 2):
        assert torch.equal(act(x), program(_state(), x))
    assert act.report().replayed == 0


def test_times_lie_between_those_around_the_call(device: torch.device) -> None:
    state = _state()
    act, x = _graphed(kept, state), torch.ones(3, device=device)
    for _ in range(CALLS):
        before = time.time()
        act(x)
        assert before <= state.first <= time.time()
    assert act.report().replayed >= CALLS // 2


def test_a_time_is_read_once(device: torch.device) -> None:
    state = _state()
    act, x, before = _graphed(twice, state), torch.ones(3, device=device), 0
    for _ in range(CALLS):
        act(x)
        assert state.first == state.second
        assert before <= state.laps
        before = state.laps


def test_what_is_summed_up_is_the_sum(device: torch.device) -> None:
    state = _state()
    act, x, total = _graphed(measured, state), torch.ones(3, device=device), 0.0
    for call in range(CALLS):
        act(x)
        total += state.average.last
        assert state.average.last >= 0
        assert state.average.total == total
        assert (state.average.count, state.average.mean) == (call + 1, total / (call + 1))
    assert act.report().replayed >= CALLS // 2


def test_somebody_else_sets_what_times_are_added_to(device: torch.device) -> None:
    state = _state()
    act, x = _graphed(measured, state), torch.ones(3, device=device)
    for call in range(CALLS):
        if call % 9 == 8:
            state.average.total, state.average.count = [(1, 0), (2.5, -1), (0.0, 7), (1 << 70, 3)][call // 9]
        plain = SimpleNamespace(average=Average())
        vars(plain.average).update(vars(state.average))
        found = []
        for run, given in ((measured, (plain, x)), (act, (x,))):
            try:
                run(*given)
                found.append("nothing")
            except ZeroDivisionError as error:
                found.append(str(error))
        assert found[0] == found[1], call
        assert state.average.count == plain.average.count
