"""Recordings that follow one another: one's outputs are the next one's inputs."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
import torch
from torch import nn

import rote
from rote import OptionError, StaleOutputError
from rote.testing import count_recordings

WARM = rote.Options().warmup + 1
MODES = ["safe", "borrow"]


def double(x):
    return x * 2


def increase(x):
    return x + 1


def ones(device, value=1.0, size=3):
    return torch.full((size,), value, device=device)


def placements(g):
    """Class and placement of the arguments of each recording, the newest first."""
    return [[(given.kind, given.placement) for given in found.inputs] for found in g.report().recordings]


PRODUCED = [("produced by a recording", "in place")]
COPIED = [("not mutated", "copied")]


# ---------------------------------------------------------------------- y = a(x); z = b(y)


@pytest.mark.parametrize("second", MODES)
@pytest.mark.parametrize("first", MODES)
def test_two_callables(device, first, second):
    a, b = rote.graph(double, outputs=first), rote.graph(increase, outputs=second)
    for n in range(10):
        y = a(ones(device, float(n)))
        z = b(y)
        assert z.tolist() == [2.0 * n + 1] * 3 and y.tolist() == [2.0 * n] * 3
    assert a.report().replayed == 10 - WARM
    assert placements(b)[0] == (PRODUCED if first == "borrow" else COPIED)
    assert b.report().replayed >= 10 - 2 * WARM


def test_nothing_is_copied_between_them(device):
    """The consumer holds no memory for its input."""
    a = rote.graph(double, outputs="borrow")
    b = rote.graph(lambda y: y.sum())
    x = torch.ones(1 << 16, device=device)
    for n in range(6):
        assert b(a(x * n)).item() == 2.0 * n * (1 << 16)
    (recording,) = b.report().recordings
    assert recording.inputs[0].placement == "in place"
    if device.type == "cpu":  # on CUDA a pool is counted in full
        assert recording.bytes_held < x.nbytes


def test_the_option_turns_it_off(device):
    a, b = rote.graph(double, outputs="borrow"), rote.graph(increase, chain=False)
    for n in range(8):
        assert b(a(ones(device, float(n)))).tolist() == [2.0 * n + 1] * 3
    assert placements(b) == [[("produced by a recording", "copied")]]
    with pytest.raises(OptionError, match="chain='yes' must be True or False"):
        rote.graph(double, chain="yes")


def test_a_plain_tensor_instead(device):
    a, b = rote.graph(double, outputs="borrow"), rote.graph(increase)
    for n in range(12):
        y = a(ones(device, float(n)))
        z = b(y if n % 3 else ones(device, 7.0))
        assert z.tolist() == [2.0 * n + 1 if n % 3 else 8.0] * 3
    assert sorted(placements(b)) == sorted([PRODUCED, COPIED])
    assert b.report().replayed >= 12 - WARM - 2


def test_two_producers_in_turn(device):
    a, c, b = rote.graph(double, outputs="borrow"), rote.graph(increase, outputs="borrow"), rote.graph(double)
    for n in range(12):
        assert b(a(ones(device, float(n)))).tolist() == [4.0 * n] * 3
        assert b(c(ones(device, float(n)))).tolist() == [2.0 * n + 2] * 3
    assert sorted(placements(b)) == sorted([PRODUCED, COPIED])
    assert b.report().replayed >= 24 - WARM - 3


def test_three_in_a_row(device):
    steps = [rote.graph(fn, outputs="borrow") for fn in (double, increase, double)]
    for n in range(12):
        value = ones(device, float(n))
        for step in steps:
            value = step(value)
        assert value.tolist() == [(2.0 * n + 1) * 2] * 3
    assert [placements(step)[0] for step in steps] == [COPIED, PRODUCED, PRODUCED]


@pytest.mark.parametrize("mode", MODES)
def test_a_view_of_an_output(device, mode):
    a, b = rote.graph(double, outputs=mode), rote.graph(increase)
    for n in range(12):
        y = a(ones(device, float(n), 6))
        part = y[1:4] if n % 2 else y[3:]
        assert b(part).tolist() == [2.0 * n + 1] * 3


@pytest.mark.parametrize("mode", MODES)
def test_several_outputs(device, mode):
    def split(x):
        y = x * 2
        return y, y[1:], x + 1

    a, b = rote.graph(split, outputs=mode), rote.graph(lambda p, q, r: p.sum() + q.sum() * r.sum())
    for n in range(10):
        x = ones(device, float(n))
        p, q, r = split(x)
        assert torch.equal(b(*a(x)), p.sum() + q.sum() * r.sum())


# ---------------------------------------------------------------------- what happens in between


@pytest.mark.parametrize("mode", MODES)
def test_replays_of_others_in_between(device, mode):
    a, b = rote.graph(double, outputs=mode), rote.graph(increase)
    noise = [rote.graph(fn, outputs=other) for fn in (double, increase) for other in MODES]
    for n in range(10):
        y = a(ones(device, float(n)))
        for other in noise:
            other(ones(device, 99.0))
        b(ones(device, 50.0, 5))
        assert b(y).tolist() == [2.0 * n + 1] * 3


@pytest.mark.parametrize("mode", MODES)
def test_the_output_mutated_in_between(device, mode):
    a, b = rote.graph(double, outputs=mode), rote.graph(increase)
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


@pytest.mark.parametrize("mode", MODES)
def test_outputs_held_while_the_chain_goes_on(device, mode):
    a, b = rote.graph(double, outputs=mode), rote.graph(increase)
    held = []
    for n in range(10):
        y = a(ones(device, float(n)))
        held.append((n, y.clone() if mode == "borrow" else y, b(y)))
    for n, y, z in held:
        assert y.tolist() == [2.0 * n] * 3 and z.tolist() == [2.0 * n + 1] * 3


def test_the_producer_replayed_in_between(device):
    a, b = rote.graph(double, outputs="borrow"), rote.graph(increase)
    for n in range(6):
        assert b(a(ones(device, float(n)))).tolist() == [2.0 * n + 1] * 3
    old = a(ones(device))
    a(ones(device, 5.0))
    with pytest.raises(StaleOutputError, match="is stale: call 8 of double"):
        b(old)
    assert b(a(ones(device, 3.0))).tolist() == [7.0] * 3


def test_the_producer_replayed_while_the_consumer_runs(device):
    """The consumer's callable may call the producer: inside it runs plainly, and overwrites nothing."""
    a = rote.graph(double, outputs="borrow")
    b = rote.graph(lambda y: a(y + 1) + y)
    for n in range(8):
        assert b(a(ones(device, float(n)))).tolist() == [(2.0 * n + 1) * 2 + 2.0 * n] * 3


