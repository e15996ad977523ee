"""Numbers that change and are looked for among others: in a list, a dict or a set, or by bisection."""

from __future__ import annotations

import bisect
from collections import Counter, OrderedDict, deque

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import rote

CALLS = 70
AMONG = {
    "list": [3, 30], "tuple": (3, 30), "dict": {3: 0.5, 30: 2.0}, "set": {3, 30},
    "frozenset": frozenset({3, 30}), "Counter": Counter([3, 30]), "deque": deque([3, 30]),
    "OrderedDict": OrderedDict({3: 1, 30: 2}), "floats": [3.0, 30.0], "nothing": [],
}  # fmt: skip


class Stepper:
    """Counts, and does something else where its count is marked."""

    def __init__(self, among) -> None:
        self.count, self.among = 0, among

    def found(self, x):
        self.count += 1
        return x * self.count if self.count in self.among else x + self.count

    def place(self, x):
        self.count += 1
        return (
            x * bisect.bisect(self.among, self.count)
            + bisect.bisect_left(self.among, self.count)
            - self.count
        )


def both(method, among, device, change=None):
    """The same calls, plainly and graphed; ``change`` is done to both in the middle."""
    plain, graphed = Stepper(among()), Stepper(among())
    g = rote.graph(getattr(graphed, method))
    for number in range(CALLS):
        if number == 44 and change is not None:
            change(plain), change(graphed)
        x = torch.full((2,), float(number), device=device)
        assert g(x).equal(getattr(plain, method)(x)), number
    return g


@pytest.mark.parametrize("kind", AMONG)
def test_a_count_that_is_looked_for(device, kind):
    g = both("found", lambda: type(AMONG[kind])(AMONG[kind]), device)
    assert g.report().replayed >= CALLS - 20, g.explain()


@pytest.mark.parametrize("change", [
    lambda each: each.among.append(50), lambda each: each.among.remove(30),
    lambda each: setattr(each, "among", [60, 61]), lambda each: each.among.__setitem__(0, 49),
])  # fmt: skip
@pytest.mark.parametrize("method", ["found", "place"])
def test_what_it_is_looked_for_in_changes(device, method, change):
    both(method, lambda: [3, 30], device, change)


def test_a_place_in_a_row(device):
    assert both("place", lambda: [3, 30, 31], device).report().replayed >= CALLS - 24


@pytest.mark.parametrize("values", [[float("nan"), 2.0], [5, 1]], ids=["nan", "unsorted"])
def test_a_row_without_an_order(device, values):
    both("place", lambda: list(values), device)


def test_a_number_that_is_not_equal_to_itself(device):
    def fn(x, t):
        return x * bisect.bisect([1.0, 5.0], t) + (t in [2.0, 3.0])

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for number in range(40):
        t = float("nan") if number % 7 == 6 else number * 0.25
        assert g(x, t).equal(fn(x, t)), number


SCHEDULERS = {
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=5), lr_scheduler.CosineAnnealingLR(o, 50)], [5]
    ),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [10, 30]),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedules_with_milestones(device, kind):
    def run(wrap):
        torch.manual_seed(0)
        layer = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.5)
        schedule, found = SCHEDULERS[kind](optimizer), []

        def step(x):
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()
            schedule.step()

        step = wrap(step)
        for number in range(CALLS):
            step(torch.full((3, 4), 0.01 * number, device=device))
            found.append((schedule.get_last_lr(), [each.tolist() for each in layer.parameters()]))
        return step, found

    g, found = run(rote.graph)
    assert found == run(lambda step: step)[1]
    assert g.report().replayed >= CALLS - 30, g.explain()
