"""A call issues its collectives once each, however it is made; one process is enough to count them."""

from __future__ import annotations

import contextlib
import gc
import shutil
import weakref

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

import rote

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo")
CALLS = 12


@contextlib.contextmanager
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.fixture
def alone():
    with group():
        yield


def issued() -> int:
    return dist.group.WORLD._get_sequence_number_for_group()


@contextlib.contextmanager
def issuing(expected):
    before = issued()
    yield
    assert issued() - before == expected


def summed(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def inputs():
    return [torch.full((3,), n + 0.5) for n in range(CALLS)]


def calls(g, plain, count=1):
    """Make the calls, each of which issues some collectives."""
    for x in inputs():
        expected = plain(x.clone())
        with issuing(count):
            found = g(x)
        assert torch.equal(found, expected)
    assert g.report().replayed >= CALLS - 4, g.explain()


def test_each_replay_issues_them(alone):
    calls(rote.graph(summed), summed)


def test_a_result_that_nobody_uses(alone):
    def call(x):
        dist.all_reduce(x * 2)
        return x + 1

    calls(rote.graph(call), call)


def test_equal_ones_are_not_merged(alone):
    def call(x):
        y = x * 2
        one = functional.all_reduce(y, "sum", dist.group.WORLD)
        two = functional.all_reduce(y, "sum", dist.group.WORLD)
        return one + two

    calls(rote.graph(call), call, 2)


def test_what_depends_on_nothing_is_not_computed_once(alone):
    def call(x):
        y = torch.ones(3)
        dist.all_reduce(y)
        return x + y

    calls(rote.graph(call), call)


@pytest.mark.parametrize("numerics", ["plain", "exact", "near"])
def test_every_tier(alone, numerics):
    def call(x):
        y = x.sin().cos() * 2 + 1
        dist.all_reduce(y)
        z = x.sin().cos() * 2 + 1
        dist.all_reduce(z)
        x.exp()
        return (y.sin() * 3).cos() + z

    g = rote.graph(call, numerics=numerics, keep=True)
    for n in range(150):
        x = torch.full((3,), n + 0.5)
        with issuing(2):
            found = g(x)
        assert torch.equal(found, call(x))
    assert g.report().replayed > 140, g.explain()


def test_checked_replays_are_not_made_again(alone):
    g = rote.graph(summed, verify=1)
    calls(g, summed)


def test_checked_backwards_are_not_made_again(alone):
    net = Summing()
    g = rote.graph(net, verify=1)
    for x in inputs():
        net.zero_grad()
        with issuing(2):
            g(x[None]).sum().backward()
        expected, net.weight.grad = net.weight.grad, None
        net(x[None]).sum().backward()
        assert torch.equal(net.weight.grad, expected)
    assert g.report().replayed, g.explain()


class Summing(nn.Module):
    """Collectives in the forward and in the backward."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return Summed.apply(x * self.weight)


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


def test_a_gradient_of_a_gradient_makes_no_call_again(alone):
    net = Summing()
    g = rote.graph(net)
    for x in inputs():
        out = g(x[None].requires_grad_())
    assert g.report().replayed, g.explain()
    with issuing(0), pytest.raises(rote.MisuseError):
        torch.autograd.grad(out.sum(), net.weight, create_graph=True)


def test_padded_calls_are_not_compared(alone):
    g = rote.padded(summed, axes={"x": {0: [4, 8]}})
    for n in range(2 * CALLS):
        with issuing(1):
            assert torch.equal(g(torch.ones(2 + n % 3)), torch.full((2 + n % 3,), 3.0))
    assert "acts on other processes" in str(g.explain())


def test_a_call_that_raises_behind_one(alone):
    def call(x, fails):
        y = x * 2
        dist.all_reduce(y)
        if fails:
            raise ValueError("as asked")
        return y

    g = rote.graph(call)
    for n in range(CALLS):
        fails = n % 3 == 1
        with issuing(1), pytest.raises(ValueError) if fails else contextlib.nullcontext():
            g(torch.ones(3), fails)


@pytest.mark.parametrize("first", [True, False])
def test_a_replay_that_raises(alone, first):
    def call(x, index):
        if first:
            dist.all_reduce(x * 1)
        y = x[index] * 2
        dist.all_reduce(y)
        return y

    g = rote.graph(call)
    for _ in range(6):
        with issuing(1 + first):
            g(torch.ones(3), torch.tensor([1]))
    assert g.report().replayed, g.explain()
    with issuing(int(first)), pytest.raises(IndexError):
        g(torch.ones(3), torch.tensor([7]))
    with issuing(1 + first):
        g(torch.ones(3), torch.tensor([1]))


@pytest.mark.parametrize("reduces", [True, False])
def test_only_replays_without_collectives_are_timed(alone, reduces):
    def call(x):
        y = x * 2
        if reduces:
            dist.all_reduce(y)
        return y + 1

    g = rote.graph(call)
    for _ in range(150):
        g(torch.ones(3))
    timed = any(["to compare replays with" in each.message for each in g.report().reasons])
    assert g.report().replayed and timed != reduces, g.explain()


def test_a_way_that_is_not_recorded(alone):
    def call(x):
        y = x * 2
        dist.all_reduce(y)
        work = dist.all_reduce(y, async_op=True)
        if x[0] > 6:
            work.wait()
            dist.all_reduce(y)
            return y * 3
        work.wait()
        return y + 1

    g = rote.graph(call)
    for x in inputs():
        with issuing(2 + (x[0].item() > 6)):
            assert torch.equal(g(x), x * 6 if x[0] > 6 else x * 2 + 1)
    assert g.report().replayed, g.explain()


def test_no_memory_while_a_call_is_recorded(alone, monkeypatch):
    from rote.base import MemoryShortageError
    from rote.runtime.backends.host.session import HostSession

    g, left = rote.graph(summed), [3]
    run = HostSession.run

    def short(self, *args):
        left[0] -= 1
        if left[0] == 0:
            raise MemoryShortageError("as asked")
        return run(self, *args)

    monkeypatch.setattr(HostSession, "run", short)
    for x in inputs():
        with issuing(1):
            assert torch.equal(g(x), x * 2 + 1)


def test_a_check_issues_none(alone):
    def call(x):
        return functional.all_reduce(x + 1, "sum", dist.group.WORLD) * 2

    with issuing(0):
        rote.check(summed, torch.ones(3))
        rote.check(call, torch.ones(3, dtype=torch.int64))


def test_a_timeline_is_one_call(alone, tmp_path):
    g = rote.graph(summed)
    for _ in range(6):
        g(torch.ones(3))
    with issuing(1):
        g.trace(tmp_path / "timeline.json", (torch.ones(3),))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="no C++ compiler")
def test_compiled_code_with_collectives_is_not_recorded(alone):
    g = rote.graph(torch.compile(summed), verify=1)
    for x in inputs():
        with issuing(1):
            assert torch.equal(g(x), x * 2 + 1)
    assert "RT801" in {each.code for each in g.report().reasons}, g.explain()
    torch._dynamo.reset()


# ---------------------------------------------------------------------- groups that come and go


def test_a_group_that_is_made_anew():
    g = rote.graph(summed)
    for _ in range(3):
        with group():
            for _ in range(5):
                with issuing(1):
                    assert torch.equal(g(torch.ones(3)), torch.full((3,), 3.0))
    assert g.report().replayed >= 6, g.explain()


@pytest.mark.parametrize("way", ["reset", "next call"])
def test_nothing_holds_a_group_that_was_destroyed(way):
    def call(x):
        y = x * 2
        dist.all_reduce(y)
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        return y + 1

    g = rote.graph(call)
    with group():
        for _ in range(8):
            g(torch.ones(3))
        assert g.report().replayed, g.explain()
        held = weakref.ref(dist.group.WORLD)
    if way == "reset":
        g.reset()
    else:
        with pytest.raises(ValueError, match="group"):
            g(torch.ones(3))
    gc.collect()
    assert held() is None


def test_a_group_of_its_own_that_was_destroyed(alone):
    mine = dist.new_group([0])

    def call(x):
        y = x * 2
        dist.all_reduce(y, group=mine)
        return y + 1

    g = rote.graph(call)
    for x in inputs():
        assert torch.equal(g(x), x * 2 + 1)
    replayed = g.report().replayed
    assert replayed, g.explain()
    dist.destroy_process_group(mine)
    for x in inputs():  # a plain call still can, over gloo
        assert torch.equal(g(x), call(x))
