"""Recordings through whose results somebody walks back are measured with the walk, and dropped if they lose.

Everything else stays what it is: gradients, hooks, graphs. The clock is the tests' own.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.clock import Clock
from torch import nn

import rote
from rote import Graphed
from rote.inspect import ReasonReport
from rote.runtime.recording.contest.contest import BLOCK, BLOCKS, CONFIRM, FIRST_ROUND
from rote.runtime.recording.contest.contest import WARM as BEFORE
from rote.runtime.recording.contest.roundtrip import RoundTrip

FIND = Callable[[Graphed, str], ReasonReport]

TIMED = BLOCK * BLOCKS
"""Calls of each kind that are timed in a round."""

PLAINLY = (BEFORE + BLOCK) * BLOCKS
"""Plain calls in one."""

ONE_OF_EACH = ["replay"] * BLOCK + ["plain"] * BLOCK
ROUND = FIRST_ROUND + 2 * PLAINLY + 4
TWO_ROUNDS = FIRST_ROUND + CONFIRM + 4 * PLAINLY + 8


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    made.install(monkeypatch)
    yield made


def layer(clock: Clock, device: torch.device) -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(1)
    model, ticks = nn.Linear(4, 4).to(device), clock.ticks

    def fn(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        return model(x).tanh()

    return model, fn


def walk(graphed: Callable[[torch.Tensor], torch.Tensor], device: torch.device, number: int) -> None:
    for n in range(number):
        graphed(torch.full((2, 4), n / 100, device=device)).sum().backward()


def test_a_recording_that_loses_with_its_walk_is_dropped(
    device: torch.device, clock: Clock, reason: FIND
) -> None:
    """Its calls alone win."""
    clock.replay_s, clock.replay_walk_s = 50e-6, 200e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    walk(g, device, ROUND)
    found = g.report().recordings[0]
    assert (found.replay_us, found.plain_us) == (pytest.approx(250), pytest.approx(200))
    assert found.with_backward and "250.0 us each, 200.0 us plainly, walks back included" in g.explain()
    walk(g, device, TWO_ROUNDS)
    report = g.report()
    assert not report.recordings and report.bytes_held == 0
    both = "a replay took 250.0 us and a plain call 200.0 us, each with the walk back through its results"
    assert reason(g, "RT308").message == f"{both}, so the key runs plainly"
    assert clock.timed == clock.walked == ONE_OF_EACH * BLOCKS * 2
    replayed = report.replayed
    walk(g, device, ROUND)
    assert g.report().replayed == replayed


@pytest.mark.parametrize("every", [1, 4])
def test_training_is_slower_for_two_rounds_at_most(
    device: torch.device, clock: Clock, reason: FIND, every: int
) -> None:
    """However slow a replayed backward is; the loss of the step before is alive, as it is in most programs.

    Args:
        every: Backward passes for a step of the optimizer.
    """
    clock.replay_s, clock.replay_walk_s = 1e-6, 100e-3

    def train(wrap: bool, steps: int, later: int) -> tuple[list[torch.Tensor], list[int]]:
        model, fn = layer(clock, device)
        run = rote.graph(fn) if wrap else fn
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        replayed: list[int] = []
        for n in range(steps + later):
            if n == steps and isinstance(run, Graphed):
                assert not run.report().recordings and run.report().bytes_held == 0
                replayed.append(run.report().backwards_replayed)
            if n % every == 0:
                optimizer.zero_grad()
            loss = run(torch.full((2, 4), n % 7 / 7, device=device)).square().mean()
            loss.backward()
            if n % every == every - 1:
                optimizer.step()
        if isinstance(run, Graphed):
            assert "walk back" in reason(run, "RT308").message
            replayed.append(run.report().backwards_replayed)
        return list(model.parameters()), replayed

    theirs, _ = train(False, TWO_ROUNDS, ROUND)
    ours, (before, after) = train(True, TWO_ROUNDS, ROUND)
    assert FIRST_ROUND < before == after < 2 * FIRST_ROUND
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_walk_that_wins_keeps_the_recording(device: torch.device, clock: Clock) -> None:
    """Its calls alone lose."""
    clock.replay_s, clock.plain_walk_s = 150e-6, 400e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    walk(g, device, 4 * ROUND)
    found = g.report().recordings[0]
    assert clock.timed == clock.walked == ONE_OF_EACH
    assert (found.replay_us, found.plain_us) == (pytest.approx(250), pytest.approx(500))


def test_it_can_be_kept(device: torch.device, clock: Clock) -> None:
    clock.replay_walk_s = 900e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn, keep=True)
    walk(g, device, 2 * TWO_ROUNDS)
    assert not clock.timed and not clock.walked and g.report().recordings[0].replay_us is None


@pytest.mark.parametrize("walks", [True, False])
def test_some_calls_are_walked(device: torch.device, clock: Clock, walks: bool) -> None:
    """Where somebody has walked back, the calls alone decide once nobody has done so in two rounds."""
    clock.replay_s = 400e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    x = torch.ones(2, 4, device=device)
    for _ in range(FIRST_ROUND // 2):
        g(x).sum().backward()
    for _ in range(FIRST_ROUND):
        y = g(x)
    assert clock.timed and g.report().recordings  # one round decides nothing
    for number in range(2 * TWO_ROUNDS):
        y = g(x)
        if walks and number % 3:
            y.sum().backward()
    assert clock.timed and bool(clock.walked) is walks
    assert not g.report().recordings


def test_both_ways_have_to_lose(device: torch.device, clock: Clock) -> None:
    """A key that is called mostly alone keeps what its rare walks lose."""
    clock.replay_s, clock.replay_walk_s = 50e-6, 300e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    x, kinds = torch.ones(2, 4, device=device), [True, True, False, False, False]
    for number in range(4 * TWO_ROUNDS):
        y = g(x)
        if kinds[len(clock.timed) // 2 % len(kinds)] or number < FIRST_ROUND:
            y.sum().backward()
    assert g.report().recordings and clock.walked


def test_a_walk_on_another_thread(device: torch.device, clock: Clock, reason: FIND) -> None:
    clock.replay_walk_s = 300e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    for _ in range(2 * TWO_ROUNDS):
        loss = g(torch.ones(2, 4, device=device)).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        del loss
        if not g.report().recordings and clock.walked:
            break
    assert "a replay took 400.0 us and a plain call 200.0 us, each with" in reason(g, "RT308").message


def test_results_that_are_held_decide_nothing(device: torch.device, clock: Clock) -> None:
    """They may be walked any time later."""
    clock.replay_s = 300e-6
    model, fn = layer(clock, device)
    g = rote.graph(fn)
    x, held, timed = torch.ones(2, 4, device=device), list[torch.Tensor](), 0
    for _ in range(2 * TWO_ROUNDS):
        y = g(x)
        if len(clock.timed) > timed and clock.timed[-1] == "plain":
            held.append(y)
        timed = len(clock.timed)
        del y
    assert clock.timed == ONE_OF_EACH * BLOCKS and len(held) == TIMED
    found = g.report().recordings[0]
    assert found.plain_us is None and found.replays > TWO_ROUNDS
    torch.stack(held).sum().backward()
    assert model.weight.grad is not None and not clock.walked


def test_nothing_is_kept_alive(device: torch.device, clock: Clock) -> None:
    """Neither by the graph of a timed call nor by what waits for its walk; no collector is needed."""
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    x = torch.ones(2, 4, device=device, requires_grad=True)

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor, mark: list[Any]) -> torch.Tensor:
            ctx.mark = Mark()
            mark.append(weakref.ref(ctx.mark))
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return gradients[0], None

    class Mark:
        pass

    gc.disable()
    try:
        for walks in (True, False):
            for _ in range(FIRST_ROUND + 12):
                marks: list[Any] = []
                y = g(Marked.apply(x, marks))
                if walks:
                    y.sum().backward()
                del y
                assert marks[0]() is None
    finally:
        gc.enable()
    assert clock.timed


def hooks_of(node: Any) -> int:
    """How many hooks are called before a node runs."""
    handle = node.register_prehook(lambda gradients: None)
    number = len(handle.hooks_dict_ref()) - 1
    handle.remove()
    return number


def test_nobody_sees_a_hook(device: torch.device, clock: Clock) -> None:
    """The types of the nodes, the tensors' hooks; and a node that lives on has lost ours."""
    model, fn = layer(clock, device)
    g = rote.graph(fn)
    x = torch.ones(2, 4, device=device, requires_grad=True)
    base = x * 1
    most = 0
    for number in range(2 * ROUND):
        y = g(base)
        assert y._backward_hooks is None and base._backward_hooks is None and y.requires_grad
        assert type(y.grad_fn).__name__ in ("RecordedBackward", "TanhBackward0")
        most = max(most, hooks_of(base.grad_fn))
        if number % 2:
            y.sum().backward(retain_graph=True)
        del y
    assert clock.timed and 0 < most <= 2 * TIMED
    assert hooks_of(base.grad_fn) == 0
    assert all(parameter._backward_hooks is None for parameter in model.parameters())


