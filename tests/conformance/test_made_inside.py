"""Objects that a call makes: a class without a constructor of its own is made by that of its base in C."""

from __future__ import annotations

import _lsprof
from collections import OrderedDict, deque

import pytest
import torch

import rote


class Bare:
    scale = 2


class Slotted:
    __slots__ = ("scale",)


class Mixin:
    pass


class Listed(Mixin, list):
    pass


class Named(dict):
    pass


class Ordered(OrderedDict):
    pass


class Number(int):
    pass


class Queue(deque):
    pass


class Pair(tuple):
    __slots__ = ()


class Timer(_lsprof.Profiler):
    """Made by a class in C of which nothing is known."""


def slotted(x):
    made = Slotted()
    made.scale = 2
    return x * made.scale


MADE = [
    lambda x: x * Bare().scale, slotted, lambda x: x * Listed([2])[0], lambda x: x * Named(a=2)["a"],
    lambda x: x * Ordered(a=2)["a"], lambda x: x * Number(2), lambda x: x * Queue([1, 2]).pop(),
    lambda x: x * Pair((2, 3))[0],
]  # fmt: skip


@pytest.mark.parametrize("fn", MADE)
def test_it_replays(device, fn):
    g, x = rote.graph(fn), torch.ones(3, device=device)
    for _ in range(8):
        assert torch.equal(g(x), x * 2)
    assert g.report().replayed == 6, g.explain()


def test_what_it_is_given_is_read(device):
    given = [2]
    g, x = rote.graph(lambda x: x * Listed(given)[0]), torch.ones(3, device=device)
    for n in (2, 2, 2, 2, 3, 3):
        given[0] = n
        assert torch.equal(g(x), x * n)
    assert g.report().replayed >= 2, g.explain()


def test_of_a_base_that_is_not_known(device, reason):
    g, x = rote.graph(lambda x: (Timer(), x * 2)[1]), torch.ones(3, device=device)
    for _ in range(8):
        assert torch.equal(g(x), x * 2)
    assert g.report().replayed == 0
    assert "_lsprof.Profiler, of which nothing is known" in reason(g, "RT218").message
