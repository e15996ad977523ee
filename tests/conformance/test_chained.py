"""Graphed callables that follow one another: one's results are the next one's arguments."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import rote
from rote.testing import count_recordings

WARM = rote.Options().warmup + 1


def double(x):
    return x * 2


def increase(x):
    return x + 1


def ones(device, value=1.0, size=3):
    return torch.full((size,), value, device=device)


def placements(g):
    """Class and placement of the arguments of each recording, the newest first."""
    return [[(given.kind, given.placement) for given in found.inputs] for found in g.report().recordings]


COPIED = [("not mutated", "copied")]


# ---------------------------------------------------------------------- y = a(x); z = b(y)


def test_two_callables(device):
    a, b = rote.graph(double), rote.graph(increase)
    for n in range(10):
        y = a(ones(device, float(n)))
        z = b(y)
        assert z.tolist() == [2.0 * n + 1] * 3 and y.tolist() == [2.0 * n] * 3
    assert a.report().replayed == b.report().replayed == 10 - WARM
    assert placements(b) == [COPIED]


def test_a_plain_tensor_instead(device):
    a, b = rote.graph(double), rote.graph(increase)
    for n in range(12):
        y = a(ones(device, float(n)))
        z = b(y if n % 3 else ones(device, 7.0))
        assert z.tolist() == [2.0 * n + 1 if n % 3 else 8.0] * 3
    assert placements(b) == [COPIED] and b.report().replayed == 12 - WARM


def test_two_producers_in_turn(device):
    a, c, b = rote.graph(double), rote.graph(increase), rote.graph(double)
    for n in range(12):
        assert b(a(ones(device, float(n)))).tolist() == [4.0 * n] * 3
        assert b(c(ones(device, float(n)))).tolist() == [2.0 * n + 2] * 3
    assert placements(b) == [COPIED] and b.report().replayed == 24 - WARM


def test_three_in_a_row(device):
    steps = [rote.graph(fn) for fn in (double, increase, double)]
    for n in range(12):
        value = ones(device, float(n))
        for step in steps:
            value = step(value)
        assert value.tolist() == [(2.0 * n + 1) * 2] * 3
    assert [step.report().replayed for step in steps] == [12 - WARM] * 3


def test_a_view_of_an_output(device):
    a, b = rote.graph(double), rote.graph(increase)
    for n in range(12):
        y = a(ones(device, float(n), 6))
        part = y[1:4] if n % 2 else y[3:]
        assert b(part).tolist() == [2.0 * n + 1] * 3


def test_several_outputs(device):
    def split(x):
        y = x * 2
        return y, y[1:], x + 1

    a, b = rote.graph(split), rote.graph(lambda p, q, r: p.sum() + q.sum() * r.sum())
    for n in range(10):
        x = ones(device, float(n))
        p, q, r = split(x)
        assert torch.equal(b(*a(x)), p.sum() + q.sum() * r.sum())


# ---------------------------------------------------------------------- what happens in between


def test_replays_of_others_in_between(device):
    a, b = rote.graph(double), rote.graph(increase)
    noise = [rote.graph(fn) for fn in (double, increase) for _ in range(2)]
    for n in range(10):
        y = a(ones(device, float(n)))
        for other in noise:
            other(ones(device, 99.0))
        b(ones(device, 50.0, 5))
        assert b(y).tolist() == [2.0 * n + 1] * 3


def test_the_output_mutated_in_between(device):
    a, b = rote.graph(double), rote.graph(increase)
    writes = [
        lambda y: None,
        lambda y: y.add_(10),
        lambda y: y[1:].zero_(),
        lambda y: y.copy_(torch.arange(3.0)),
        lambda y: y.mul_(0).fill_(-1),
    ]
    for n in range(20):
        y, plain = a(ones(device, float(n))), double(ones(device, float(n)))
        for tensor in (y, plain):
            writes[n % len(writes)](tensor)
        assert torch.equal(b(y), increase(plain)), n


def test_writes_that_no_version_counter_sees(device):
    """``.data``, and numpy on the host: what the consumer reads is the caller's tensor."""
    a, b = rote.graph(double), rote.graph(increase)
    for n in range(8):
        y = a(ones(device, float(n)))
        y.data.fill_(5.0)
        assert b(y).tolist() == [6.0] * 3
        if device.type == "cpu":
            y = a(ones(device, float(n)))
            y.numpy()[:] = 8.0
            assert b(y).tolist() == [9.0] * 3