def test_gradients_are_those_of_eager(device: torch.device, clock: Clock) -> None:
    """Whatever is done with the results of timed calls, and whatever hooks there are."""

    def make(wrap: bool) -> list[torch.Tensor]:
        torch.manual_seed(2)
        model, seen = nn.Linear(4, 4).to(device), list[torch.Tensor]()
        ticks = clock.ticks

        def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            ticks.put(None)
            h = model(x)
            return h.exp(), {"mean": h.mean(0), "other": y.sin() * h.sum()}

        run = rote.graph(fn) if wrap else fn
        model.weight.register_hook(lambda grad: seen.append(grad.clone()))
        root = torch.linspace(-1, 1, 8, device=device).view(2, 4).requires_grad_()
        for number in range(2 * ROUND):
            x, y = (root * (number % 5)).sin(), root.cos()
            x.register_hook(lambda grad: grad * 2)
            one, more = run(x, y)
            one.register_hook(lambda grad: None if grad is None else seen.append(grad.clone()))
            way = number % 7
            if way == 0:
                one.sum().backward()
            elif way == 1:
                (one.sum() + more["mean"].square().sum() + more["other"].sum()).backward()
            elif way == 2:
                one.sum().backward(retain_graph=True)
                more["other"].sum().backward()
            elif way == 3:
                seen.extend(torch.autograd.grad(more["mean"].sum() + one.sum(), [x, model.bias]))
            elif way == 4:
                seen.extend(torch.autograd.grad(one.sum(), [one]))
            elif way == 5:
                one.data.mul_(2)
                more["other"].add_(1).sum().backward()
        for tensor in (root, *model.parameters()):
            assert tensor.grad is not None
            seen.append(tensor.grad)
        if isinstance(run, Graphed):
            assert run.report().replayed > ROUND
            run.reset()
        return seen

    plain, ours = make(False), make(True)
    assert {"replay", "plain"} <= set(clock.timed) and clock.walked
    assert len(plain) == len(ours)
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))


