"""What a call leaves outside whose recording comes to nothing: no replay of another recording writes it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import rote
from rote.testing import assert_same

from .test_other_lengths import copied

WIDTH = 4
LENGTHS = [3] * 6 + [1, 1, 3, 2, 3, 1, 2, 3, 3]


def as_it_is(kept, n, x, weight):
    """No operation shows it."""
    kept.items[n] = x


def as_an_item(kept, n, x, weight):
    kept.items[n] = x.exp()


def in_a_list(kept, n, x, weight):
    kept.parts.append((x.exp(), x * n))


def as_an_attribute(kept, n, x, weight):
    setattr(kept, f"of_{n}", (x.exp() + n)[0])


def with_a_history(kept, n, x, weight):
    """What its graph has saved counts as well."""
    kept.items[n] = ((x @ weight).sin() * x).square().sum()


def before_it_raises(kept, n, x, weight):
    kept.items[n] = x.exp()
    raise ValueError("not with this one")


LEAVE = (as_it_is, as_an_item, in_a_list, as_an_attribute, with_a_history, before_it_raises)


def play(leave, device, wrap):
    """Calls at several lengths, the first of which leaves something behind; what there is after each."""
    weight = torch.linspace(-1, 1, WIDTH * WIDTH, device=device).view(WIDTH, WIDTH).requires_grad_()
    kept, met, seen = SimpleNamespace(items={}, parts=[]), {3}, []

    @wrap
    def step(x):
        n = len(x)
        y = (x @ weight.detach()).tanh()
        z = y * 2 + x
        if n not in met:
            met.add(n)
            leave(kept, n, z, weight)
        return (y + 1).exp().sum(), y * n

    for number, n in enumerate(LENGTHS):
        x = torch.linspace(-1, 1, n * WIDTH, device=device).view(n, WIDTH) * (number + 1)
        try:
            found = [each.clone() for each in step(x)]
        except ValueError as error:
            found = str(error)
        left = [each for _, each in sorted(vars(kept).items())]
        gradients = [
            torch.autograd.grad(each, weight, retain_graph=True)[0]
            for each in kept.items.values()
            if each.requires_grad
        ]
        seen.append((found, copied(left), gradients))
    return seen, step


@pytest.mark.parametrize("leave", LEAVE)
def test_it_stays_what_it_was(device, leave):
    expected, _ = play(leave, device, lambda step: step)
    found, graphed = play(leave, device, rote.graph)
    for number, (now, was) in enumerate(zip(found, expected, strict=True)):
        assert_same(now, was, f"call {number}")
    assert graphed.report().replayed >= 3, graphed.explain()
    graphed.reset()
