"""Iterators that give numbers and lie outside: replays advance them, as the call would."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import rote

CALLS = 60


def counted(s: Any, x: Tensor) -> Tensor:
    return x * next(s.count)


def kept(s: Any, x: Tensor) -> tuple[Tensor, int]:
    s.last = next(s.count)
    return x + 1, s.last


def left_alone(s: Any, x: Tensor) -> Tensor:
    next(s.count)
    return x + 1


def a_rate_that_cycles(s: Any, x: Tensor) -> Tensor:
    return x * next(s.rates)


def twice(s: Any, x: Tensor) -> Tensor:
    return x * next(s.count) - next(s.count)


def every_third(s: Any, x: Tensor) -> Tensor:
    return x * 2 if next(s.count) % 3 == 0 else x


def together(s: Any, x: Tensor) -> Tensor:
    step, rate = next(s.both)
    return x * rate + step


def numbered(s: Any, x: Tensor) -> Tensor:
    step, rate = next(s.numbered)
    return x * rate + step


def of_a_list(s: Any, x: Tensor) -> Tensor:
    return x * next(s.listed, 0.5)


def before_a_read(s: Any, x: Tensor) -> Tensor:
    factor = next(s.count)
    return x * factor if x.sum().item() > 0 else x - factor


def and_drawn(s: Any, x: Tensor) -> Tensor:
    return x * next(s.count) + s.dice.random()


def with_an_island(s: Any, x: Tensor) -> Tensor:
    factor = next(s.count) + next(s.rates)
    return (x * factor)[x == x].sum() + factor


def through_two_ways(s: Any, x: Tensor) -> Tensor:
    return x * next(s.inner) + next(s.outer)[0]


def behind_a_read(s: Any, x: Tensor) -> Tensor:
    return x * next(s.count) if x.sum().item() > 0 else x


def in_a_loop(s: Any, x: Tensor) -> Tensor:
    for step in s.count:
        x = x + step
        if step % 2:
            return x
    return x


def looked_at(s: Any, x: Tensor) -> tuple[Tensor, str]:
    return x * next(s.count), repr(s.count)


def by_twos(s: Any, x: Tensor) -> Tensor:
    return x * next(s.twos)


REPLAYED = (
    counted, kept, left_alone, a_rate_that_cycles, twice, every_third, together, numbered, of_a_list,
    before_a_read, and_drawn, with_an_island,
)  # fmt: skip
OTHERS = (through_two_ways, behind_a_read, in_a_loop, looked_at, by_twos)


def _state() -> Any:
    inner = itertools.count(3)
    return SimpleNamespace(
        count=itertools.count(), last=0, rates=itertools.cycle([0.1, 0.2, 0.5]), dice=random.Random(1),
        both=zip(itertools.count(7), itertools.cycle([0.5, 0.25]), strict=False),
        numbered=enumerate(itertools.cycle((0.5, 0.25, 0.125))), listed=iter([n / 8 for n in range(40)]),
        inner=inner, outer=zip(inner, itertools.count(), strict=False), twos=itertools.count(0, 2),
    )  # fmt: skip


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return torch.equal(one[0], other[0]) and one[1:] == other[1:]
    return torch.equal(one, other)


def _run(program: Callable[[Any, Tensor], Any], device: torch.device) -> int:
    """Call a program plain and graphed; how many of the last calls were replayed."""
    plain, graphed, dice, early = _state(), _state(), random.Random(3), 0
    act = rote.graph(lambda x: program(graphed, x), keep=True)
    for call in range(CALLS):
        x = torch.full((3,), dice.uniform(-1, 1), device=device)
        assert _equal(act(x), program(plain, x)), call
        assert plain.last == graphed.last
        early = act.report().replayed if call == CALLS // 2 else early
    for name in ("count", "rates", "both", "numbered", "listed", "inner", "outer", "twos"):
        first, second = (list(itertools.islice(getattr(each, name), 5)) for each in (plain, graphed))
        assert first == second, name
    return act.report().replayed - early


@pytest.mark.parametrize("program", REPLAYED, ids=lambda each: each.__name__)
def test_it_is_replayed(program: Callable[[Any, Tensor], Any], device: torch.device) -> None:
    assert _run(program, device) >= CALLS // 4


@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_it_is_right(program: Callable[[Any, Tensor], Any], device: torch.device) -> None:
    _run(program, device)


def test_it_ends(device: torch.device) -> None:
    plain, given = (iter([n / 8 for n in range(30)]) for _ in range(2))
    act = rote.graph(lambda x: x * next(given) + next(given), keep=True)
    for _ in range(15):
        x = torch.ones(2, device=device)
        assert torch.equal(act(x), x * next(plain) + next(plain))
    assert act.report().replayed
    for _ in range(3):
        with pytest.raises(StopIteration):
            act(torch.ones(2, device=device))


def test_the_last_item_is_not_enough(device: torch.device) -> None:
    plain, given = (iter([n / 8 for n in range(31)]) for _ in range(2))
    act = rote.graph(lambda x: x * next(given) + next(given, 2.0), keep=True)
    for _ in range(16):
        x = torch.ones(2, device=device)
        assert torch.equal(act(x), x * next(plain) + next(plain, 2.0))
    assert act.report().replayed


def test_a_replay_that_raises_has_advanced_what_the_call_advances(device: torch.device) -> None:
    if device.type != "cpu":
        pytest.skip("an index outside ends the process's use of the device")
    steps, rates = itertools.count(), itertools.cycle([0.5, 0.25])
    act = rote.graph(lambda x, index: x.index_select(0, index) * next(steps) + next(rates), keep=True)
    x, right, wrong = torch.arange(4.0), torch.tensor([1]), torch.tensor([9])
    step, expected = 0, itertools.cycle([0.5, 0.25])
    for call in range(40):
        if call % 7 == 6:  # the index is asked first
            with pytest.raises((IndexError, RuntimeError)):
                act(x, wrong)
        else:
            assert act(x, right).item() == step + next(expected), call
            step += 1
    assert act.report().replayed >= 20


ITEMS: tuple[Callable[[random.Random], Any], ...] = (
    lambda dice: dice.randrange(100),
    lambda dice: dice.random(),
    lambda dice: dice.choice([1, 2.0]),
)


def _iterator(dice: random.Random, depth: int = 2) -> Iterator[Any]:
    """A random iterator; the same for the same dice."""
    make = dice.choice(ITEMS)
    items = [make(dice) for _ in range(dice.choice([1, 2, 5, 60]))]
    kind = dice.randrange(8 if depth else 5)
    if kind == 0:
        return itertools.count(dice.randrange(-5, 300))
    if kind == 1:
        return itertools.count(dice.randrange(4), dice.choice([1, 3]))
    if kind == 2:
        return itertools.cycle(dice.choice([list, tuple])(items))
    if kind in (3, 4):
        return iter(dice.choice([list, tuple])(items * 40))
    if kind == 5:
        return enumerate(_iterator(dice, depth - 1), dice.randrange(9))
    parts = [_iterator(dice, depth - 1) for _ in range(dice.randrange(1, 3))]
    return zip(*parts, strict=False)


def _sum(value: Any) -> Any:
    return sum(map(_sum, value)) if isinstance(value, tuple) else value


def _program(dice: random.Random) -> Callable[[list[Iterator[Any]], Tensor], Any]:
    """A random program that advances some iterators; the same for the same dice."""
    steps = [
        (dice.choice([1, 1, 2, 3, 4, 5, 5, 1, 4, 0]), dice.randrange(3)) for _ in range(dice.randrange(1, 5))
    ]

    def program(turns: list[Iterator[Any]], x: Tensor) -> Any:
        numbers: list[Any] = []
        for step, which in steps:
            value = _sum(next(turns[which])) if step else 1
            numbers.append(value)
            if step == 1:
                x = x * value
            elif step == 2:
                x = x + 1 if value > 3 else x - 1
            elif step == 3:
                x = x + x[x == x].sum() + value  # the host reads how many
            elif step == 4:
                x = torch.where(x > 0.5, x, value)
            elif step == 0 and x.sum().item() > 1e3:
                x = x / 100
        return x, numbers

    return program


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration:
        return StopIteration


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(80))
def test_random_programs(seed: int, device: torch.device) -> None:
    dice = random.Random(seed)
    program, made = _program(dice), dice.random()
    plain, graphed = ([_iterator(each) for _ in range(3)] for each in map(random.Random, (made, made)))
    act = rote.graph(lambda x: program(graphed, x), keep=True)
    for call in range(30):
        x = torch.tensor([dice.uniform(-1, 1), 1.0], device=device)
        expected, found = _tried(lambda x=x: program(plain, x)), _tried(lambda x=x: act(x))
        if expected is StopIteration or found is StopIteration:
            assert expected is found, call
        else:
            assert torch.equal(found[0], expected[0]) and repr(found[1]) == repr(expected[1]), call
        if dice.random() < 0.1:
            which = dice.randrange(3)
            assert next(plain[which], None) == next(graphed[which], None)
        if dice.random() < 0.05:
            which, made = dice.randrange(3), dice.random()
            plain[which], graphed[which] = (_iterator(random.Random(made)) for _ in range(2))
    for one, other in zip(plain, graphed, strict=True):
        assert list(itertools.islice(one, 5)) == list(itertools.islice(other, 5))
