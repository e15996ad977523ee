"""A number that the host reads decides how a call goes on: each way is recorded, whatever the number is."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.conformance.keeping import KeptGraph
from torch import Tensor

import rote
from rote.testing import assert_same

COMPUTES = pytest.mark.parametrize("device", ["cpu"], indirect=True)
CALLS = 70


def _signs(x: Tensor, y: Tensor, state: Any) -> Any:
    n = x.sum().item()
    return y * n if n > 0 else (y - 1) * (n * n)


def _nested(x: Tensor, y: Tensor, state: Any) -> Any:
    n = x.sum().item()
    if n > 0.5:
        return y * 2 if n > 1.5 else y * n + 1
    return y - n


def _one_behind_another(x: Tensor, y: Tensor, state: Any) -> Any:
    first = x.sum().item()
    y = y * first if first > 0 else y.abs()
    second = y.mean().item()
    return y + second if second > first else y - 2 * second


def _stops_early(x: Tensor, y: Tensor, state: Any) -> Any:
    for number in range(4):
        y = y * 0.5 + x.mean()
        error = y.abs().max().item()
        if error < 0.4:
            return y, number
    return y, -1


def _takes_a_step_or_not(x: Tensor, y: Tensor, state: Any) -> Any:
    norm = float(y.norm())
    if norm > state.bound:
        y = y * (state.bound / norm)
    state.total.add_(y)
    return state.total.clone(), norm


def _flag_and_number(x: Tensor, y: Tensor, state: Any) -> Any:
    if bool((x > 0).all()):
        return y * x.sum().item()
    return y + x.max().item() if x.max().item() > 0.7 else y


def _with_an_argument(x: Tensor, y: Tensor, state: Any, rate: float) -> Any:
    loss = (x * rate).sum().item()
    if loss > rate:
        return y * loss
    return y * rate


def _writes_outside(x: Tensor, y: Tensor, state: Any) -> Any:
    n = x.sum().item()
    if n > 0:
        state.total.mul_(n)
    else:
        state.total.add_(1)
    return state.total * y


def _lowers_a_rate(x: Tensor, y: Tensor, state: Any) -> Any:
    n = x.sum().item()
    if n > 1:
        state.rate = state.rate * 0.99
    return y * state.rate


def _takes_turns(x: Tensor, y: Tensor, state: Any) -> Any:
    n = state.count.item()
    state.count += 1
    if n % 2:
        return y
    state.total.lerp_(y, 1 / (1 + n))
    return state.total + n


def _ints(x: Tensor, y: Tensor, state: Any) -> Any:
    k = int((x > 0).sum())
    return y * k if k >= 2 else y - k


PROGRAMS: dict[str, Callable[..., Any]] = {
    each.__name__[1:].replace("_", " "): each
    for each in (
        _signs,
        _nested,
        _one_behind_another,
        _stops_early,
        _takes_a_step_or_not,
        _flag_and_number,
        _with_an_argument,
        _writes_outside,
        _lowers_a_rate,
        _ints,
        _takes_turns,
    )
}


def _state(device: torch.device) -> Any:
    return SimpleNamespace(
        bound=1.6, rate=0.5, total=torch.ones(3, device=device), count=torch.tensor(0, device=device)
    )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple):
        return all(_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    return type(left) is type(right) and repr(left) == repr(right)


def _calls(program: Callable[..., Any], device: torch.device, seed: int) -> int:
    """Call a program plain and graphed; how many of the last calls were replayed."""
    numbers, plain, graphed = random.Random(seed), _state(device), _state(device)
    act, generator = rote.graph(program, keep=True), torch.Generator().manual_seed(seed)
    early = 0
    for call in range(CALLS):
        x, y = torch.randn(3, generator=generator).to(device), torch.randn(3, generator=generator).to(device)
        more = (numbers.uniform(0.1, 2.0),) if program is _with_an_argument else ()
        expected, got = program(x, y, plain, *more), act(x, y, graphed, *more)
        assert _same(expected, got), call
        assert torch.equal(plain.total, graphed.total), call
        assert plain.rate == graphed.rate
        if call == CALLS // 2:
            early = act.report().replayed
    return act.report().replayed - early


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_way_is_recorded(name: str, device: torch.device) -> None:
    assert _calls(PROGRAMS[name], device, 1) >= CALLS // 4


_READS = (
    "x.sum().item()",
    "float(y.max())",
    "int((x > 0).sum())",
    "y.mean().item()",
    "state.total[0].item()",
)
_ASKS = (
    "{n} > 0.3",
    "{n} * 2 < 1",
    "0 < {n} < 1",
    "{n} >= {m}",
    "abs({n}) > 0.5",
    "not {n} > -0.2",
    "{n} == 1",
)
_DOES = (
    "y = y * {n}", "y = y + x", "y = torch.full_like(y, {n}) - y", "state.total.mul_(0.5).add_({n} * 0.01)",
    "y = y.clamp(max=abs({n}) + 0.1)", "return y * {n}", "return y, {n}", "state.rate = {n} * 0.5",
    "y = y * state.rate", "y = y / (1 + {n} * {n})", "pass",
)  # fmt: skip


def _made(seed: int) -> Callable[..., Any]:
    """A program that reads numbers, asks and goes on in many ways."""
    dice, lines, known = random.Random(seed), ["def program(x, y, state):", " n0 = 0.25"], 1

    def some() -> str:
        return f"n{dice.randrange(known)}"

    def block(depth: int) -> None:
        nonlocal known
        for _ in range(dice.randint(1, 3)):
            kind = dice.random()
            if kind < 0.35:
                lines.append(" " * depth + f"n{known} = {dice.choice(_READS)}")
                known += 1
            elif kind < 0.65 and depth < 4:
                was = known
                lines.append(" " * depth + f"if {dice.choice(_ASKS).format(n=some(), m=some())}:")
                block(depth + 1)
                known = was
                lines.append(" " * depth + "else:")
                block(depth + 1)
                known = was
            else:
                lines.append(" " * depth + dice.choice(_DOES).format(n=some()))

    block(1)
    lines.append(f" return y * {some()}, {some()}")
    scope: dict[str, Any] = {"torch": torch}
    exec("\n".join(lines), scope)
    return scope["program"]


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int, device: torch.device) -> None:
    _calls(_made(seed), device, seed)


def test_too_many_ways_are_left_alone(device: torch.device) -> None:
    def counts(x: Tensor) -> Tensor:
        n, steps = x.item(), 0
        while n > 0:
            n, steps = n - 1, steps + 1
        return x * steps

    act = rote.graph(counts)
    for number in range(90):
        x = torch.tensor(float(number % 30), device=device)
        assert torch.equal(act(x), counts(x))
    assert any(why.code == "RT304" for why in act.report().reasons)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("every", [2, 4])
def test_a_number_leads_each_few_calls_another_way(device, every):
    """Each way is observed before one comes again."""

    def run(wrap):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @wrap
        def step(number, x):
            loss = model(x).square().mean() / every
            loss.backward()
            if (number + 1) % every == 0:
                optimizer.step()
                optimizer.zero_grad()
            return loss.item()

        return [step(number, torch.randn(3, 4).to(device)) for number in range(60)], model.weight

    wrap = KeptGraph()

    assert_same(run(wrap), run(lambda function: function))
    assert wrap.graphed.report().replayed >= 12, wrap.graphed.explain()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mapped", ["parts", "numbers", "a function of C"])
def test_python_is_given_what_a_map_iterates(device, mapped):
    state = {"step": 0}

    def fn(x):
        state["step"] += 1
        scale = state["step"] * 0.5
        if mapped == "parts":
            one, other = map(lambda part: part * 2, x.chunk(2))
            return (one - other) * scale
        if mapped == "numbers":
            one, other = map(lambda number: number + 1, [scale, 2.0])
            return x * one + other
        one, other = map(float, [state["step"], 2])
        return x * one + other

    g = rote.graph(fn, keep=True)
    for number in range(24):
        x = torch.arange(4.0, device=device) + number
        mine = g(x)
        state["step"] -= 1
        assert_same(mine, fn(x))
    assert g.report().replayed >= 12 or mapped == "a function of C", g.explain()


def _keeps_the_best(state: Any, value: float) -> None:
    if value < state.best:
        state.best = value


def _keeps_a_better_one(state: Any, value: float) -> None:
    if value < state.best - 1e-3:
        state.best, state.bad = value, 0
    else:
        state.bad += 1


def _keeps_it_in_a_dict(state: Any, value: float) -> None:
    if state.found["best"] > value:
        state.found["best"] = value


@pytest.mark.parametrize("keeps", [_keeps_the_best, _keeps_a_better_one, _keeps_it_in_a_dict])
@pytest.mark.parametrize("falls", ["always", "at times"])
@COMPUTES
def test_the_best_so_far(device, keeps, falls):
    """Where each call improves on the one before, it is compared with what that has left there."""

    def make() -> tuple[Callable[[Tensor], float], SimpleNamespace]:
        state = SimpleNamespace(best=1e9, bad=0, found={"best": 1e9})

        def step(x: Tensor) -> float:
            value = x.mean().item()
            keeps(state, value)
            return value

        return step, state

    (plain, expected), (step, state) = make(), make()
    g = rote.graph(step, keep=True)
    for number in range(40):
        rises = falls == "at times" and number % 3 == 2
        x = torch.full((3,), 100.0 - number + 5 * rises, device=device)
        assert g(x) == plain(x)
        assert state == expected
    assert g.report().replayed >= 20, g.explain()
    g.reset()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("every", "trains"), [(2, True), (3, False), (4, True), (6, False)])
def test_one_way_runs_what_is_not_followed(trains: bool, every: int) -> None:
    """Code that may look at any number says nothing of the ways that do not come to it."""

    def program() -> Callable[[Tensor], Tensor]:
        torch.manual_seed(0)
        model, state = torch.nn.Linear(4, 4), SimpleNamespace(step=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Tensor) -> Tensor:
            state.step += 1
            loss = model(x).square().mean()
            if trains:
                loss.backward()
            if state.step % every == 0:
                loss = loss * len(dir(state))
                if trains:
                    optimizer.step()
                    optimizer.zero_grad()
            return loss.detach()

        return step

    g, plain = rote.graph(program(), keep=True), program()
    for number in range(20 * every):
        x = torch.randn(2, 4)
        assert_same(g(x), plain(x), f"call {number}")
    assert g.report().replayed >= 12 * (every - 1), g.explain()
    g.reset()


@pytest.mark.parametrize(("period", "odd"), [(2, 1), (3, 0), (4, 0), (4, 3), (5, 2), (6, 5)])
def test_one_way_comes_each_time_round(device: torch.device, period: int, odd: int) -> None:
    """Calls that are to be checked would all go that way if they came as often as it does."""
    place, state = torch.zeros(1, dtype=torch.long, device=device), SimpleNamespace(n=0)

    def step(x: Tensor) -> Tensor:
        state.n += 1
        at = int(place)
        y = x.sum() * state.n if at == odd else x[at] * state.n
        place.copy_((place + 1) % period)
        return y

    g = rote.graph(step, keep=True)
    for call in range(60):
        if call == 40:
            before = g.report().replayed
        x, at = torch.arange(8.0, device=device) + call, call % period
        assert torch.equal(g(x), (x.sum() if at == odd else x[at]) * (call + 1))
    assert g.report().replayed - before >= 18, g.explain()
