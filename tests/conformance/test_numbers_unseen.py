"""A number that C reads from a tensor and no Python code gets: what C goes by is a condition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import rote
from rote.testing import assert_same

LIST = list(range(40))
CALLS = 24
OTHERS = (16, 20)
"""Calls in which the last number is another one."""


def _played(step: Callable[..., Any], device: torch.device) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for number in range(CALLS):
        classes = torch.tensor([number % 5, 3, 4, 5, 9 if number in OTHERS else 11])
        try:
            found.append(step(classes.to(device), torch.randn(3, generator=generator).to(device)))
        except (RuntimeError, TypeError) as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    "step",
    [
        lambda x, y: (F.one_hot(x).shape, y.sum().item()),
        lambda x, y: (F.one_hot(x, num_classes=-1).sum(0), y.sum().item()),
        lambda x, y: (LIST[2 : x[4]], y.sum().item()),
        lambda x, y: (LIST[: x[0]], y.sum().item()),
        lambda x, y: (LIST[x[4]], y.sum().item()),
        lambda x, y: (torch.zeros(x[4]).shape, y.sum().item()),
        lambda x, y: (torch.zeros(2, x[4]).shape, y.sum().item()),
        lambda x, y: (x.new_ones(1).expand(x[4], 1).shape, y.sum().item()),
        lambda x, y: (len(range(x[4])), y.sum().item()),
        lambda x, y: ("%d" % x[4], y.sum().item()),  # noqa: UP031
        lambda x, y: (hex(x[4]), y.sum().item()),
        lambda x, y: ([0] * x[4], y.sum().item()),
        lambda x, y: (math.ceil(x[4] / 2), y.sum().item()),
        lambda x, y: (sum(map(int, x[3:])), y.sum().item()),
        lambda x, y: (max(map(Tensor.item, x)), y.sum().item()),
        lambda x, y: (next(filter(None, map(float, x[4:] - 9)), None), y.sum().item()),
        lambda x, y: (sorted((x, x * 0 + 10), key=Tensor.tolist)[0], y.sum().item()),
        lambda x, y: (sum(x.tolist()), [*map(Tensor.tolist, (x, x[3:]))], y.tolist()),
        lambda x, y: (*map(int, x[3:]), y.sum().item()),
    ],
)
def test_a_number_that_no_code_gets(device, step):
    """The line reads another number as well, which changes with each call and is followed."""
    assert_same(_played(rote.graph(step, keep=True), device), _played(step, device))


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("count", [12, 40])
def test_classes_are_no_condition(device, reads, count):
    """``one_hot`` refuses some numbers; which of the others they are matters to the tensors alone."""

    def step(x: Tensor, y: Tensor) -> Any:
        columns = F.one_hot(x, count) * y.sum()
        return columns, y.mean().item() if reads else None

    g = rote.graph(step, keep=True)
    assert_same(_played(g, device), _played(step, device))
    assert g.report().replayed >= CALLS // 2
    for wrong in (-1, count):
        classes = torch.tensor([0, wrong, 3, 4, 5])
        with pytest.raises(RuntimeError, match="Class values must be"):
            g(classes, torch.ones(3))


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_a_way_behind_a_number_that_no_code_gets(device):
    """A call that leaves the known ways follows what has run, and comes to such a read again."""
    table = torch.zeros(12, 3)

    def step(x: Tensor, y: Tensor) -> Any:
        count = F.one_hot(x, 12).sum(0)
        empty = (count < x[0] % 3).nonzero().flatten()
        table[empty] = y
        return y.sum().item(), len(empty)

    found = _played(rote.graph(step, keep=True), device), table.clone()
    table.zero_()
    assert_same(found, (_played(step, device), table))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.one_hot(input=x, num_classes=13),
        lambda x: F.one_hot(x.view(5, 1).t(), 13),
        lambda x: F.one_hot(x, True),
        lambda x: F.one_hot(x, 0),
        lambda x: F.one_hot(x, -2),
        lambda x: F.one_hot(x - 5),
        lambda x: F.one_hot(x[:0], 4),
        lambda x: F.one_hot(x[:0]),
        lambda x: F.one_hot(x.int(), 13),
        lambda x: F.one_hot(x[0], torch.tensor(13)),
        lambda x: torch.func.vmap(lambda each: F.one_hot(each, 13))(x),
        lambda x: torch.func.vmap(lambda each: F.one_hot(each))(x),
    ],
)
def test_classes_in_all_forms(device, call):
    def step(x: Tensor, _: Tensor) -> Any:
        return call(x)

    assert_same(_played(rote.graph(step, keep=True), device), _played(step, device))


class Version:
    def __init__(self, text: str) -> None:
        self.parts = tuple(map(int, text.split(".")))


@pytest.mark.parametrize(
    "use",
    [
        lambda s: Version("2.11.0").parts > (2, 5),
        lambda s: tuple(map(str.strip, ["a ", " b"])),
        lambda s: [sum(pair) for pair in itertools.combinations([1, 2, 3], 2)],
        lambda s: [*itertools.permutations("ab")],
        lambda s: {k: v for k, v in zip("ab", map(len, ("c", "dd")), strict=True)},
        lambda s: list(map(frozenset, [["a"], ["b", "a"]])),
    ],
)
def test_code_that_holds_no_followed_number_is_no_condition(device, use):
    state = SimpleNamespace(count=0, rate=1.0)

    def step(x: Tensor, y: Tensor) -> Any:
        state.count += 1
        state.rate *= 0.99
        shown = use(state)
        return shown, y * state.rate / state.count

    g = rote.graph(step, keep=True)
    found = _played(g, device), vars(state).copy()
    vars(state).update(count=0, rate=1.0)
    assert_same(found, (_played(step, device), vars(state)))
    assert g.report().replayed >= CALLS // 2


@pytest.mark.parametrize(
    "use",
    [
        lambda s: tuple(map(int, (s.count // 7, s.rate))),
        lambda s: [*map(str, [s.count // 5])],
        lambda s: [max(pair) for pair in itertools.combinations([s.count // 5, 2, 1], 2)],
        lambda s: list(map(bool, (s.count > 7, 0))),
        lambda s: list(map(len, ["a" * (s.count // 6)])),
        lambda s: list(map(int, str(s.count // 3))),
        lambda s: list(map(int, (n for n in (s.count // 7, 1)))),
        lambda s: list(map(int, map(float, [s.count // 7]))),
        lambda s: sorted(map(frozenset, [[s.count // 7], [1]]), key=len),
    ],
)
def test_a_followed_number_that_c_maps(device, use):
    state = SimpleNamespace(count=0, rate=1.0)

    def step(x: Tensor, y: Tensor) -> Any:
        state.count += 1
        state.rate *= 0.99
        return use(state), y * state.rate

    found = _played(rote.graph(step, keep=True), device), vars(state).copy()
    vars(state).update(count=0, rate=1.0)
    assert_same(found, (_played(step, device), vars(state)))
