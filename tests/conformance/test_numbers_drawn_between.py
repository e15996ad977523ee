"""Numbers that are drawn between others which change: a buffer that grows, noise that fades."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

import rote

DRAWS: dict[str, Any] = {
    "randint": lambda s, n: np.random.randint(0, n, size=4),
    "randint of one": lambda s, n: random.randint(0, n) + random.randrange(n + 1),
    "integers": lambda s, n: s.generator.integers(n, size=4),
    "by name": lambda s, n: s.generator.integers(low=0, high=n + 1, size=3),
    "normal": lambda s, n: np.random.normal(0, 1.0 / n, size=3),
    "gauss": lambda s, n: random.gauss(n, 0.5 * n),
    "uniform": lambda s, n: s.own.uniform(-n, n),
    "after another": lambda s, n: random.randint(0, n) + np.random.randint(0, n * 2),
    "between drawn ones": lambda s, n: random.uniform(0, random.random() * n),
    "one of many": lambda s, n: s.generator.choice(n, size=3),
    "order": lambda s, n: np.random.permutation(n)[:2],
    "more of them": lambda s, n: np.random.rand(n % 3 + 1),
    "of a sum": lambda s, n: random.randint(n - 3, n + s.more),
}
FOLLOWED = frozenset({
    "randint", "randint of one", "integers", "by name", "normal", "gauss", "uniform", "after another",
    "of a sum", "between drawn ones",
})  # fmt: skip


class State:
    """What a call reads, and what it draws from."""

    def __init__(self) -> None:
        self.generator, self.own, self.more = np.random.default_rng(3), random.Random(4), 2
        self.rows, self.size = torch.arange(200.0), 5
        random.seed(1)
        np.random.seed(2)

    def drawn(self) -> Any:
        """How far the generators are."""
        return self.generator.random(), self.own.random(), random.random(), np.random.rand()


def play(draw: Any, given: bool, device: torch.device, counts: Any) -> Any:
    """Call a program plainly, then graphed from the same state; each call leaves the generators alike."""
    seen = []
    for graphs in (False, True):
        state = State()
        state.rows = state.rows.to(device)

        def program(x: Any, n: int, state: State = state) -> Any:
            found = draw(state, n if given else state.size)
            found = torch.as_tensor(found, device=x.device)
            return x * found.sum() + (state.rows[found] if found.dtype == torch.int64 else found).sum()

        call: Any = rote.graph(program, keep=True) if graphs else program
        results: list[Any] = []
        for count in counts:
            state.size = count
            try:
                results.append(call(torch.ones(3, device=device), count if given else 0).tolist())
            except (ValueError, IndexError, TypeError, ZeroDivisionError, DeprecationWarning) as error:
                results.append(str(error))
        results.append(state.drawn())
        seen.append(results)
    assert seen[0] == seen[1], call.explain()
    return call


@pytest.mark.parametrize(("name", "given"), [*itertools.product(DRAWS, (False, True))])
def test_draws_between_numbers_that_change(device, name, given):
    call = play(DRAWS[name], given, device, range(5, 29))
    if name in FOLLOWED:
        assert call.report().replayed >= 10, call.explain()


@pytest.mark.parametrize("name", ["randint", "integers", "normal", "uniform", "of a sum", "one of many"])
def test_bounds_that_cannot_be(device, name):
    """What raises, raises as in the plain call, and nothing is drawn for it."""
    counts = [*range(5, 17), 0, 18, -3, 19, 20, 2.5, 21, True, 22, 23]
    play(DRAWS[name], True, device, counts)
    play(DRAWS[name], False, device, counts)


def test_bounds_that_are_read(device):
    """A bound that lies in a tensor is not known when a call begins."""

    def draw(state: State, n: int) -> Any:
        return random.randint(0, int(state.rows[n].item()))

    play(draw, True, device, range(5, 25))
