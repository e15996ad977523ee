"""Queues of tensors that a callable keeps: filled when they are found empty, and emptied one by one."""

from __future__ import annotations

import random
from collections import deque

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

STEPS = 4


class Chunks:
    """A policy that computes several actions at once."""

    def __init__(self, device):
        self.weight = torch.arange(16.0).reshape(4, 4).to(device) / 10
        self.queue = self.made()

    def made(self):
        return deque(maxlen=STEPS)

    @torch.no_grad()
    def plan(self, x):
        return (x @ self.weight).repeat(STEPS, 1) * torch.arange(1.0, STEPS + 1).to(x.device)[:, None]

    def __call__(self, x):
        if len(self.queue) == 0:
            self.queue.extend(self.plan(x))
        return self.queue.popleft()

    def kept(self):
        return [*self.queue]

    def reset(self):
        self.queue.clear()


class ByTruth(Chunks):
    def __call__(self, x):
        if not self.queue:
            self.queue.extend(self.plan(x).unbind())
        return self.queue.popleft()


class OneByOne(Chunks):
    def __call__(self, x):
        if not self.queue:
            for action in self.plan(x):
                self.queue.append(action)
        return self.queue.popleft()


class InADict(Chunks):
    def made(self):
        return {"action": deque(maxlen=STEPS)}

    def __call__(self, x):
        if len(self.queue["action"]) == 0:
            self.queue["action"].extend(self.plan(x))
        return self.queue["action"].popleft()

    def kept(self):
        return [*self.queue["action"]]

    def reset(self):
        self.queue["action"].clear()


class AList(Chunks):
    def made(self):
        return []

    def __call__(self, x):
        if not self.queue:
            self.queue.extend(self.plan(x))
        return self.queue.pop(0)


class Turned(Chunks):
    def __call__(self, x):
        if not self.queue:
            self.queue.extendleft(self.plan(x))
        return self.queue.pop()


class Whole(Chunks):
    """What was just filled is read as a whole."""

    def __call__(self, x):
        if not self.queue:
            self.queue.extend(self.plan(x))
            self.queue.appendleft(torch.stack([*self.queue]).sum(0))
        return self.queue.popleft() * len(self.queue)


KINDS = [Chunks, ByTruth, OneByOne, InADict, AList, Turned, Whole]


@pytest.mark.parametrize("kind", KINDS)
def test_what_fills_the_queue_replays(device, kind):
    plain, graphed = kind(device), kind(device)
    g = rote.graph(graphed, keep=True)
    filled = 0
    for n in range(60):
        x = torch.full((4,), float(n), device=device)
        filled += not plain.kept()
        one, other = plain(x), g(x.clone())
        assert_same(other, one)
        assert_same(graphed.kept(), plain.kept())
        if n % 7 == 3:  # an action is the caller's own
            one.add_(1), other.add_(1)
        if n % 13 == 12:
            plain.reset(), graphed.reset()
        if n % 11 == 10:
            for each in (*plain.kept(), *graphed.kept()):
                each.mul_(2)
    assert g.report().replayed >= filled - 3, g.report()


def test_an_episode_that_begins_in_the_middle(device):
    """The queue is not empty where calls have found it empty before."""
    plain, graphed = Chunks(device), Chunks(device)
    g = rote.graph(graphed, keep=True)
    chance = random.Random(3)
    for n in range(80):
        x = torch.full((4,), float(n), device=device)
        if chance.random() < 0.5:
            plain.reset(), graphed.reset()
        if chance.random() < 0.2:
            plain.queue.append(x), graphed.queue.append(x)
        assert_same(g(x), plain(x))
        assert_same(graphed.kept(), plain.kept())
    assert g.report().replayed > 10


class Extends(Chunks):
    """It does not ask whether the queue is empty."""

    def __call__(self, x):
        self.queue.extend(self.plan(x)[:2])
        return self.queue.popleft()


class Sees(Chunks):
    """It appends, and reads all there is."""

    def __call__(self, x):
        self.queue.append(x)
        return torch.stack([*self.queue]).sum(0)