@pytest.mark.parametrize("mode", MODES)
def test_the_producer_reset_and_dropped_in_between(device, mode):
    b = rote.graph(increase)
    for turn in range(3):
        a = rote.graph(double, outputs=mode)
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
    # One for each producer's memory and a copying one; where the allocator deals out old addresses again, a
    # wrong guess more for each producer.
    assert b.report().recorded <= 7


def test_the_producer_records_again(device):
    layer = nn.Linear(3, 3).to(device).requires_grad_(False)
    a, b = rote.graph(layer, outputs="borrow"), rote.graph(increase)
    kept = []
    for n in range(24):
        x = ones(device, float(n))
        assert torch.equal(b(a(x)), layer(x) + 1), n
        if n % 8 == 7:
            kept.append(layer.weight.data)
            layer.weight.data = torch.randn(3, 3, device=device)


def test_the_consumer_keeps_no_output_alive(device):
    a, b = rote.graph(double, outputs="borrow"), rote.graph(increase)
    for n in range(6):
        y = a(ones(device, float(n)))
        b(y)
    memory = weakref.ref(y.untyped_storage())
    assert placements(b)[0] == PRODUCED
    del y
    a.reset()
    gc.collect()
    assert memory() is None
    assert b(ones(device)).tolist() == [2.0] * 3


def test_a_step_in_between(device):
    a, b = rote.graph(double, outputs="borrow"), rote.graph(increase, outputs="borrow")
    for n in range(8):
        y = a(ones(device, float(n)))
        z = b(y)
        assert z.tolist() == [2.0 * n + 1] * 3
        rote.step()
        for stale in (y, z) if n >= WARM else ():
            with pytest.raises(StaleOutputError):
                b(stale)


