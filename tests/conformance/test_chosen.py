"""Versions of one recording are chosen among where they run: by whole replays, in turns, between calls.

The clock is the tests' own: a replay costs what the version costs that it replays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clock import Clock
from tests.conformance.test_exact_tier import entries, soon, tier
from torch import Tensor

import rote
from rote import Graphed
from rote.inspect import TierReport
from rote.runtime.engine.ledger import Ledger
from rote.runtime.optimize import ALTERNATIVES, choosing
from rote.runtime.recording import Tiers
from rote.testing import assert_same

aten = torch.ops.aten
CALLS = 260
Cost = Callable[[Mapping[int, str]], float]
"""What a replay costs, from the alternatives that it has, by operation."""


@pytest.fixture
def _offer() -> Iterator[None]:
    before = {name: ALTERNATIVES.of(name) for name in ("aten::mm", "aten::bmm")}
    yield
    for name, known in before.items():
        for each in ALTERNATIVES.of(name):
            if each not in known:
                ALTERNATIVES.withdraw(each)


def offer(name: str, operator: str = "mm") -> None:
    """A product in 64 bits, rounded once."""
    overload = getattr(aten, operator).default

    def calculate(run: Any, x: Tensor, y: Tensor) -> Tensor:
        wide = [run(aten._to_copy.default, (each,), {"dtype": torch.float64}) for each in (x, y)]
        return run(aten._to_copy.default, (run(overload, tuple(wide), {}),), {"dtype": x.dtype})

    rote.register_alternative(rote.Alternative(f"aten::{operator}", name, lambda x, y: True, calculate))


def timed(monkeypatch: pytest.MonkeyPatch, cost: Cost) -> Clock:
    """A clock that goes by what is replayed."""
    clock = Clock()
    clock.install(monkeypatch)
    monkeypatch.setattr(Ledger, "allows", lambda self, **how: True)
    use = Tiers.use

    def used(tiers: Tiers, *, exact: bool) -> None:
        use(tiers, exact=exact)
        found: dict[int, str] = {}
        for each in tiers.stretches:
            if each.node.steps is each.exact and each.others is not None:
                found = {index: one.alternative for index, one in each.others.replaced.items()}
        clock.replay_s = cost(found)

    monkeypatch.setattr(Tiers, "use", used)
    return clock


def play(
    fn: Callable[..., Tensor],
    args: tuple[Any, ...],
    calls: int = CALLS,
    numerics: Any = "near",
    **options: Any,
) -> Graphed:
    """Calls, of which each gives what some version gives; the exact one is eager's."""
    g = rote.graph(fn, numerics=numerics, **options)
    for number in range(calls):
        if 3 <= number < calls - 20:
            soon(g)
        torch.testing.assert_close(g(*args), fn(*args))
    return g


def found(g: Graphed) -> TierReport:
    report = tier(g)
    assert report is not None and not report.compiling, g.explain()
    assert all(each.final for entry in entries(g) for each in [one.tiers for one in entry.recordings])
    return report


def used(g: Graphed) -> dict[str, int]:
    return {f"{each.operator} {each.alternative}": each.operations for each in found(g).near}


def product(x: Tensor) -> Tensor:
    return (x @ x) @ x


def two_kinds(x: Tensor) -> Tensor:
    y = x @ x
    z = y[:, :2] @ x[:2]
    return torch.bmm(z.view(1, 4, 4), y.view(1, 4, 4))[0]


def square(device: torch.device) -> Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).to(device)


@pytest.mark.usefixtures("_offer")
@pytest.mark.parametrize("order", [("slow", "fast"), ("fast", "slow")])
def test_the_faster_one_stays(device, monkeypatch, order):
    for name in order:
        offer(name)
    cost = {"": 60e-6, "slow": 50e-6, "fast": 40e-6}
    timed(monkeypatch, lambda now: cost[next(iter(now.values()), "")])
    g = play(product, (square(device),))
    assert used(g) == {"mm fast": 2}, g.explain()
    trials = [(each.tier, each.what, each.us, each.before_us, each.kept) for each in found(g).trials]
    assert [each[:2] for each in trials] == [("near", ""), ("near", f"2 mm as {order[1]}")]
    assert [each[4] for each in trials] == [True, order[1] == "fast"]
    assert trials[0][2:4] == (pytest.approx(1e6 * cost[order[0]]), pytest.approx(60))
    end = "kept" if order[1] == "fast" else "dropped"
    assert f"timed, near: 2 mm as {order[1]}: " in g.explain() and f"before, {end}" in g.explain()


