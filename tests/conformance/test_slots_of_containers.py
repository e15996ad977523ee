"""Slots of a container beside its members: a call that changes all members has not written those."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque

import pytest
import torch

import rote
from rote.testing import assert_same

KINDS = {
    "dict": (dict, lambda held: held.pop(0, None)),
    "ordered dict": (OrderedDict, lambda held: held.clear()),
    "list": (list, lambda held: held.clear()),
    "set": (set, lambda held: held.discard(1)),
    "bytearray": (bytearray, lambda held: held.clear()),
    "deque": (deque, lambda held: held.rotate(1)),
    "user dict": (UserDict, lambda held: held.clear()),
}
NOT_FOLLOWED = {"deque"}


def container(kind):
    class Slotted(KINDS[kind][0]):
        __slots__ = ("gain", "left")

    held = Slotted()
    held.gain, held.left = 1.0, 0
    return held, KINDS[kind][1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_that_is_read(kind, device):
    held, change = container(kind)

    def act(x):
        change(held)
        return x * held.gain

    g = rote.graph(act, keep=True)
    for n in range(24):
        held.gain = float(n // 8 % 2 + 1)
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x * held.gain)
    assert (g.report().replayed >= 8) is (kind not in NOT_FOLLOWED), g.report()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", [False, True], ids=["written", "read and written"])
def test_a_slot_that_is_written(kind, reads, device):
    held, change = container(kind)

    def act(x):
        change(held)
        left = held.left if reads else 0
        held.left = 7
        return x + left

    g = rote.graph(act, keep=True)
    for n in range(24):
        held.left = before = n // 4
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x + before * reads)
        assert held.left == 7


def test_the_factory_of_a_dict(device):
    gain, held = [1.0], defaultdict(lambda: gain[0])

    def act(x):
        held.pop("none", None)
        return x * held.default_factory()

    g = rote.graph(act)
    for n in range(24):
        if n == 8:
            held.default_factory = lambda: 2.0
        gain[0] = 3.0 if n == 16 else gain[0]
        held.default_factory = (lambda: gain[0]) if n == 16 else held.default_factory
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x * held.default_factory())
    assert g.report().replayed >= 8