def test_outputs_held_while_the_chain_goes_on(device):
    a, b = rote.graph(double), rote.graph(increase)
    held = []
    for n in range(10):
        y = a(ones(device, float(n)))
        held.append((n, y, b(y)))
    for n, y, z in held:
        assert y.tolist() == [2.0 * n] * 3 and z.tolist() == [2.0 * n + 1] * 3


def test_the_producer_replayed_in_between(device):
    a, b = rote.graph(double), rote.graph(increase)
    for n in range(6):
        assert b(a(ones(device, float(n)))).tolist() == [2.0 * n + 1] * 3
    old = a(ones(device))
    a(ones(device, 5.0))
    assert b(old).tolist() == [3.0] * 3


def test_the_producer_called_by_the_consumer(device):
    """The consumer's callable may call the producer: inside it runs plainly, and overwrites nothing."""
    a = rote.graph(double)
    b = rote.graph(lambda y: a(y + 1) + y)
    for n in range(8):
        assert b(a(ones(device, float(n)))).tolist() == [(2.0 * n + 1) * 2 + 2.0 * n] * 3


def test_the_producer_reset_and_dropped_in_between(device):
    b = rote.graph(increase)
    for turn in range(3):
        a = rote.graph(double)
        for n in range(6):
            assert b(a(ones(device, float(n)))).tolist() == [2.0 * n + 1] * 3, (turn, n)
        y = a(ones(device, 4.0))
        a.reset()
        assert b(y).tolist() == [9.0] * 3
        for n in range(5):
            y = a(ones(device, float(n)))
        del a
        gc.collect()
        assert b(y).tolist() == [9.0] * 3
    assert b.report().recorded == 1


def test_the_producer_records_again(device):
    layer = nn.Linear(3, 3).to(device).requires_grad_(False)
    a, b = rote.graph(layer), rote.graph(increase)
    kept = []
    for n in range(24):
        x = ones(device, float(n))
        assert torch.equal(b(a(x)), layer(x) + 1), n
        if n % 8 == 7:
            kept.append(layer.weight.data)
            layer.weight.data = torch.randn(3, 3, device=device)
    assert b.report().recorded == 1


def test_the_consumer_keeps_no_output_alive(device):
    a, b = rote.graph(double), rote.graph(increase)
    for n in range(6):
        y = a(ones(device, float(n)))
        b(y)
    memory = weakref.ref(y.untyped_storage())
    del y
    gc.collect()
    assert memory() is None
    assert b(ones(device)).tolist() == [2.0] * 3


# ---------------------------------------------------------------------- the consumer writes


def test_the_consumer_writes_its_input(device):
    def clear(y):
        y.add_(1)
        return y * 10

    a, b = rote.graph(double), rote.graph(clear)
    for n in range(10):
        y = a(ones(device, float(n)))
        before = y._version
        assert b(y).tolist() == [(2.0 * n + 1) * 10] * 3
        assert y.tolist() == [2.0 * n + 1] * 3 and y._version > before


def test_the_consumer_returns_its_input(device):
    a, b = rote.graph(double), rote.graph(lambda y: (y, y[1:], {"sum": y.sum()}))
    for n in range(6):
        y = a(ones(device, float(n)))
        same, part, total = b(y)
        assert same is y and part.tolist() == [2.0 * n] * 2 and total["sum"].item() == 6.0 * n
    a(ones(device))
    assert same.tolist() == [10.0] * 3 and part.tolist() == [10.0] * 2 and total["sum"].item() == 30.0


class Keeper(nn.Module):
    """Keeps the argument of its last call."""

    def forward(self, y):
        self.last = y
        return y * 2


@pytest.mark.parametrize("seen", [1, 2, 12])
def test_the_consumer_keeps_its_input(device, seen):
    a, keeper = rote.graph(double), Keeper()
    b = rote.graph(keeper)
    for _ in range(WARM):
        a(ones(device))
    for n in range(seen):
        y = a(ones(device, float(n)))
        assert b(y).tolist() == [4.0 * n] * 3
        assert keeper.last is y
    a(ones(device, 99.0))
    assert keeper.last.tolist() == [2.0 * (seen - 1)] * 3


# ---------------------------------------------------------------------- loops


def test_an_output_fed_back(device):
    g = rote.graph(lambda x: x * 2 - 1)
    x, plain = ones(device, 3.0), ones(device, 3.0)
    for n in range(12):
        x, plain = g(x), plain * 2 - 1
        assert torch.equal(x, plain), n
    assert count_recordings(g) == 1 and g.report().replayed == 12 - WARM
    assert placements(g) == [COPIED]