# ---------------------------------------------------------------------- the consumer writes


@pytest.mark.parametrize("mode", MODES)
def test_the_consumer_writes_its_input(device, mode):
    def clear(y):
        y.add_(1)
        return y * 10

    a, b = rote.graph(double, outputs=mode), rote.graph(clear)
    for n in range(10):
        y = a(ones(device, float(n)))
        before = y._version
        assert b(y).tolist() == [(2.0 * n + 1) * 10] * 3
        assert y.tolist() == [2.0 * n + 1] * 3 and y._version > before
    found = [("produced by a recording", "in place")] if mode == "borrow" else [("another tensor", "copied")]
    assert placements(b)[0] == found


def test_the_consumer_returns_its_input(device):
    """What it returns is lent under the same lease."""
    a, b = rote.graph(double, outputs="borrow"), rote.graph(lambda y: (y, y[1:], {"sum": y.sum()}))
    for n in range(6):
        y = a(ones(device, float(n)))
        same, part, total = b(y)
        assert same is y and part.tolist() == [2.0 * n] * 2 and total["sum"].item() == 6.0 * n
    a(ones(device))
    for stale in (same, part):
        with pytest.raises(StaleOutputError):
            stale.tolist()
    assert total["sum"].item() == 30.0


class Keeper(nn.Module):
    """Keeps the argument of its last call."""

    def forward(self, y):
        self.last = y
        return y * 2


@pytest.mark.parametrize("seen", [1, 2, 12])
def test_the_consumer_keeps_its_input(device, seen):
    """What state keeps of a borrowed argument is stale when the argument is."""
    a, keeper = rote.graph(double, outputs="borrow"), Keeper()
    b = rote.graph(keeper)
    for _ in range(WARM):
        a(ones(device))
    for n in range(seen):
        y = a(ones(device, float(n)))
        assert b(y).tolist() == [4.0 * n] * 3
        assert keeper.last.tolist() == [2.0 * n] * 3
    a(ones(device))
    with pytest.raises(StaleOutputError):
        keeper.last.tolist()


# ---------------------------------------------------------------------- loops


@pytest.mark.parametrize("mode", MODES)
def test_an_output_fed_back(device, mode):
    g = rote.graph(lambda x: x * 2 - 1, outputs=mode)
    x, plain = ones(device, 3.0), ones(device, 3.0)
    for n in range(12):
        x, plain = g(x), plain * 2 - 1
        assert torch.equal(x.clone(), plain), n
    assert count_recordings(g) == 1 and g.report().replayed == 12 - WARM
    assert placements(g) == [COPIED]


@pytest.mark.parametrize("mode", MODES)
def test_an_output_fed_back_that_is_read_late(device, mode):
    """The input is still read after the output has been written."""
    g = rote.graph(lambda x: (x.flip(0) + 1, x.cumsum(0)), outputs=mode)
    x = plain = torch.arange(3.0, device=device)
    for n in range(10):
        x, total = g(x)
        expected = plain.cumsum(0)
        plain = plain.flip(0) + 1
        assert torch.equal(x.clone(), plain) and torch.equal(total.clone(), expected), n


@pytest.mark.parametrize("mode", MODES)
def test_an_output_fed_back_and_written(device, mode):
    """What is written into the old output must not end up in the new one, which has its memory."""

    def fn(x):
        x.mul_(0.5)
        return x + 1

    g = rote.graph(fn, outputs=mode)
    x, plain = ones(device, 8.0), ones(device, 8.0)
    for n in range(10):
        x, plain = g(x), fn(plain)
        assert torch.equal(x.clone(), plain), n
    assert g.report().replayed == 10 - WARM


@pytest.mark.parametrize("mode", MODES)
def test_an_output_fed_back_and_returned(device, mode):
    g = rote.graph(lambda x: (x, x[1:], x * 2), outputs=mode)
    x = ones(device)
    for n in range(8):
        same, part, x = g(x)
        assert same.tolist() == [2.0**n] * 3 and part.tolist() == [2.0**n] * 2, n
        assert x.tolist() == [2.0 ** (n + 1)] * 3


