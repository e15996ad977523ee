"""Operations that raise for the values of one call: what stands before has happened, and handlers run."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import pytest
import torch
from tests.differential.harness import attempt, check
from torch import nn
from torch.nn import functional

import rote

CALLS, BAD = 18, (11, 15)

OPERATIONS = {
    "gather": lambda s, x, i: s.row.gather(0, i) + x,
    "index": lambda s, x, i: s.table[i][0] + x,
    "embedding": lambda s, x, i: s.embedding(i)[0] + x,
    "cross entropy": lambda s, x, i: functional.cross_entropy(s.table[:1], i % 9) * x,
    "written by an index": lambda s, x, i: s.table.index_add_(0, i, x[None]).sum(0),
    "whole numbers divided": lambda s, x, i: (8 // (4 - i)) + x,
    "draw": lambda s, x, i: torch.bernoulli((4 - i) / 4) + x,
    "check": lambda s, x, i: (torch._assert_async(i < 4), x + 1)[1],
}


def set_a_slot(s, x):
    s.kept = x * 2


def write_state(s, x):
    s.total.add_(x)


def write_the_argument(s, x):
    x.mul_(2)


def append(s, x):
    s.log.append(x + 1)
    del s.log[:-2]


def turn(s, x):
    s.first = not s.first


def draw(s, x):
    s.kept = torch.rand(4)


def draw_from_a_generator(s, x):
    s.kept = torch.rand(4, generator=s.generator)


def normalize(s, x):
    s.kept = s.norm(torch.stack([x, x * 2]))


def go_back(s, x):
    (s.weight * x).sum().backward()


def step(s, x):
    s.optimizer.zero_grad()
    (s.weight * x).square().sum().backward()
    s.optimizer.step()


BEFORE = [
    *(set_a_slot, write_state, write_the_argument, append, turn, draw, draw_from_a_generator, normalize),
    *(go_back, step),
]


def leaves(call):
    return call()


def caught(call):
    try:
        return call()
    except (IndexError, RuntimeError) as error:
        return len(str(error))


def ended(s):
    def way(call):
        try:
            return call()
        finally:
            s.total.mul_(3)
            s.ended = s.total * 1

    return way


def raised_again(call):
    try:
        return call()
    except (IndexError, RuntimeError) as error:
        raise ValueError("again") from error


def suppressed(call):
    with contextlib.suppress(IndexError, RuntimeError):
        return call()
    return None


WAYS = {
    "leaves": lambda s: leaves,
    "caught": lambda s: caught,
    "finally": ended,
    "raised again": lambda s: raised_again,
    "suppressed": lambda s: suppressed,
}


def state():
    weight = nn.Parameter(torch.ones(4))
    return SimpleNamespace(
        row=torch.arange(4.0),
        table=torch.arange(16.0).view(4, 4),
        embedding=nn.Embedding(4, 4).requires_grad_(False),
        kept=None,
        total=torch.zeros(4),
        log=[],
        first=True,
        ended=None,
        generator=torch.Generator().manual_seed(1),
        norm=nn.BatchNorm1d(4),
        weight=weight,
        optimizer=torch.optim.SGD([weight], 0.01, momentum=0.9),
    )


def seen(s):
    draws = s.generator.get_state().sum().item()
    kept = [s.kept, s.total, s.log, s.first, s.ended, s.table, s.weight, s.weight.grad, draws]
    return [*kept, s.norm.running_mean, s.norm.num_batches_tracked]


def cases():
    """Each operation behind each effect; all ways out of it come with both."""
    ways = itertools.cycle(WAYS)
    for name, before in itertools.product(OPERATIONS, BEFORE):
        yield pytest.param(name, next(ways), before, id=f"{name}-{before.__name__}")
        if len(BEFORE) % len(WAYS) == 0 and before is BEFORE[-1]:
            next(ways)


@pytest.mark.parametrize(("name", "way", "before"), [*cases()])
def test_what_stands_before_an_operation_that_raises(name, way, before):
    def scenario(wrap):
        s = state()
        through = WAYS[way](s)

        def fn(x, i):
            before(s, x)
            result = through(lambda: OPERATIONS[name](s, x, i))
            s.log.append(x)
            return result

        g = wrap(fn)
        for number in range(CALLS):
            x, place = torch.full((4,), number + 1.0), torch.tensor([4 if number in BAD else number % 4])
            yield attempt(g, x, place), x, seen(s)
        if isinstance(g, rote.Graphed) and name not in ("draw", "whole numbers divided"):
            assert g.report().replayed >= 5, g.explain()

    check(scenario)


@pytest.mark.parametrize("shape", [0, 2, 8])
def test_a_result_that_is_given_another_size(shape):
    """``out=`` gives a tensor the size that is needed, and other memory if that is more."""

    def scenario(wrap):
        s = SimpleNamespace(out=torch.zeros(4))

        def fn(x):
            torch.mul(x, 2, out=s.out)
            return x + s.out

        g = wrap(fn)
        for number in range(20):
            if number in (8, 14):
                s.out = torch.zeros(shape)
            yield attempt(g, torch.full((4,), float(number))), s.out

    check(scenario)