def test_an_output_fed_back_that_is_read_late(device):
    """The input is still read after the output has been written."""
    g = rote.graph(lambda x: (x.flip(0) + 1, x.cumsum(0)))
    x = plain = torch.arange(3.0, device=device)
    for n in range(10):
        x, total = g(x)
        expected = plain.cumsum(0)
        plain = plain.flip(0) + 1
        assert torch.equal(x, plain) and torch.equal(total, expected), n


def test_an_output_fed_back_and_written(device):
    """What is written into the old output must not end up in the new one."""

    def fn(x):
        x.mul_(0.5)
        return x + 1

    g = rote.graph(fn)
    x, plain = ones(device, 8.0), ones(device, 8.0)
    for n in range(10):
        x, plain = g(x), fn(plain)
        assert torch.equal(x, plain), n
    assert g.report().replayed == 10 - WARM


def test_an_output_fed_back_and_returned(device):
    g = rote.graph(lambda x: (x, x[1:], x * 2))
    x = ones(device)
    for n in range(8):
        same, part, x = g(x)
        assert same.tolist() == [2.0**n] * 3 and part.tolist() == [2.0**n] * 2, n
        assert x.tolist() == [2.0 ** (n + 1)] * 3


def test_one_callable_twice_in_a_row(device):
    g = rote.graph(lambda x: x * 2 + 1)
    for n in range(10):
        assert g(g(ones(device, float(n)))).tolist() == [4.0 * n + 3] * 3
    assert count_recordings(g) == 1


def test_two_callables_in_a_ring(device):
    a, b = rote.graph(lambda x: x * 0.5 + 1), rote.graph(increase)
    x, plain = ones(device, 3.0), ones(device, 3.0)
    for n in range(20):
        x, plain = b(a(x)), increase(plain * 0.5 + 1)
        assert torch.equal(x, plain), n
    assert count_recordings(a) == count_recordings(b) == 1
    assert a.report().replayed == 20 - WARM


def test_state_that_wanders_through_a_cell(device):
    cell = nn.GRUCell(3, 3).to(device).requires_grad_(False)
    g = rote.graph(cell)
    state, plain = torch.zeros(2, 3, device=device), torch.zeros(2, 3, device=device)
    for _ in range(12):
        x = torch.randn(2, 3, device=device)
        state, plain = g(x, state), cell(x, plain)
        assert torch.equal(state, plain)
    assert g.report().replayed == 12 - WARM


def test_shapes_that_differ_along_the_chain(device):
    """Two keys of one callable: the second takes the first one's output."""
    g = rote.graph(lambda x: torch.cat([x, x * 2]))
    for n in range(10):
        y = g(g(ones(device, float(n), 2)))
        assert y.tolist() == [n, n, 2 * n, 2 * n, 2 * n, 2 * n, 4 * n, 4 * n]
    assert placements(g) == [COPIED, COPIED]


# ---------------------------------------------------------------------- all together


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_random_chains(device, seed):
    """A few callables over a few values, called in any order; plain code says what is right."""
    random = torch.Generator().manual_seed(seed)

    def draw(count):
        return int(torch.randint(count, (), generator=random))

    def write(x):
        x.mul_(0.5)
        return x + 1

    def mix(x, y):
        y.add_(x)
        return x - y

    plain = [double, increase, write, mix, lambda x: x.flip(0)]
    graphed = [rote.graph(fn) for fn in plain]
    values = [ones(device, float(n)) for n in range(4)]
    expected = [value.clone() for value in values]
    for turn in range(150):
        which, at, other, target = draw(len(plain)), draw(4), draw(4), draw(4)
        operands = [at] if which != 3 else [at, other]
        found = graphed[which](*(values[n] for n in operands))
        want = plain[which](*(expected[n] for n in operands))
        assert torch.equal(found, want), (seed, turn)
        assert all(map(torch.equal, values, expected)), (seed, turn)
        values[target], expected[target] = found, want
        if draw(8) == 0:  # a write that no version counter sees
            values[target].data.fill_(0.25)
            expected[target].fill_(0.25)


def test_checked_chains(device):
    """With ``verify`` the replays in place and the outputs fed back are compared with plain calls."""

    def step(x, cache):
        cache.add_(x)
        x.mul_(0.5)
        return x + cache

    a, b = rote.graph(step, verify=2), rote.graph(increase, verify=2)
    x, cache = ones(device), torch.zeros(3, device=device)
    plain, other = ones(device), torch.zeros(3, device=device)
    for n in range(12):
        x, plain = b(a(x, cache)), increase(step(plain, other))
        assert torch.equal(x, plain) and torch.equal(cache, other), n
    assert a.report().verified > 2 and b.report().verified > 2
