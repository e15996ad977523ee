"""What a function keeps without looking like it: defaults that are changed, iterators that are advanced."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from ..case import Group

group = Group()


def _x(*shape, device):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device)


@group
def a_default_that_grows(device):
    def fn(x, seen=[]):  # noqa: B006
        seen.append(1)  # wrong
        return x * len(seen)  # wrong

    return fn, (_x(4, device=device),)


@group
def a_default_that_counts(device):
    def fn(x, *, table={"calls": 0}):  # noqa: B006
        table["calls"] += 1  # wrong
        return x * table["calls"]  # wrong

    return fn, (_x(4, device=device),)


@group
def a_default_that_is_read(device):
    def fn(x, weights=[0.5, 2.0]):  # noqa: B006
        return x * weights[0] + weights[1]

    return fn, (_x(4, device=device),)


@group
def a_schedule_of_equal_values_at_first(device):
    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = iter([0.5] * 5 + [2.0] * 10_000)

        def forward(self, x):
            return x * next(self.factors)  # wrong

    return Scheduled(), (_x(4, device=device),)


@group
def a_generator_in_a_table(device):
    table = {"warm": (n / 10 for n in itertools.count())}

    def fn(x):
        return x * next(table["warm"])  # wrong

    return fn, (_x(4, device=device),)


@group
def a_loop_over_a_generator_of_the_module(device):
    class Looped(nn.Module):
        def __init__(self):
            super().__init__()
            self.rounds = (n / 10 for n in itertools.count())

        def forward(self, x):
            for n in self.rounds:  # wrong
                return x + n  # wrong

    return Looped(), (_x(4, device=device),)


@group
def iterators_made_in_the_call(device):
    values = [1.0, 2.0, 3.0]

    def fn(x):
        first = next(iter(values))
        for number, (a, b) in enumerate(zip(values, reversed(values), strict=True)):
            x = x * a + b + number
        return x * first

    return fn, (_x(4, device=device),)