@pytest.mark.usefixtures("_offer")
def test_no_stretch_waits_for_versions_of_another_one(device, monkeypatch):
    for name in ("one", "two", "three"):
        offer(name)
    timed(monkeypatch, lambda now: 40e-6)

    def stretches(x: Tensor) -> Tensor:
        y = x @ x
        if y.sum() > 1e9:
            return y
        return y @ x

    g = play(stretches, (square(device),), 3 * CALLS)
    trials = [(each.tier, each.what) for each in found(g).trials]
    first = [number for number, (_, what) in enumerate(trials) if what]
    assert trials.count(("near", "")) == 2 and len(first) >= 2
    assert all([not what for _, what in trials[: first[0]]]) and trials[: first[0]].count(("near", "")) == 2


@pytest.mark.usefixtures("_offer")
def test_the_cheapest_of_all_stays(device, monkeypatch):
    names = ("one", "two", "three")
    for name in names:
        offer(name)
    cost: dict[str, float] = {}
    timed(monkeypatch, lambda now: cost[next(iter(now.values()), "")])

    @settings(max_examples=8, deadline=None, database=None)
    @given(st.permutations([20e-6, 30e-6, 40e-6, 50e-6]))
    def law(costs: list[float]) -> None:
        cost.update(zip(("", *names), costs, strict=True))
        g = play(product, (square(device),))
        best = min(cost, key=cost.__getitem__)
        assert used(g) == ({f"mm {best}": 2} if best else {}), (cost, g.explain())
        g.reset()

    law()


@pytest.mark.usefixtures("_offer")
@pytest.mark.parametrize("order", [("slow", "slower"), ("slower", "slow")])
def test_a_tier_that_is_slower_goes_as_a_whole(device, monkeypatch, order):
    for name in order:
        offer(name)
    cost = {"": 30e-6, "slow": 50e-6, "slower": 60e-6}
    timed(monkeypatch, lambda now: cost[next(iter(now.values()), "")])
    held = play(product, (square(device),), numerics="exact").report().bytes_held
    g = play(product, (square(device),))
    report = found(g)
    assert not report.near and [each.kept for each in report.trials] == [False, False], g.explain()
    assert any(["its replays took" in each.reason for each in report.left])
    assert g.report().bytes_held == held
    assert_same(g(square(device)), product(square(device)), "result")


@pytest.mark.usefixtures("_offer")
def test_each_kind_of_place_has_its_own(device, monkeypatch):
    """One has the second alternative, one the first, one its operator."""
    for name in ("first", "second"):
        offer(name)
    offer("first", "bmm")

    def cost(now: Mapping[int, str]) -> float:
        names = [now.get(index, "") for index in sorted(places)]
        table = ({"": 9, "first": 8, "second": 4}, {"": 9, "first": 3, "second": 5}, {"": 1, "first": 7})
        return 1e-5 * sum([row[name] for row, name in zip(table, names, strict=True)])

    places: set[int] = set()

    def seen(now: Mapping[int, str]) -> float:
        places.update(now)
        return cost(now) if len(places) == 3 else 3e-4

    timed(monkeypatch, seen)
    g = play(two_kinds, (square(device),), calls=400)
    assert used(g) == {"mm second": 1, "mm first": 1}, g.explain()
    assert [each.kept for each in found(g).trials].count(True) >= 3


def tabled(clock: Clock) -> Callable[[Tensor], Tensor]:
    ticks = clock.ticks

    def fn(x: Tensor) -> Tensor:
        ticks.put(None)
        for _ in range(8):
            x = x + torch.arange(4, device=x.device).float().cos() * 0.5
        return x

    return fn


