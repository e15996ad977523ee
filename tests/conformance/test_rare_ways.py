"""Some values lead a call where it cannot be recorded: it runs plainly then, and the others are replayed."""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.clock import set_costs
from torch import Tensor, nn

import rote
from rote.testing import assert_same

CALLS, EVERY = 120, 9


def _file(state: Any, y: Tensor) -> None:
    with open(os.devnull) as file:
        state.count += len(file.read())


def _set(state: Any, y: Tensor) -> None:
    state.seen.add(len(state.seen))


def _length(state: Any, y: Tensor) -> None:
    state.lines.append(state.count)
    state.count = len(state.lines)


def _clock(state: Any, y: Tensor) -> None:
    state.count = 1 if time.time() > 1 else 2


def _memory(state: Any, y: Tensor) -> None:
    state.lines.append(float(y.detach().cpu().numpy().tobytes()[0]))
    state.count = state.lines[-1] + len(state.lines)


def _raises(state: Any, y: Tensor) -> None:
    state.seen.add(len(state.seen))
    raise ValueError(f"{len(state.seen)} of them")


BEHIND = {each.__name__: each for each in (_file, _set, _length, _clock, _memory, _raises)}


def _reads(layer: nn.Module, state: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return layer(x)


def _draws(layer: nn.Module, state: Any, x: Tensor) -> Tensor:
    return layer(x + torch.rand_like(x))


def _writes(layer: nn.Module, state: Any, x: Tensor) -> Tensor:
    state.total += x.sum()
    return layer(x) + state.total


def _trains(layer: nn.Module, state: Any, x: Tensor) -> Tensor:
    layer.zero_grad()
    loss = layer(x).square().mean()
    loss.backward()
    with torch.no_grad():
        for p in layer.parameters():
            p -= 0.1 * p.grad
    return loss.detach()


def _writes_an_argument(layer: nn.Module, state: Any, x: Tensor) -> Tensor:
    x.mul_(2)
    return layer(x)


BEFORE = {each.__name__: each for each in (_reads, _draws, _writes, _trains, _writes_an_argument)}


def _play(before: Any, behind: Any, device: torch.device, wrap: Any) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3).to(device)
    state = SimpleNamespace(count=0, seen=set(), lines=[], total=torch.zeros((), device=device))

    def step(x: Tensor, rare: Tensor) -> Tensor:
        y = before(layer, state, x)
        if rare.item() > 0.5:
            behind(state, y)
        return y * 2

    step, shown = wrap(step), list[Any]()
    for n in range(CALLS):
        x = torch.full((2, 3), n / CALLS, device=device)
        try:
            result: Any = step(x, torch.tensor(float(n % EVERY == EVERY - 1), device=device)).detach().clone()
        except ValueError as error:
            result = str(error)
        left = state.count, len(state.seen), [*state.lines]
        grads = [None if p.grad is None else p.grad.clone() for p in layer.parameters()]
        shown.append((result, left, state.total.clone(), x, grads, torch.rand(1)))
    return shown, step


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("keep", [True, False])
def test_the_other_way_is_replayed(before, behind, keep, device):
    plain, _ = _play(BEFORE[before], BEHIND[behind], device, lambda step: step)
    graphed, g = _play(BEFORE[before], BEHIND[behind], device, lambda step: rote.graph(step, keep=keep))
    assert_same(graphed, plain)
    if keep:
        assert g.report().replayed > CALLS * (1 - 1 / EVERY) - 25, g.explain()


@pytest.mark.parametrize("before", ["_reads", "_draws"])
def test_it_is_run_plainly_from_its_start_where_tracing_costs_too_much(before, device, monkeypatch):
    """A replay that has only read came to nothing then, and the next ones go on."""
    set_costs(monkeypatch, traced_s=50e-3, plain_s=10e-3)
    _, g = _play(BEFORE[before], _set, device, rote.graph)
    replayed = g.report().replayed
    assert replayed > CALLS / 2 if before == "_reads" else replayed < CALLS, g.explain()


