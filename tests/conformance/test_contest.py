"""A recording that loses against plain calls is dropped; everything else is left as it is.

The clock is the tests' own: a call costs what its kind costs, whatever the machine is doing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.clock import Clock, set_costs
from tests.hidden import queued
from torch import nn

import rote
from rote import Graphed
from rote.api.paths import JUDGED, SPACE, Rest, SpacedPath
from rote.inspect import ReasonReport
from rote.runtime.backends.cuda.backend import CudaBackend
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.select import PROCESS
from rote.runtime.engine import FREE_TRACES
from rote.runtime.recording.contest.contest import BLOCK, BLOCKS, CONFIRM, FIRST_ROUND
from rote.runtime.recording.contest.contest import WARM as BEFORE

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
FIND = Callable[[Graphed, str], ReasonReport]


REAL: dict[Any, Any] = {backend: backend.start_timing for backend in (HostBackend, CudaBackend)}
"""Elsewhere in the tests all calls cost the same; see ``conftest.py``."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    made.install(monkeypatch)
    yield made


def doubled(clock: Clock) -> Callable[[torch.Tensor], torch.Tensor]:
    ticks = clock.ticks

    def fn(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        return x * 2

    return fn


def calls(graphed: Graphed, device: torch.device, number: int, size: int = 4) -> None:
    for n in range(number):
        x = torch.full((size,), float(n), device=device)
        assert torch.equal(graphed(x), x * 2)


CALL = SpacedPath.call

WARM = 2
"""Calls before the first replay: one observed, one recorded."""

TIMED = BLOCK * BLOCKS
"""Calls of each kind that are timed in a round."""

PLAINLY = (BEFORE + BLOCK) * BLOCKS
"""Plain calls in one."""

ONE_OF_EACH = ["replay"] * BLOCK + ["plain"] * BLOCK
ROUND = FIRST_ROUND + 2 * PLAINLY + 4
TWO_ROUNDS = FIRST_ROUND + CONFIRM + 4 * PLAINLY + 8


@pytest.mark.usefixtures("clock")
def test_a_call_that_pays_is_measured_and_kept(device: torch.device, clock: Clock, reason: FIND) -> None:
    clock.replay_s, clock.plain_s = 10e-6, 40e-6
    g = rote.graph(doubled(clock))
    calls(g, device, 4 * ROUND)
    report = g.report()
    assert clock.timed == ONE_OF_EACH
    assert report.replayed == 4 * ROUND - WARM - PLAINLY // BLOCKS and len(report.recordings) == 1
    found = report.recordings[0]
    assert (found.replay_us, found.plain_us) == (pytest.approx(10), pytest.approx(40))
    assert "replays, 10.0 us each, 40.0 us plainly" in g.explain()
    assert reason(g, "RT308").count == PLAINLY // BLOCKS
    assert "a plain call was made" in reason(g, "RT308").message


def test_a_recording_that_loses_is_dropped(
    device: torch.device, clock: Clock, reason: FIND, caplog: pytest.LogCaptureFixture
) -> None:
    clock.replay_s = 150e-6
    g = rote.graph(doubled(clock))
    calls(g, device, ROUND)
    assert g.report().recordings[0].plain_us == pytest.approx(100)  # one round decides nothing
    with caplog.at_level(logging.INFO, "rote"):
        calls(g, device, TWO_ROUNDS)
    assert [record.levelno for record in caplog.records] == [logging.INFO]
    report = g.report()
    assert not report.recordings and report.bytes_held == 0
    rote.testing.assert_pool_empty()
    text = "a replay took 150.0 us and a plain call 100.0 us, so the key runs plainly"
    assert reason(g, "RT308").message == text and text in caplog.text
    assert "keep=True" in reason(g, "RT308").remedy and text in g.explain()
    assert "RT308" in {finding.code for finding in g.findings()}
    replayed, timed = report.replayed, len(clock.timed)
    calls(g, device, 4 * ROUND)
    assert g.report().replayed == replayed and len(clock.timed) == timed  # plainly, from then on
    g.reset()
    calls(g, device, 8)
    assert g.report().replayed


@pytest.mark.parametrize("comes_once", [False, True])
def test_calls_are_left_alone_where_all_keys_have_lost(
    device: torch.device, clock: Clock, monkeypatch: pytest.MonkeyPatch, comes_once: bool
) -> None:
    set_costs(monkeypatch, traced_s=1e-3)  # to trace a call costs nothing, or it would have to be paid for
    looked: list[Any] = []
    monkeypatch.setattr(SpacedPath, "call", lambda self, *given: looked.append(given) or CALL(self, *given))
    clock.replay_s = 150e-6
    g = rote.graph(doubled(clock))
    calls(g, device, 1, size=3 if comes_once else 4)
    calls(g, device, ROUND + TWO_ROUNDS)
    assert g.is_eager() is not comes_once  # a key that came once may be recorded one day
    known = g.report().calls
    looked.clear()
    calls(g, device, 10 * SPACE)
    assert g.report().calls == known + 10 * SPACE and 1 <= len(looked) <= 10 + FREE_TRACES


def test_it_can_be_kept(device: torch.device, clock: Clock) -> None:
    clock.replay_s = 150e-6
    g = rote.graph(doubled(clock), keep=True)
    calls(g, device, 2 * TWO_ROUNDS)
    report = g.report()
    assert not clock.timed and report.replayed == 2 * TWO_ROUNDS - WARM
    assert report.recordings[0].replay_us is None


def test_other_keys_go_on(device: torch.device, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    set_costs(monkeypatch, traced_s=1e-3)  # to trace a call costs nothing, or it would have to be paid for
    clock.replay_s = 150e-6
    g = rote.graph(doubled(clock))
    for _ in range(2 * TWO_ROUNDS):
        calls(g, device, 1, size=4)
    assert not g.report().recordings
    clock.replay_s = 50e-6
    calls(g, device, 2 * TWO_ROUNDS, size=8)
    assert [found.key for found in g.report().recordings] == ["(args[0]: float32[8])"]
    calls(g, device, 1, size=4)
    assert len(g.report().recordings) == 1


@pytest.mark.parametrize("replay_s", [100e-6, 102e-6])
def test_within_the_margin_nothing_is_dropped(device: torch.device, clock: Clock, replay_s: float) -> None:
    clock.replay_s = replay_s
    g = rote.graph(doubled(clock))
    calls(g, device, 4 * TWO_ROUNDS)
    assert clock.timed == ONE_OF_EACH * BLOCKS
    assert len(g.report().recordings) == 1


def test_one_bad_round_drops_nothing(device: torch.device, clock: Clock) -> None:
    clock.replay_s = 150e-6
    g = rote.graph(doubled(clock))
    calls(g, device, FIRST_ROUND + WARM + 2 * PLAINLY)
    assert clock.timed == ONE_OF_EACH * BLOCKS
    clock.replay_s = 100e-6
    calls(g, device, 4 * TWO_ROUNDS)
    assert len(clock.timed) == 6 * TIMED and len(g.report().recordings) == 1


def test_a_training_step_is_measured(device: torch.device, clock: Clock) -> None:
    """Plain steps in between leave gradients, parameters and optimizer state as replayed ones do."""
    clock.replay_s, ticks = 99e-6, clock.ticks

    def make() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step(x: torch.Tensor) -> torch.Tensor:
            ticks.put(None)
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    runs: list[tuple[list[torch.Tensor], nn.Module]] = []
    recordings: list[int] = []
    for graphed in (False, True):
        model, step = make()
        run = rote.graph(step) if graphed else step
        torch.manual_seed(5)
        losses = [run(torch.full((2, 4), n / 100, device=device)) for n in range(2 * ROUND)]
        runs.append((losses, model))
        if isinstance(run, Graphed):
            report = run.report()
            recordings.append(report.recorded)
            assert report.replayed == report.recordings[0].replays >= 2 * ROUND - PLAINLY - 4
            run.reset()
    (losses, model), (ours, other) = runs
    assert clock.timed == ONE_OF_EACH * BLOCKS and recordings == [1]
    assert all(torch.equal(a, b) for a, b in zip(losses, ours, strict=True))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and a.grad is not None and b.grad is not None and torch.equal(a.grad, b.grad)


def test_mutated_arguments_and_host_reads(device: torch.device, clock: Clock) -> None:
    clock.replay_s, ticks = 99e-6, clock.ticks

    def fn(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        total.add_(x)
        return x * 2 if total.sum() > 0 else x

    g = rote.graph(fn)
    total, plain = torch.ones(4, device=device), torch.ones(4, device=device)
    for n in range(2 * ROUND):
        x = torch.full((4,), float(n), device=device)
        assert torch.equal(g(x, total), x * 2)
        plain.add_(x)
        assert torch.equal(total, plain)
    assert clock.timed == ONE_OF_EACH * BLOCKS


def test_what_a_plain_call_raises_goes_to_the_caller(device: torch.device, clock: Clock) -> None:
    ticks, fails = clock.ticks, queued()
    for fail in [False] * WARM + [True] * 3 + [False] * 99:
        fails.put(fail)

    def fn(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        if fails.get_nowait():
            raise ValueError("not now")
        return x * 2

    g = rote.graph(fn)
    x, raised = torch.ones(4, device=device), 0
    for _ in range(2 * ROUND):
        try:
            assert torch.equal(g(x), x * 2)
        except ValueError as error:
            assert str(error) == "not now"
            raised += 1
    assert raised == 3 and clock.timed.count("plain") == TIMED - 2  # the first one was before those
    assert len(g.report().recordings) == 1 and g.report().recordings[0].plain_us is not None


@pytest.mark.parametrize(
    "options",
    [
        {"strict": True},
        {"verify": 1000},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_is_not_measured(device: torch.device, clock: Clock, options: dict[str, Any]) -> None:
    clock.replay_s = 150e-6
    g = rote.graph(doubled(clock), **options)
    calls(g, device, 2 * TWO_ROUNDS)
    assert not clock.timed and g.report().recordings


def test_calls_that_a_wrapper_makes_in_another_shape_are_not_measured(
    device: torch.device, clock: Clock
) -> None:
    clock.replay_s = 150e-6
    g = rote.padded(doubled(clock), axes={"x": {0: [8]}})
    calls(g, device, 2 * TWO_ROUNDS)
    assert not clock.timed and g.report().graphed.recordings and g.report().padded > TWO_ROUNDS


def policy(clock: Clock, device: torch.device) -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    model, ticks = nn.Linear(4, 4).to(device), clock.ticks

    def act(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        return model(x).tanh()

    return model, act


def test_results_that_require_grad_are_measured_while_nobody_walks_back(
    device: torch.device, clock: Clock, reason: FIND
) -> None:
    """A policy called without ``torch.no_grad()``; what was replayed before keeps its backward."""
    clock.replay_s = 150e-6
    model, act = policy(clock, device)
    g = rote.graph(act)
    x = torch.ones(2, 4, device=device)
    for _ in range(WARM + FIRST_ROUND // 2):
        g(x)
    held, recordings = g(x), g.report().recordings
    assert recordings and clock.ticks.qsize() == WARM and held.requires_grad
    for _ in range(FIRST_ROUND + TWO_ROUNDS):
        g(x)
    assert "a replay took 150.0 us and a plain call 100.0 us" in reason(g, "RT308").message
    held.sum().backward()
    assert model.weight.grad is not None
    found, model.weight.grad = model.weight.grad, None
    act(x).sum().backward()
    assert torch.equal(found, model.weight.grad)
    del held
    assert not g.report().recordings
    rote.testing.assert_pool_empty()


def test_not_where_a_plain_call_would_be_another_one(device: torch.device, clock: Clock) -> None:
    """Autocast keeps the weights that a plain call has cast. Collectives: tests/differential."""
    g = rote.graph(doubled(clock))
    with torch.autocast(device.type, dtype=torch.bfloat16):
        calls(g, device, 2 * ROUND)
        assert not clock.timed
        with torch.no_grad():
            calls(g, device, 2 * ROUND)
        assert clock.timed


def test_without_memory_for_a_plain_call_nothing_is_measured(
    device: torch.device, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for backend in (HostBackend, CudaBackend):
        monkeypatch.setattr(backend, "free_memory", lambda self: 1)
    g = rote.graph(doubled(clock))
    calls(g, device, 2 * ROUND)
    assert not clock.timed and g.report().replayed == 2 * ROUND - WARM


def test_the_real_clock(device: torch.device) -> None:
    """What a call has cost before it is timed counts."""
    backend = PROCESS.choose("auto", device)
    timing = REAL[type(backend)](backend, 2.5)
    torch.ones(4, device=device).sum()
    timing.stop()
    backend.synchronize()
    seconds = timing.seconds()
    assert seconds is not None and seconds > 2.5


@pytest.mark.cuda
@CUDA
def test_the_device_counts_where_it_takes_longer() -> None:
    backend = PROCESS.choose("auto", torch.device("cuda"))
    timing = REAL[type(backend)](backend)
    torch.cuda._sleep(200_000_000)  # about a tenth of a second, and the host goes on
    timing.stop()
    assert timing.seconds() is None
    backend.synchronize()
    seconds = timing.seconds()
    assert seconds is not None and seconds > 0.02


def test_calls_left_alone_leave_those_that_are_to_be_measured(
    device: torch.device, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tenth call is none that replays, and looks cost more than is earned: the others replay on."""
    clock.replay_s, clock.plain_s = 10e-6, 40e-6
    set_costs(monkeypatch, traced_s=2e-3, plain_s=40e-6, look_s=1e-3)
    state, ticks = {"calls": 0, "sum": 0.0, "log": [""]}, clock.ticks

    def fn(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        state["calls"] += 1
        state["sum"] += x.sum().item()
        if state["calls"] % 10 == 0:
            state["log"] = [f"{state['calls']}: {state['sum']:.2f}"]
        return x * state["calls"]

    g = rote.graph(fn)
    for n in range(6 * FIRST_ROUND):
        x = torch.full((4,), float(n % 7), device=device)
        assert torch.equal(g(x), x * (n + 1))
        assert state["sum"] == sum(4.0 * (each % 7) for each in range(n + 1))
        assert n < 9 or state["log"][0].startswith(f"{(n + 1) // 10 * 10}: ")
    assert g.report().replayed >= 4 * FIRST_ROUND


def test_positions_of_a_cache_are_compared_together(device: torch.device, clock: Clock) -> None:
    """Each of them is a key, and comes once for each prompt."""

    class Cache:
        def __init__(self) -> None:
            self.states, self.length = torch.zeros(8, 4, device=device), 0

    ticks = clock.ticks

    def fn(x: torch.Tensor, cache: Cache) -> torch.Tensor:
        ticks.put(None)
        cache.states[cache.length] = x
        cache.length += 1
        return cache.states[: cache.length].sum(0)

    clock.replay_s, clock.plain_s = 200e-6, 100e-6
    g, plainly = rote.graph(fn), list[int]()
    for _ in range(2 + ROUND // 8 + 6):
        cache, total = Cache(), torch.zeros(4, device=device)
        before = clock.plain
        for n in range(8):
            total = total + n
            assert torch.equal(g(torch.full((4,), float(n), device=device), cache), total)
        plainly.append(clock.plain - before)
    lost = 8 if device.type == "cpu" else 7  # on a GPU one of them is compared by itself
    assert 0 in plainly and plainly[-1] >= lost, plainly  # all of them replayed, and all have lost


@pytest.mark.parametrize("wins", [False, True])
def test_many_shapes_by_turns_are_compared_together(
    device: torch.device, clock: Clock, *, wins: bool
) -> None:
    """Each of twenty comes in one call of twenty, and one more joins them when all is decided."""
    ticks = clock.ticks

    def fn(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        return x.cumsum(0) * 2

    clock.replay_s, clock.plain_s = (50e-6 if wins else 200e-6), 100e-6
    g = rote.graph(fn)
    for turn in range(20):
        before, lengths = clock.plain, [*range(1, 21), *([30] if turn >= 10 else [])]
        for length in lengths:
            x = torch.ones(length, device=device)
            assert torch.equal(g(x), x.cumsum(0) * 2)
        plainly = clock.plain - before
        assert turn < 18 or plainly == (0 if wins else len(lengths)), (turn, plainly)
        assert turn != 12 or plainly >= (0 if wins else 19), plainly
    assert g.report().replayed >= (250 if wins else 20)


def test_calls_are_left_alone_where_hardly_any_key_replays(
    device: torch.device, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each 32nd call has another key, which wins; where each second one has, none is left alone."""
    set_costs(monkeypatch, traced_s=1e-3)  # to trace a call costs nothing, or it would have to be paid for
    left: list[None] = []
    slot: Any = Rest.left

    def put(rest: Rest, calls: int) -> None:
        if calls and calls == getattr(rest, "left", 0) - 1:
            left.append(None)
        slot.__set__(rest, calls)

    monkeypatch.setattr(Rest, "left", property(slot.__get__, put))
    g = rote.graph(doubled(clock))
    clock.replay_s = 150e-6
    calls(g, device, 2 * TWO_ROUNDS)
    clock.replay_s, clock.plain_s = 50e-6, 100e-6
    calls(g, device, 2 * ROUND, size=8)
    for often in (32, 2, 32):
        for measured in (False, True):
            left.clear()
            before = g.report()
            for _ in range(16 if measured else 12 * JUDGED):  # until it is known
                calls(g, device, often - 1)
                calls(g, device, 1, size=8)
        report = g.report()
        assert report.calls == before.calls + 16 * often
        assert len(left) >= 24 * 16 if often == 32 else not left
        assert often == 32 or report.replayed == before.replayed + 16


def test_keys_that_share_the_calls_are_measured_as_soon_as_one_would_be(
    device: torch.device, clock: Clock
) -> None:
    """Each of eight keys was to be replayed as often as a single one before it was found to lose."""
    clock.replay_s = 200e-6
    ticks = clock.ticks

    def fn(x: torch.Tensor, name: str) -> torch.Tensor:
        ticks.put(None)
        return x * len(name)

    g = rote.graph(fn)
    for n in range(8 * FIRST_ROUND):
        x, name = torch.full((4,), float(n), device=device), "key" * (n % 8 + 1)
        assert torch.equal(g(x, name), x * len(name))
    assert FIRST_ROUND < g.report().replayed < 4 * FIRST_ROUND


def test_calls_of_many_keys_that_have_lost_are_not_asked_whose_they_are(
    device: torch.device, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor once a rest is over that stood before their paths."""
    clock.replay_s = 200e-6
    g, sizes = rote.graph(doubled(clock)), range(4, 10)
    for _ in range(2 * FIRST_ROUND):
        for size in sizes:
            calls(g, device, 1, size=size)
    assert not g.report().recordings
    g._paths.rest(0, [], covers=True)
    asked = list[None]()

    def noted(self: SpacedPath, *given: Any) -> Any:
        asked.append(None)
        return CALL(self, *given)

    monkeypatch.setattr(SpacedPath, "call", noted)
    for _ in range(SPACE):
        for size in sizes:
            calls(g, device, 1, size=size)
    assert len(asked) <= len(sizes) + 2