def test_gradients_of_gradients(device: torch.device, clock: Clock) -> None:
    """A plain call that is timed may be differentiated twice."""
    ticks = clock.ticks

    def fn(x: torch.Tensor) -> torch.Tensor:
        ticks.put(None)
        return x.pow(3)

    g = rote.graph(fn)
    x = torch.arange(4.0, device=device).requires_grad_()
    for _ in range(2 * ROUND):
        y = g(x)
        if clock.timed and clock.timed[-1] == "plain":
            break
        y.sum().backward()
    else:
        pytest.fail("no plain call was timed")
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(first, 3 * x.detach().square()) and torch.equal(second, 6 * x.detach())


def test_a_pass_that_raises_is_no_sample(device: torch.device, clock: Clock) -> None:
    """The error goes to the caller, and the next walk is the next one."""
    clock.replay_walk_s = 300e-6
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    x = torch.ones(2, 4, device=device, requires_grad=True)

    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("not now")

    for _ in range(2 * TWO_ROUNDS):
        base = x * 1
        base.register_hook(fail)
        with pytest.raises(ValueError, match="not now"):
            g(base).sum().backward()
    assert clock.timed and not clock.walked and g.report().recordings


def test_no_call_under_saved_tensor_hooks(device: torch.device, clock: Clock) -> None:
    """There no call is a replay, so there is nothing to compare with."""
    _, fn = layer(clock, device)
    g = rote.graph(fn)
    walk(g, device, FIRST_ROUND + 2)
    timed = len(clock.timed)
    with torch.autograd.graph.save_on_cpu():
        walk(g, device, ROUND)
    assert len(clock.timed) == timed
    walk(g, device, ROUND)
    assert len(clock.timed) > timed


def test_a_round_that_is_over_keeps_nothing(device: torch.device, clock: Clock) -> None:
    clock.replay_s, clock.replay_walk_s = 10e-6, 10e-6

    def kept() -> int:
        gc.collect()
        return sum(type(each) is RoundTrip for each in gc.get_objects())

    _, fn = layer(clock, device)
    g = rote.graph(fn)
    walk(g, device, FIRST_ROUND + 2 + BEFORE + 2)
    assert kept()
    walk(g, device, 4 * PLAINLY)
    assert g.report().recordings and not kept()