def _appends(state: Any, y: Tensor) -> None:
    state.lines.append(y)
    state.count += len(state.lines)


HOLDING = {
    "nothing": lambda state, y: None,
    "attribute": lambda state, y: setattr(state, "last", y),
    "member": lambda state, y: state.table.__setitem__(state.count, y),
    "list that is read": _appends,
    "set": lambda state, y: state.seen.add(y),
    "view": lambda state, y: setattr(state, "last", y.view(-1)),
    "function": lambda state, y: setattr(state, "last", lambda: y),
    "iterator": lambda state, y: setattr(state, "last", iter([y])),
    "array": lambda state, y: setattr(state, "last", y.numpy()),
}


def _held_by(value: Any) -> list[Tensor]:
    if isinstance(value, np.ndarray):
        return [torch.from_numpy(value)]
    if isinstance(value, FunctionType):
        return [value()]
    if isinstance(value, dict):
        return [*value.values()]
    return [value] if isinstance(value, Tensor) else [*(copy.copy(value) or ())]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("hold", HOLDING.values(), ids=HOLDING)
def test_what_was_made_before_the_value_is_the_callers(hold, device):
    """It is a result there, and what the way leaves outside may hold it; replays write to neither."""
    if device.type != "cpu" and hold is HOLDING["array"]:
        pytest.skip("arrays lie on the host")
    states = [SimpleNamespace(count=0, seen=set(), lines=[], table={}, last=None) for _ in range(2)]

    def make(state: Any) -> Any:
        def step(x: Tensor) -> Tensor:
            y = x.norm()
            if y > 1:
                state.count += 1
                hold(state, y)
                return y
            return y

        return step

    g, plain = rote.graph(make(states[0]), keep=True), make(states[1])
    shown: tuple[list[Tensor], list[Tensor]] = [], []
    for n in range(24):
        x = torch.full((2,), float(n in (5, 6, 11, 16)) + n / 100, device=device)
        for held, step, state in zip(shown, (g, plain), states, strict=True):
            held.append(step(x.clone()))
            kept = [each for one in (state.last, state.lines, state.table) for each in _held_by(one)]
            held.extend(kept)
            held.append(torch.tensor(sorted([each.item() for each in state.seen])))
    assert_same(shown[0], shown[1])


def _counts(state: Any, n: int) -> None:
    state.counts[n] += 1


def _sums(state: Any, n: int) -> None:
    state.sums[n] += 0.5 * n


def _counter(state: Any, n: int) -> None:
    state.counter[n] += 1


def _named(state: Any, n: int) -> None:
    setattr(state, f"of_{n}", getattr(state, f"of_{n}") + 1)


def _one_alone(state: Any, n: int) -> None:
    if n == 1:
        state.of_1 += 1


WAYS = {each.__name__: each for each in (_counts, _sums, _counter, _named, _one_alone)}


@pytest.mark.parametrize("name", WAYS)
def test_each_way_counts_for_itself(name, device):
    """What one way has never read is followed there, too."""
    turn = WAYS[name]

    def play(wrap: Any) -> tuple[list[Any], Any]:
        state = SimpleNamespace(counts=[0, 0, 0], sums=[0.0] * 3, counter=Counter(), of_0=0, of_1=0, of_2=0)

        def step(x: Tensor) -> Tensor:
            best = x.argmax().item()
            turn(state, best)
            return x * 2

        step, shown = wrap(step), list[Any]()
        made = torch.Generator().manual_seed(0)
        for n in range(CALLS):
            if n % 50 == 49:
                state.counts[0], state.sums[0] = -5, -5.0
            result = step(torch.randn(3, generator=made).to(device))
            left = [*state.counts, *state.sums, *state.counter.items(), state.of_0, state.of_1, state.of_2]
            shown.append((result, left))
        return shown, step

    plain, _ = play(lambda step: step)
    graphed, g = play(lambda step: rote.graph(step, keep=True))
    assert_same(graphed, plain)
    assert g.report().replayed > CALLS / 2, g.explain()
