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


@pytest.mark.parametrize("length", [1, 256, 257])
def test_lists_of_all_lengths(device, length):
    def make(device):
        kept = []

        def step(x):
            kept.append((x.sum() * torch.arange(length, device=x.device)).tolist())
            return x + 1

        return step, [kept]

    report = checked(make, device)
    assert (report.replayed >= CALLS // 2) is (length <= 256), report.reasons


TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
OF_TENSORS = {
    "one": lambda x, a, b: torch.tensor([a]),
    "several": lambda x, a, b: torch.tensor([a, b, a]),
    "among numbers": lambda x, a, b: torch.tensor([1, a, 2.5]),
    "nested": lambda x, a, b: torch.tensor([[a, 0], [1, b]]),
    "by a tuple": lambda x, a, b: torch.as_tensor((a, b)),
    "of a type": lambda x, a, b: torch.tensor([a, b], dtype=torch.float64),
    "of another": lambda x, a, b: x.new_tensor([a, b]),
    "alone": lambda x, a, b: torch.tensor(a) if x.numel() == 0 else torch.tensor([b]),
    "of more dimensions": lambda x, a, b: torch.tensor([a.view(1), b.view(1)]),
    "negated": lambda x, a, b: torch.tensor([a > b, a < b]),
}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("way", OF_TENSORS)
def test_a_tensor_of_tensors_of_one_number(device, way, kind):
    """PyTorch reads their numbers, as ``item()`` does, and they are followed into what it makes."""

    def call(x, w):
        a, b = (x.abs().sum() * 5).to(kind), (x[0].abs() * 7).to(kind)
        made = OF_TENSORS[way](x, a, b)
        return made, (w * made.sum().to(device).double()).detach(), a.item()

    w = torch.ones(2, dtype=torch.float64, device=device, requires_grad=True)
    g = rote.graph(call, keep=True)
    for number in range(20):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number)).to(device)
        assert_same(g(x, w), call(x, w), f"call {number}")
    if way in ("one", "several", "by a tuple", "of a type") and kind in (torch.float32, torch.float64):
        assert g.report().replayed >= 6, g.explain()
