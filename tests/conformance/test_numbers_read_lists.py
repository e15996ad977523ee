"""Numbers that a call reads from a tensor all at once (``tolist()``): kept, computed with, and looked at."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 24


def played(make, device, wrap):
    torch.manual_seed(0)
    step, kept, seen = *make(device), []
    graphed = wrap(step)
    for n in range(CALLS):
        x = torch.randn(6, 3).to(device) * (1 + n % 3)
        seen.append([graphed(x), [list(each) if isinstance(each, list) else each for each in kept]])
    return seen


def checked(make, device, **options):
    graphs = []

    def wrap(step):
        graphs.append(rote.graph(step, keep=True, **options))
        return graphs[0]

    assert_same(played(make, device, wrap), played(make, device, lambda step: step))
    return graphs[0].report()


def predictions(device):
    """As predictions of an epoch are collected."""
    labels, scores = [], []

    @torch.no_grad()
    def step(x):
        labels.extend(x.argmax(1).tolist())
        scores.append(x.max(1).values.tolist())
        return (x.argmax(1) == 0).sum().item()

    return step, [labels, scores]


def returned(device):
    return lambda x: x.sum(1).tolist(), []


def averaged(device):
    history = []

    def step(x):
        first, *others = x.sum(1).tolist()
        history.append((first + others[0]) / 2)
        return {"last": others[-1], "scaled": [each * 2 for each in others]}

    return step, [history]


def followed_by_operations(device):
    def step(x):
        one, other, *_ = x.sum(1).tolist()
        return x * one + other

    return step, []


def counted(device):
    total = [0.0]

    def step(x):
        for each in x.sum(1).tolist():
            total[0] += each
        return total[0]

    return step, [total]


@pytest.mark.parametrize("make", [predictions, returned, averaged, followed_by_operations, counted])
def test_lists_are_followed(device, make):
    report = checked(make, device)
    assert report.replayed >= CALLS // 2, report.reasons


LOOKS = [
    lambda read, x: x[read[0] > 0],
    lambda read, x: x[int(read[0]) % 3],
    lambda read, x: sorted(read),
    lambda read, x: (max(read), min(read), sum(read), len(read)),
    lambda read, x: [each for each in read if each > 0],
    lambda read, x: set(map(round, read)),
    lambda read, x: str(read),
    lambda read, x: f"{read[0]:.2f} {read}",
    lambda read, x: torch.tensor(read) + 1,
    lambda read, x: x.new_tensor(read[:2]),
    lambda read, x: numpy.array(read).sum(),
    lambda read, x: numpy.mean(read),
    lambda read, x: read.index(max(read)),
    lambda read, x: read.sort() or read,
    lambda read, x: read[::-1] + read,
    lambda read, x: dict(enumerate(read)),
    lambda read, x: math.fsum(read),
    lambda read, x: x.repeat(1 + int(abs(read[0])), 1),
    lambda read, x: [x * each for each in read[:2]],
    lambda read, x: read.pop() + len(read),
    lambda read, x: read == sorted(read),
    lambda read, x: torch.split(x, [2, 4])[0] * read[1],
    lambda read, x: (read.append(7.0), read)[1],
    lambda read, x: x.sum(1).tolist() + read,
    lambda read, x: read[0] if read[0] > read[1] else read[1],
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("whole", [False, True])
def test_lists_are_looked_at(device, look, whole):
    def make(device):
        def step(x):
            read = x.sum(1).round().long() % 4 if whole else x.sum(1)
            return look(read.tolist(), x)

        return step, []

    checked(make, device)


def test_numbers_that_are_none_are_not_followed(device):
    def make(device):
        kept = []

        def step(x):
            kept.append((x[:, 0] / (x[:, 0] > 0)).log().tolist())
            return x + 1

        return step, [kept]

    checked(make, device)


@pytest.mark.parametrize("length", [1, 64, 65])
def test_lists_of_all_lengths(device, length):
    def make(device):
        kept = []

        def step(x):
            kept.append((x.sum() * torch.arange(length, device=x.device)).tolist())
            return x + 1

        return step, [kept]

    report = checked(make, device)
    assert (report.replayed >= CALLS // 2) is (length <= 64), report.reasons
