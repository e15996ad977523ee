"""Numbers in named tuples that calls put anew by operators of their class, whose code is followed."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

import rote

CALLS = 30


class Pose(NamedTuple):
    x: int
    y: float

    def __add__(self, other):
        return Pose(self.x + other.x, self.y + other.y)

    def __sub__(self, other):
        return Pose(self.x + 1, other.y) if self.x < 20 else Pose(0, self.y * 2)

    def __mul__(self, other):
        return Pose(self[0] + 1, sum(other))

    def __matmul__(self, other):
        return NotImplemented

    def __or__(self, other):
        return Pose(max(self), min(other) + 1)

    def __xor__(self, other):
        return Pose(hash(self) % 7, float(str(other.y)))

    def __and__(self, other):
        return Pose(self.x + 1, self.y + (2.0 if self == other else 1.0))


class Joined(NamedTuple):
    x: int
    y: float

    def __add__(self, other):
        return NotImplemented


class Changed(Pose):
    def __iadd__(self, other):
        return Changed(self.x * 2 + 1 if self.x < 1000 else 0, self.y)


def added(p, q):
    return p + q


def added_in_place(p, q):
    p += q
    return p


def joined(p, q):
    both = Joined(*p) + Joined(*q)
    return Pose(both[0] + both[2], both[1] + both[3])


PROGRAMS = {
    "add": added,
    "sub": lambda p, q: p - q,
    "in place": added_in_place,
    "not implemented": joined,
    "sum of members": lambda p, q: p * q,
    "refused": lambda p, q: p @ q,
    "greatest": lambda p, q: p | q,
    "hashed": lambda p, q: p ^ q,
    "compared": lambda p, q: p & q,
    "in its own way": lambda p, q: Pose(*added_in_place(Changed(*p), Changed(*q))),
    "by another": lambda p, q: p + SimpleNamespace(x=1, y=2.0),
    "of a derived class": lambda p, q: Pose(*(Changed(*p) + q)),
    "turned": lambda p, q: q + p,
    "by a function": lambda p, q: operator.add(p, q),
}
REPLAYED = ("add", "in place", "turned")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_call_leaves_the_value_that_it_would(device, name):
    def make():
        state = SimpleNamespace(at=Pose(0, 0.5))

        def step(x):
            state.at = PROGRAMS[name](state.at, Pose(1, 2.0))
            return x * state.at.x + state.at.y

        return step, state

    (eager, of_eager), (step, state) = make(), make()
    graphed = rote.graph(step)
    for number in range(CALLS):
        x, found = torch.full((2,), float(number), device=device), []
        for call in (eager, graphed):
            try:
                found.append(call(x).tolist())
            except TypeError as error:
                found.append(repr(error))
        assert found[0] == found[1] and repr(state.at) == repr(of_eager.at), number
        if number % 11 == 10:
            state.at = of_eager.at = Pose(number, 0.25)
    if name in REPLAYED:
        assert graphed.report().replayed >= CALLS // 3, graphed.explain()


def test_a_class_that_gets_another_operator(device):
    class Vector(NamedTuple):
        x: int

        def __add__(self, other):
            return Vector(self.x + other.x)

    state = SimpleNamespace(at=Vector(0))

    @rote.graph
    def step(x):
        state.at = state.at + Vector(1)
        return x * state.at.x

    for number in range(20):
        assert step(torch.ones(2, device=device)).tolist() == [number + 1.0] * 2
    assert step.report().replayed >= 8, step.explain()
    Vector.__add__ = lambda self, other: Vector(self.x - other.x)
    for number in range(12):
        assert step(torch.ones(2, device=device)).tolist() == [19.0 - number] * 2