@pytest.mark.parametrize("mode", MODES)
def test_one_callable_twice_in_a_row(device, mode):
    g = rote.graph(lambda x: x * 2 + 1, outputs=mode)
    for n in range(10):
        assert g(g(ones(device, float(n)))).tolist() == [4.0 * n + 3] * 3
    assert count_recordings(g) == 1


@pytest.mark.parametrize("modes", list(itertools.product(MODES, MODES)))
def test_two_callables_in_a_ring(device, modes):
    a, b = rote.graph(lambda x: x * 0.5 + 1, outputs=modes[0]), rote.graph(increase, outputs=modes[1])
    x, plain = ones(device, 3.0), ones(device, 3.0)
    for n in range(20):
        x, plain = b(a(x)), increase(plain * 0.5 + 1)
        assert torch.equal(x.clone(), plain), n
    assert count_recordings(a) <= 2 and count_recordings(b) <= 2
    assert a.report().replayed >= 20 - WARM - 3


@pytest.mark.parametrize("mode", MODES)
def test_state_that_wanders_through_a_cell(device, mode):
    cell = nn.GRUCell(3, 3).to(device).requires_grad_(False)
    g = rote.graph(cell, outputs=mode)
    state, plain = torch.zeros(2, 3, device=device), torch.zeros(2, 3, device=device)
    for _ in range(12):
        x = torch.randn(2, 3, device=device)
        state, plain = g(x, state), cell(x, plain)
        assert torch.equal(state.clone(), plain)
    assert g.report().replayed == 12 - WARM


def test_shapes_that_differ_along_the_chain(device):
    """Two keys of one callable: the second may read the first one's output where it lies."""
    g = rote.graph(lambda x: torch.cat([x, x * 2]), outputs="borrow")
    for n in range(10):
        y = g(g(ones(device, float(n), 2)))
        assert y.tolist() == [n, n, 2 * n, 2 * n, 2 * n, 2 * n, 4 * n, 4 * n]
    assert sorted(placements(g)) == sorted([COPIED, PRODUCED])


# ---------------------------------------------------------------------- all together


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
    graphed = [rote.graph(fn, outputs=MODES[draw(2)]) for fn in plain]
    values = [ones(device, float(n)) for n in range(4)]
    expected = [value.clone() for value in values]
    for turn in range(150):
        which, at, other, target = draw(len(plain)), draw(4), draw(4), draw(4)
        operands = [at] if which != 3 else [at, other]
        try:
            found = graphed[which](*(values[n] for n in operands))
        except StaleOutputError:  # then the value that was overwritten is made anew
            for n in set(operands):
                values[n], expected[n] = ones(device, float(turn)), ones(device, float(turn))
            continue
        want = plain[which](*(expected[n] for n in operands))
        assert torch.equal(found.clone(), want), (seed, turn)
        for n in range(4):
            try:
                assert torch.equal(values[n].clone(), expected[n]), (seed, turn, n)
            except StaleOutputError:
                values[n], expected[n] = ones(device, float(turn)), ones(device, float(turn))
        values[target], expected[target] = found, want
        if draw(8) == 0 and not hasattr(found, "lease"):  # a write that no version counter sees
            values[target].data.fill_(0.25)
            expected[target].fill_(0.25)


@pytest.mark.parametrize("mode", MODES)
def test_checked_chains(device, mode):
    """With ``verify`` the replays in place and the outputs fed back are compared with plain calls."""

    def step(x, cache):
        cache.add_(x)
        x.mul_(0.5)
        return x + cache

    a, b = rote.graph(step, outputs=mode, verify=2), rote.graph(increase, verify=2, outputs=mode)
    x, cache = ones(device), torch.zeros(3, device=device)
    plain, other = ones(device), torch.zeros(3, device=device)
    for n in range(12):
        x, plain = b(a(x, cache)), increase(step(plain, other))
        assert torch.equal(x.clone(), plain) and torch.equal(cache, other), n
    assert a.report().verified > 2 and b.report().verified > 2
