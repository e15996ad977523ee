"""Tensors that a callable keeps by the order of their use: an ``OrderedDict`` whose oldest member goes."""

from __future__ import annotations

import random
from collections import OrderedDict

import pytest
import torch

import rote

CALLS = 60


class Recent:
    """Keeps what was computed last, under a few names."""

    def __init__(self, steps, size):
        self.steps, self.size = steps, size
        self.kept = OrderedDict()

    def __call__(self, x, name):
        for step in self.steps:
            x = getattr(self, step)(x, name)
        return x

    def put(self, x, name):
        self.kept[name] = x * 2
        self.kept.move_to_end(name)
        return x + 1

    def shorten(self, x, name):
        while len(self.kept) > self.size:
            self.kept.popitem(last=False)
        return x

    def look(self, x, name):
        if name in self.kept:
            self.kept.move_to_end(name)
            return x + self.kept[name]
        return x

    def compute(self, x, name):
        if name not in self.kept:
            self.kept[name] = x.cos()
        return x * self.kept[name]

    def oldest(self, x, name):
        return x + next(iter(self.kept.values())) if self.kept else x

    def take(self, x, name):
        return x - self.kept.pop(name) if name in self.kept else x

    def first(self, x, name):
        if self.kept:
            self.kept.move_to_end(next(iter(self.kept)))
        return x


def _run(steps, size, names, device, seed=0):
    """Call it plain and graphed; how many calls were replayed."""
    dice = random.Random(seed)
    plain, graphed = Recent(steps, size), Recent(steps, size)
    act = rote.graph(graphed, keep=True)
    earlier = []
    for call in range(CALLS):
        x, name = torch.full((2,), dice.uniform(-1, 1), device=device), dice.choice(names)
        found = act(x, name)
        assert torch.equal(found, plain(x, name)), call
        assert list(graphed.kept) == list(plain.kept), call
        assert all(map(torch.equal, graphed.kept.values(), plain.kept.values())), call
        earlier.append((found, found.clone()))
        if dice.random() < 0.05:
            for each in (plain, graphed):
                each.kept.clear()
    assert all([torch.equal(one, other) for one, other in earlier])
    return act.report().replayed


@pytest.mark.parametrize(
    "steps", [("put",), ("put", "shorten"), ("look", "put"), ("put", "look", "shorten")], ids="-".join
)
def test_it_is_replayed(device, steps):
    assert _run(steps, 2, "a", device) >= CALLS // 2


def test_two_names_in_turn(device):
    recent = Recent(("put", "shorten"), 1)
    act = rote.graph(lambda x: recent(recent(x, "a"), "b"))
    for call in range(CALLS):
        assert act(torch.full((2,), float(call), device=device)).tolist() == [call + 2.0] * 2
        assert list(recent.kept) == ["b"] and recent.kept["b"].tolist() == [2 * (call + 1.0)] * 2
    assert act.report().replayed >= CALLS // 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(48))
def test_random_uses(device, seed):
    dice = random.Random(seed)
    every = ("put", "shorten", "look", "compute", "oldest", "take", "first")
    steps = tuple(dice.choice(every) for _ in range(dice.randrange(1, 5)))
    _run(steps, dice.randrange(1, 4), "abcd"[: dice.randrange(1, 5)], device, seed)
