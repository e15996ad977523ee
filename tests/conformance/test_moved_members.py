"""Containers of tensors whose members a call moves, and containers that the call reaches in two ways."""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace

import pytest
import torch

import rote
from rote.testing import assert_same

SIZE = 4


class Frames:
    """A policy of the last frames, and the container in which it keeps them."""

    def __init__(self, device, kind):
        self.weight = torch.arange(16.0).reshape(4, 4).to(device) / 10
        self.kind = kind
        self.frames = self.made()

    def made(self):
        frames = [torch.zeros_like(self.weight[0]) for _ in range(SIZE)]
        if self.kind == "dict":
            return {"image": frames}
        return deque(frames, maxlen=SIZE) if self.kind == "maxlen" else frames

    def held(self):
        return self.frames["image"] if self.kind == "dict" else self.frames

    @torch.no_grad()
    def __call__(self, x):
        frames = self.held()
        if self.kind == "maxlen":
            frames.append(x)
        elif self.kind == "left":
            frames.insert(0, x)
            frames.pop()
        elif self.kind == "deleted":
            del frames[0]
            frames += [x * 2]
        elif self.kind == "sorted":
            frames[:] = [*frames[1:], x]
        else:
            frames.append(x)
            frames.pop(0)
        return torch.stack([*frames]).sum(0) @ self.weight


@pytest.mark.parametrize("kind", ["maxlen", "left", "deleted", "sorted", "list", "dict"])
def test_the_last_frames(device, kind):
    plain, graphed = Frames(device, kind), Frames(device, kind)
    g = rote.graph(graphed, keep=True)
    for n in range(40):
        x = torch.full((4,), float(n), device=device)
        y = x.clone()
        held = graphed.held()
        assert_same(g(y), plain(x))
        assert graphed.held() is held
        assert_same([*held], [*plain.held()])
        assert [each is y for each in held] == [each is x for each in plain.held()]
        if n % 15 == 14:  # an episode begins
            plain.frames, graphed.frames = plain.made(), graphed.made()
        if n % 9 == 8:  # what lies there is the caller's own
            plain.held()[1].add_(1), graphed.held()[1].add_(1)
    assert g.report().replayed >= 32, g.explain()


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_a_deque_among_the_arguments(device, limit):
    def step(x, seen):
        seen.append(x * 2)
        return torch.stack([*seen]).sum(0) * (seen.maxlen or 7)

    g = rote.graph(step, keep=True)
    for n in range(12):
        x = torch.full((3,), float(n), device=device)
        mine, theirs = deque([x + 1], maxlen=limit), deque([x + 1], maxlen=limit)
        assert_same(g(x, mine), step(x, theirs))
        assert_same([*mine], [*theirs])
    assert g.report().replayed == 10, g.explain()


def test_deques_of_other_lengths_and_limits(device):
    g = rote.graph(lambda seen: torch.stack([*seen]).sum(0) * (seen.maxlen or 7), keep=True)
    for n in range(48):
        x = torch.full((3,), float(n), device=device)
        given = deque([x] * (1 + n % 2), maxlen=[None, 3, 4][n % 3])
        assert_same(g(given), x * (1 + n % 2) * [7, 3, 4][n % 3])
    assert g.report().replayed >= 30


def test_a_long_deque_is_one_object(device):
    """It is the buffer of something: to take it apart would take longer than the call."""
    buffer = deque([torch.zeros(2, device=device) for _ in range(500)], maxlen=500)
    g = rote.graph(lambda x, kept: x + kept[0] + len(kept), keep=True)
    for n in range(8):
        x = torch.full((2,), float(n), device=device)
        buffer[0] = x + 1
        assert_same(g(x, buffer), x + x + 1 + 500)


def test_the_result_is_a_deque(device):
    g = rote.graph(lambda x: deque([x + 1, x * 2], maxlen=5), keep=True)
    results = [g(torch.full((2,), float(n), device=device)) for n in range(6)]
    for n, found in enumerate(results):
        assert type(found) is deque and found.maxlen == 5
        assert [each[0].item() for each in found] == [n + 1.0, n * 2.0]
    assert g.report().replayed == 4


