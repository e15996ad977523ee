"""A tensor is read at a position that is a tensor: ``alphas[t]``, where C reads the number."""

from __future__ import annotations

import pytest
import torch
from tests.conformance.placing import between_segments

import rote
from rote.testing import assert_same

SIZE = 12


@pytest.fixture(params=["captured", "between segments"], autouse=True)
def _placed(request, monkeypatch):
    """Operations with numbers that change, as the backend takes them, and as one takes them that cannot."""
    if request.param != "captured":
        between_segments(monkeypatch)


def first(tables, x, t):
    return x * tables["a"][t]


def last(tables, x, t):
    return x + tables["b"][..., t].sum() + tables["b"][:, t]


def rows(tables, x, t):
    return x * tables["c"][t, :] - tables["c"][(t,)]


def computed(tables, x, t):
    previous = t - 1
    before = tables["a"][previous] if previous >= 0 else tables["one"]
    return (1 - tables["a"][t] / before) * x


def looked_up(tables, x, t):
    index = (tables["steps"] == t).nonzero(as_tuple=True)[0][0]
    following = torch.tensor(0, device=x.device) if index == SIZE - 1 else tables["steps"][index + 1]
    return x * tables["a"][following]


def twice(tables, x, t):
    return tables["a"][t] * x + tables["a"][t] ** tables["c"][t][0]


def returned(tables, x, t):
    return tables["a"][t], x * 2


def written(tables, x, t):
    tables["a"][t].mul_(1.01)
    return x * tables["a"].sum()


def put(tables, x, t):
    tables["a"][t] = x[0]
    return tables["a"] * 1


def learned(tables, x, t):
    (gradient,) = torch.autograd.grad((tables["weight"][t] * x).exp().sum(), tables["weight"])
    return gradient


def from_the_end(tables, x, t):
    return x * tables["a"][t - SIZE]


def bytes_and_bools(tables, x, t):
    return tables["a"][t.to(torch.uint8)] * x[0], tables["a"][t > 3] * x[0]


def small(tables, x, t):
    return tables["a"][t.to(torch.int32)] * x + tables["a"][t.to(torch.int8)]


def several(tables, x, t):
    return tables["c"][t, t % 4] * x, tables["c"][t, None] * 1, tables["c"][t, 1:3] * 1


def of_a_list(tables, x, t):
    return x * tables["list"][t]


PROGRAMS = [
    first, last, rows, computed, looked_up, twice, returned, written, put, learned, from_the_end,
    bytes_and_bools, small, several, of_a_list,
]  # fmt: skip
REPLAYED = {first, last, rows, computed, looked_up, twice}


def tables_on(device):
    torch.manual_seed(0)
    return {
        "a": torch.rand(SIZE).to(device) + 0.5, "b": torch.rand(4, SIZE).to(device),
        "c": torch.rand(SIZE, 4).to(device), "one": torch.tensor(1.0, device=device),
        "steps": torch.arange(SIZE - 1, -1, -1, device=device), "list": [0.5 * n for n in range(SIZE)],
        "weight": torch.rand(SIZE).to(device).requires_grad_(),
    }  # fmt: skip


def attempt(call, *given):
    try:
        return call(*given)
    except IndexError as error:
        return str(error)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_as_in_plain_calls(device, program):
    ours, theirs = tables_on(device), tables_on(device)
    graphed = rote.graph(lambda x, t: program(ours, x, t), keep=True)
    for number in range(5 * SIZE):
        x = torch.linspace(-1.0, number / 10, 4).to(device)
        t = torch.tensor(number * 5 % SIZE, device=device)
        assert_same((number, graphed(x, t)), (number, program(theirs, x, t)))
        assert_same((number, ours), (number, theirs))
    if program in REPLAYED:
        assert graphed.report().replayed >= 2 * SIZE


@pytest.mark.parametrize("program", [first, last, rows, twice], ids=lambda each: each.__name__)
def test_outside_of_the_tensor(device, program):
    tables = tables_on(device)
    graphed = rote.graph(lambda x, t: program(tables, x, t), keep=True)
    for number in range(6 * SIZE):
        x = torch.linspace(-1.0, number / 10, 4).to(device)
        t = torch.tensor(number % SIZE if number % 17 < 13 else number % 40 - 20, device=device)
        assert_same(attempt(graphed, x, t), attempt(program, tables, x, t))


def test_a_sampler(device):
    """The step is one of what it goes through, and looks that up."""

    class Sampler:
        def __init__(self):
            self.alphas = torch.linspace(0.99, 0.01, 50).cumprod(0).to(device)
            self.times = torch.arange(49, -1, -7).to(device)

        def step(self, noise, t, x):
            found = (self.times == t).nonzero(as_tuple=True)[0][0]
            before = self.times[found + 1] if found < len(self.times) - 1 else torch.tensor(-1)
            now = self.alphas[t]
            then = self.alphas[before] if before >= 0 else torch.tensor(1.0).to(now)
            x = then.sqrt() * (x - (1 - now).sqrt() * noise) / now.sqrt() + (1 - then).sqrt() * noise
            return x + torch.randn_like(x) * 0.1 if t > 0 else x

    def make():
        sampler = Sampler()
        return sampler, lambda x, t: sampler.step((x * t).tanh(), t, x)

    (ours, step), (theirs, plain) = make(), make()
    graphed = rote.graph(step, keep=True)
    for seed in range(8):
        found = []
        for sampler, call in ((ours, graphed), (theirs, plain)):
            torch.manual_seed(seed)
            x, seen = torch.linspace(-1.0, 1.0, 6).to(device), []
            for t in sampler.times:
                x = call(x, t)
                seen.append(x)
            found.append(seen)
        assert_same(*found)
    assert graphed.report().replayed > 30
