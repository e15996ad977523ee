"""Numbers that generators give: to a loop, or to a function that takes all of them, and to others."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import rote

COMPUTES = pytest.mark.parametrize("device", ["cpu"], indirect=True)


def some(n: float, count: int = 3) -> Iterator[float]:
    for place in range(count):
        yield n * place + 0.5


def looped(n: float) -> float:
    total = 0.0
    for each in some(n):
        total += each
    return total


def larger(n: float) -> Iterator[float]:
    for each in some(n):
        if each > 3:
            yield each


def raising(n: float) -> Iterator[float]:
    yield n
    if n > 4:
        raise ValueError
    yield n + 1


def caught(n: float) -> float:
    try:
        return sum(raising(n))
    except ValueError:
        return -1.0


def too_large(n: float) -> float:
    try:
        return sum(each for each in (1e300 * n, 10**400))
    except OverflowError:
        return 1.0


def looked_at(n: float, log: list[float]) -> Iterator[float]:
    for each in some(n):
        log.append(each)
        yield each


def kept_as_well(n: float) -> float:
    log: list[float] = []
    return sum(looked_at(n, log)) + log[1]


def begun(n: float) -> float:
    given = some(n, 4)
    return next(given) + sum(given)


def taken_again(n: float) -> float:
    """A loop takes one, and a set the others, which looks at them."""
    given = (round(each) for each in some(n))
    for each in given:
        return each + len(set(given))
    return 0.0


def sent(n: float) -> float:
    given = some(n)
    next(given)
    return float(given.send(None))


def mixed(n: float, x: Tensor) -> Iterator[Any]:
    yield n
    yield x.sum()


REPLAYED: dict[str, Callable[[float, Tensor], Any]] = {
    "a sum": lambda n, x: sum(each for each in some(n)),
    "a norm": lambda n, x: math.sqrt(sum((each.item() * n) ** 2 for each in x)),
    "the largest": lambda n, x: max(some(n)),
    "the smallest": lambda n, x: min(each - 3 for each in some(n)),
    "exactly": lambda n, x: math.fsum(some(n)),
    "a product": lambda n, x: math.prod(some(n)),
    "a list": lambda n, x: list(some(n))[1],
    "a tuple": lambda n, x: sum(tuple(some(n))) / 3,
    "in a loop": lambda n, x: looped(n),
    "in each other": lambda n, x: sum(sum(v for v in some(each)) for each in some(n)),
    "some of them": lambda n, x: sum(larger(n)),
    "how many": lambda n, x: sum(each > 3 for each in some(n)),
    "begun": lambda n, x: begun(n),
    "kept as well": lambda n, x: kept_as_well(n),
    "through a lambda": lambda n, x: sum((lambda v: v * 2)(each) for each in some(n)),
}
OTHERS: dict[str, Callable[[float, Tensor], Any]] = {
    "a set": lambda n, x: len({round(each) for each in some(n)} | set(some(n))),
    "sorted": lambda n, x: sorted(some(n))[0],
    "a dict": lambda n, x: dict(zip("ab", some(n), strict=False))["b"],
    "from a number": lambda n, x: sum(some(n), 1.5),
    "by a key": lambda n, x: max(some(n), key=lambda v: -v),
    "by default": lambda n, x: max((each for each in some(n, 0)), default=n),
    "text": lambda n, x: len(",".join(str(each) for each in some(n))),
    "a chain": lambda n, x: sum(itertools.chain(some(n), some(n))),
    "a part": lambda n, x: sum(itertools.islice(some(n, 9), 2)),
    "with their numbers": lambda n, x: sum(place * each for place, each in enumerate(some(n))),
    "delegated": lambda n, x: sum(yield_from(n)),
    "spread": lambda n, x: max(*some(n)),
    "with a tensor": lambda n, x: float(sum(mixed(n, x))),
    "raising": lambda n, x: caught(n),
    "too large": lambda n, x: too_large(n),
    "taken again": lambda n, x: taken_again(n),
    "sent": lambda n, x: sent(n),
    "whether any": lambda n, x: any(each > 3 for each in some(n)),
}


def yield_from(n: float) -> Iterator[float]:
    yield from some(n)


def play(program: Callable[[float, Tensor], Any], home: str, device: torch.device) -> int:
    """Call a program plainly and graphed with numbers from a place; how many calls were replayed."""
    state, dice = SimpleNamespace(n=1.0, left=None), random.Random(0)

    def step(x: Tensor, n: float) -> tuple[Tensor, Any]:
        n = state.n if home == "slot" else x.mean().item() if home == "read" else n
        state.left = program(n, x)
        return x * state.left, state.left

    g = rote.graph(step, keep=True)
    for number in range(24):
        n = (number * 0.37, float(number % 5), float(dice.randint(-3, 6)))[number % 3]
        x, state.n = torch.full((3,), n, device=device), n
        given = n if home == "argument" else 0.0
        seen = [(call(x, given), state.left) for call in (g, step)]
        (ours, theirs) = [(*result[0].tolist(), result[1], left) for result, left in seen]
        assert repr(ours) == repr(theirs), number
    replayed = g.report().replayed
    g.reset()
    return replayed


@pytest.mark.parametrize("name", REPLAYED)
@COMPUTES
def test_it_is_replayed(device, name):
    assert play(REPLAYED[name], "argument", device) >= 8
    play(REPLAYED[name], "slot", device)
    play(REPLAYED[name], "read", device)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("home", ["argument", "slot", "read"])
@COMPUTES
def test_it_is_right(device, home, name):
    play(OTHERS[name], home, device)


def test_norms_of_gradients(device):
    """A training step logs the norm of all gradients as many write it."""

    def make() -> Callable[[Tensor], float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: Tensor) -> float:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            return sum(p.grad.norm().item() ** 2 for p in model.parameters() if p.grad is not None) ** 0.5

        return step

    plain, g = make(), rote.graph(make(), keep=True)
    for _ in range(40):
        x = torch.randn(3, 4, device=device)
        assert g(x) == plain(x)
    assert g.report().replayed >= 20, g.explain()
    g.reset()