# ---------------------------------------------------------------------- a container in two places


CONTAINERS = {
    "list": lambda x: [x, x + 1],
    "deque": lambda x: deque([x, x + 1]),
    "dict": lambda x: {0: x, 1: x + 1},
    "namespace": lambda x: SimpleNamespace(first=x, second=x + 1),
}


def get(container, place):
    return vars(container)[["first", "second"][place]] if is_object(container) else container[place]


def put(container, place, value):
    if is_object(container):
        setattr(container, ["first", "second"][place], value)
    else:
        container[place] = value


def is_object(container):
    return isinstance(container, SimpleNamespace)


WAYS = {
    "writes the argument": lambda o, x, q: (put(q, 0, x * 2), get(o.q, 0) + get(o.q, 1))[1],
    "writes the state": lambda o, x, q: (put(o.q, 0, x * 2), get(q, 0) + get(q, 1))[1],
    "compares": lambda o, x, q: x + (1 if q is o.q else 2) + get(q, 0),
    "reads both": lambda o, x, q: get(q, 0) * 2 + get(o.q, 0) + x,
    "stores": lambda o, x, q: (setattr(o, "q", q), get(o.q, 1) * x)[1],
    "moves": lambda o, x, q: (put(q, 1, get(o.q, 0)), put(o.q, 0, x * 3), get(q, 0) + get(q, 1))[2],
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keep", [True, False])
def test_an_argument_that_lies_outside_too(device, kind, way, keep):
    """A call finds its argument outside in some calls, and another container there in others."""
    make, run = CONTAINERS[kind], WAYS[way]
    plain, graphed = (SimpleNamespace(q=make(torch.zeros(2, device=device))) for _ in range(2))
    g = rote.graph(lambda x, q: run(graphed, x, q), keep=keep)
    chance = random.Random(f"{kind} {way}")
    for n in range(40):
        x = torch.full((2,), float(n), device=device)
        alike = chance.random() < 0.6
        theirs = plain.q if alike else make(x + 5)
        mine = graphed.q if alike else make(x + 5)
        if chance.random() < 0.3:
            plain.q, graphed.q = (theirs, mine) if chance.random() < 0.5 else (make(x + 7), make(x + 7))
        assert_same(g(x.clone(), mine), run(plain, x, theirs))
        for one, other in ((mine, theirs), (graphed.q, plain.q)):
            assert_same([get(one, 0), get(one, 1)], [get(other, 0), get(other, 1)])
        assert (mine is graphed.q) == (theirs is plain.q)


def test_state_that_lies_in_two_slots(device):
    def walk(o, x):
        o.a.append(x)
        o.a.pop(0)
        return torch.cat([*o.b])

    def made(*values):
        return [torch.full((2,), float(value), device=device) for value in values]

    plain, graphed = (SimpleNamespace(a=q, b=q) for q in (made(0, 0), made(0, 0)))
    g = rote.graph(lambda x: walk(graphed, x), keep=True)
    for n in range(60):
        x = torch.full((2,), float(n), device=device)
        for each in (plain, graphed):
            if n % 10 == 9:
                each.a = made(n, n + 1)
            if n % 20 == 17:
                each.a = each.b
            if n % 30 == 24:
                each.b = [*each.a]
        assert_same(g(x.clone()), walk(plain, x))
        assert_same([*graphed.a, *graphed.b], [*plain.a, *plain.b])


def test_a_call_that_raises_leaves_containers_as_plain_does(device):
    def step(x, seen, fails):
        seen.append(x)
        seen.popleft()
        if fails:
            raise ValueError("enough")
        return torch.stack([*seen]).sum(0)

    g = rote.graph(step, keep=True)
    mine, theirs = (deque([torch.zeros(2, device=device)] * 3) for _ in range(2))
    for n in range(30):
        x, fails = torch.full((2,), float(n), device=device), n % 7 == 6 or n == 2
        found = []
        for run, seen in ((g, mine), (step, theirs)):
            try:
                found.append(run(x, seen, fails))
            except ValueError as error:
                found.append(str(error))
        assert_same(*found)
        assert_same([*mine], [*theirs])
    assert g.report().replayed >= 15