@pytest.mark.parametrize("exact_s", [50e-6, 150e-6])
def test_a_recording_that_loses_is_judged_with_its_tiers(device, monkeypatch, exact_s):
    """What was captured takes longer than plain calls; the exact tier may not.

    On a GPU there is none here: what puts the ticks could launch kernels that no operation shows.
    """
    clock = timed(monkeypatch, lambda now: exact_s)
    clock.replay_s = 150e-6
    fn = tabled(clock)
    g = rote.graph(fn)
    for number in range(1000):
        assert_same(g(square(device)), fn(square(device)), "result")
        if number % 20 == 0:
            assert g.wait_until_optimized(timeout_s=60) or number < 500
    if exact_s < clock.plain_s and device.type == "cpu":
        report = tier(g)
        assert (
            report is not None and report.used and g.report().recordings[0].replay_us == pytest.approx(50)
        ), g.explain()
    else:
        assert not g.report().recordings
        assert "RT308" in {each.code for each in g.report().reasons if "runs plainly" in each.message}


@pytest.mark.usefixtures("_offer")
def test_nothing_is_timed_that_is_kept(device, monkeypatch):
    for name in ("slow", "fast"):
        offer(name)
    clock = timed(monkeypatch, lambda now: 50e-6)
    g = play(product, (square(device),), keep=True)
    assert used(g) == {"mm slow": 2} and not clock.timed
    assert [(each.us, each.kept) for each in found(g).trials] == [(None, True)]


@pytest.mark.usefixtures("_offer")
def test_the_ledger_bounds_what_is_tried(device, monkeypatch):
    for name in ("slow", "fast"):
        offer(name)
    spent: list[bool] = []

    def time_of(now: dict[str, str]) -> float:
        spent.extend([True for name in now.values() if name == "slow"])  # all that was earned
        return 40e-6 if "fast" in now.values() else 50e-6

    timed(monkeypatch, time_of)
    monkeypatch.setattr(Ledger, "allows_work", property(lambda self: not spent))
    g = play(product, (square(device),))
    report = tier(g)
    assert report is not None and len(report.trials) == 1, g.explain()
    assert [each.alternative for each in report.near] == ["slow"]


@pytest.mark.usefixtures("_offer")
def test_no_more_versions_than_that(device, monkeypatch):
    for number in range(5):
        offer(f"number {number}")
    monkeypatch.setattr(choosing, "MOST_VERSIONS", 3)
    timed(monkeypatch, lambda now: 50e-6)
    g = play(product, (square(device),))
    assert len(found(g).trials) == 3 and used(g) == {"mm number 0": 2}


@pytest.mark.usefixtures("_offer")
def test_one_that_cannot_be_captured_costs_a_line(device, monkeypatch):
    """It is the second one, and what stood before it stays."""
    offer("first")
    calls: list[int] = []

    def calculate(run: Any, x: Tensor, y: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 2:  # the gate has passed in both places
            raise RuntimeError("there is no such capture")
        return run(aten.mm.default, (x, y), {})

    rote.register_alternative(rote.Alternative("aten::mm", "second", lambda x, y: True, calculate))
    timed(monkeypatch, lambda now: 50e-6 if now else 60e-6)
    g = play(product, (square(device),))
    report = found(g)
    assert used(g) == {"mm first": 2} and len(calls) == 3
    assert any(["there is no such capture" in each.reason for each in report.left]), g.explain()


@pytest.mark.usefixtures("_offer")
@pytest.mark.parametrize(("fast_s", "stays"), [(49.7e-6, "slow"), (49.3e-6, "fast")])
def test_what_may_be_noise_is_no_gain(device, monkeypatch, fast_s, stays):
    for name in ("slow", "fast"):
        offer(name)
    cost = {"": 60e-6, "slow": 50e-6, "fast": fast_s}
    timed(monkeypatch, lambda now: cost[next(iter(now.values()), "")])
    assert used(play(product, (square(device),))) == {f"mm {stays}": 2}