@pytest.mark.parametrize("kind", [Extends, Sees])
def test_a_queue_that_is_found_empty_without_being_asked(device, kind):
    """Calls find it empty at first, since the caller empties it each time, and later do not."""
    plain, graphed = kind(device), kind(device)
    g = rote.graph(graphed, keep=True)
    for n in range(40):
        x = torch.full((4,), float(n), device=device)
        if n < 12 or n % 5:
            plain.reset(), graphed.reset()
        assert_same(g(x), plain(x))
        assert_same(graphed.kept(), plain.kept())
    assert g.report().replayed >= 10


def walk(seed):
    """What a callable does to its queue, as a function of the queue and an argument."""
    chance = random.Random(seed)
    fills = {
        "extend": lambda q, x: q.extend([x, x * 2, x * 3]),
        "append": lambda q, x: q.append(x + 1),
        "argument": lambda q, x: q.append(x),
        "left": lambda q, x: q.appendleft(x * 4),
        "clear": lambda q, x: q.clear(),
        "twice": lambda q, x: q.extend([x * 2] * 2),
    }
    reads = {
        "popleft": lambda q, x: q.popleft() if q else x,
        "pop": lambda q, x: q.pop() * 2 if q else x,
        "first": lambda q, x: q[0] + x if len(q) else x,
        "all": lambda q, x: torch.stack([*q]).sum(0) if q else x,
        "length": lambda q, x: x * len(q),
        "written": lambda q, x: q[-1].add_(1) if q else x,
        "rotated": lambda q, x: q.rotate(1) or x,
        "put": lambda q, x: q.__setitem__(0, x * 5) or x if q else x,
    }
    steps = [chance.choice([*fills.values(), *reads.values()]) for _ in range(chance.randint(1, 4))]
    filling = [chance.choice([*fills.values()]) for _ in range(2)]
    only_empty = chance.random() < 0.7

    def run(q, x):
        if only_empty and not q:
            for step in filling:
                step(q, x)
        found = [step(q, x) for step in steps]
        return [x * 2, *[each for each in found if each is not None]]

    return run


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_random_queues(device, seed):
    run, chance = walk(seed), random.Random(seed)
    limit = chance.choice([None, 3, 5])
    plain, graphed = deque(maxlen=limit), deque(maxlen=limit)
    f, g = (lambda x: run(plain, x)), rote.graph(lambda x: run(graphed, x), keep=True)
    kept = []
    for n in range(30):
        x = torch.full((3,), float(n), device=device)
        y = x.clone()
        kept.append((f(x), g(y)))
        for one, other in kept[-6:]:
            assert_same(other, one)
        assert_same([*graphed], [*plain])
        assert [each is x for each in plain] == [each is y for each in graphed]
        if chance.random() < 0.2:
            plain.clear(), graphed.clear()
        if chance.random() < 0.2:
            for one, other in zip(*kept[-1], strict=True):
                one.add_(1), other.add_(1)
        if chance.random() < 0.1:
            plain.append(x), graphed.append(y)


class Slow(nn.Module):
    """Each eighth call makes actions, by a network that is worth a graph; the others take one."""

    def __init__(self, device):
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(40)]
        self.network = nn.Sequential(*layers, nn.Linear(4, 32)).to(device)
        self.queue = deque(maxlen=8)

    @torch.no_grad()
    def forward(self, x):
        x = x / 2
        if not self.queue:
            self.queue.extend(self.network(x).view(8, 4))
        return self.queue.popleft()


def test_calls_that_only_take_from_a_queue_are_left_alone_soon(device):
    plain, graphed = Slow(device), Slow(device)
    g = rote.graph(graphed)
    for n in range(400):
        x = torch.full((4,), float(n % 7), device=device)
        assert_same(g(x), plain(x))
        assert_same([*graphed.queue], [*plain.queue])
    report = g.report()
    assert {each.code for each in report.reasons} >= {"RT308"} and report.recorded <= 1
    assert sum([part.replayed for part in report.parts]) > 10
    g.reset()
    for _ in range(40):
        assert_same(g(torch.ones(4, device=device)), plain(torch.ones(4, device=device)))


def test_two_calls_in_turn_keep_their_recording(device):
    """One that fills the queue, and one that takes from it: the first has a recording of its own."""
    plain, graphed = Slow(device), Slow(device)
    plain.queue, graphed.queue = deque(maxlen=2), deque(maxlen=2)
    g = rote.graph(graphed, keep=False, parts=False)
    for n in range(60):
        x = torch.full((4,), float(n % 7), device=device)
        assert_same(g(x), plain(x))
    assert g.report().replayed > 10
