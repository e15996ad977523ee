"""Arguments over a few storages that the callables also reach as state, in any order; plain code is right.

Two worlds start equal. One is worked on by plain callables, the other by graphed ones; after every call the
results, the storages and earlier results agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rote

TURNS = 100
WIDTH = 4


class State:
    """What the callables reach: a buffer."""

    def __init__(self, device: torch.device) -> None:
        self.buffer = torch.arange(8.0, device=device)


class World:
    """Storages to take arguments from, earlier results, and the state of the callables."""

    def __init__(self, device: torch.device) -> None:
        self.storages = [torch.arange(8.0, device=device) * 0.1 + n for n in range(3)]
        self.state = State(device)
        self.results: list[torch.Tensor] = []

    def argument(self, place: tuple[int, int]) -> torch.Tensor:
        """A view of a storage; an earlier result if there is such a one."""
        where, start = place
        if where >= len(self.storages):
            if self.results:
                return self.results[start % len(self.results)]
            where = 0
        return self.storages[where][start : start + WIDTH]

    def tensors(self) -> list[torch.Tensor]:
        """Everything that has to agree."""
        return [*self.storages, self.state.buffer, *self.results]


def programs(state: State) -> list[Callable[..., Any]]:
    """Callables that read and write their arguments and the buffer."""

    def reads_buffer(x, y):
        x.add_(y)
        return state.buffer.sum() + x

    def writes_buffer(x, y):
        y.mul_(0.5)
        state.buffer.add_(0.25)
        return x * 2

    def branches(x, y):
        if y.sum() > 3:
            x.mul_(0.5)
        else:
            x.add_(1)
        return x + y, x

    def only_reads(x, y):
        return x + y + state.buffer[:WIDTH]

    def reads_late(x, y):
        x[1:].copy_(y[:3].clone() * 0.5)
        state.buffer[2:6].sub_(0.1)
        return x + 0, state.buffer[:2]

    def writes_on_one_way(x, y):
        if y[0] > 1:
            state.buffer.mul_(0.5)
            return x + state.buffer[:WIDTH]
        return x * 1

    def reads_values(x, y):
        x.mul_(0.5).clamp_(0, 1).round_()
        return y * x.tolist()[0]

    return [
        reads_buffer, writes_buffer, branches, only_reads, reads_late, writes_on_one_way, reads_values,
    ]  # fmt: skip


def rearrange(worlds: tuple[World, World], dice: random.Random) -> None:
    """Sometimes: other storages, another buffer, the buffer among the storages, memory rebound in place."""
    what, which = dice.randrange(60), dice.randrange(3)
    for world in worlds:
        if what == 0:
            world.storages[which] = world.storages[which].clone()
        elif what == 1:
            world.state.buffer = world.storages[which]
        elif what == 2:
            world.state.buffer = torch.arange(8.0, device=world.state.buffer.device)
        elif what == 3:
            world.storages[0].data = world.storages[0].data.clone()
        elif what == 4:
            world.state.buffer.data = world.storages[which].data
        for tensor in (*world.storages, world.state.buffer):
            tensor.clamp_(-5, 5)


def assert_agree(worlds: tuple[World, World], found: list[Any], expected: list[Any], what: Any) -> None:
    for mine, right in zip(found, expected, strict=True):
        assert torch.equal(mine, right), what
    for mine, right in zip(worlds[0].tensors(), worlds[1].tensors(), strict=True):
        assert torch.equal(mine, right), what


def attempt(fn: Callable[..., Any], world: World, places: Any) -> tuple[list[torch.Tensor], str]:
    """The parts of the result, or how the call failed (writes between overlapping views do)."""
    try:
        with torch.no_grad():
            value = fn(*map(world.argument, places))
    except RuntimeError as error:
        return [], str(error)
    return (list(value) if isinstance(value, tuple) else [value]), ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(16))
def test_shared_memory(device, seed):
    dice = random.Random(seed)
    worlds = World(device), World(device)
    chosen = dice.sample(range(7), 3)
    graphed = [
        rote.graph(programs(worlds[0].state)[n], max_recordings=dice.choice([2, 8, 32])) for n in chosen
    ]
    plain = [programs(worlds[1].state)[n] for n in chosen]
    usual = [tuple((dice.randrange(4), dice.randrange(5)) for _ in range(2)) for _ in range(4)]
    for turn in range(TURNS):
        rearrange(worlds, dice)
        which, places = dice.randrange(3), dice.choice(usual)
        if dice.random() < 0.1:
            places = tuple((dice.randrange(4), dice.randrange(5)) for _ in range(2))
        found, error = attempt(graphed[which], worlds[0], places)
        expected, right = attempt(plain[which], worlds[1], places)
        assert error == right
        assert_agree(worlds, found, expected, (seed, turn, chosen[which], places))
        for world, values in zip(worlds, (found, expected), strict=True):
            if values and values[0].shape == (WIDTH,):
                world.results = [*world.results[-2:], values[0]]
    assert sum(g.report().replayed for g in graphed) > 0
