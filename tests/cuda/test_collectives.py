"""Collectives of NCCL in graphs, on one rank: what is captured, what is not, and how a group ends."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import rote

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
    pytest.mark.skipif(not dist.is_available() or not dist.is_nccl_available(), reason="no NCCL"),
    pytest.mark.filterwarnings("ignore"),
]
CALLS = 12


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "0")
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


def summed(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def gathered(x):
    whole = torch.empty_like(x)
    dist.all_gather_into_tensor(whole, x * 3)
    part = torch.empty_like(whole)
    dist.reduce_scatter_tensor(part, whole + 1)
    return part - 1


def sent_around(x):
    given, taken = x * 2, torch.empty_like(x)
    dist.all_to_all_single(taken, given)
    dist.broadcast(taken, 0)
    return taken.sum()


def without_changes(x):
    """The functional collectives, each waited for where its result is used next."""
    y = functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1
    whole = functional.all_gather_tensor(y, 0, dist.group.WORLD) * 2
    return functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD) - y


def in_a_backward(x):
    weight = torch.full((4,), 2.0, device=x.device, requires_grad=True)
    weight.register_hook(lambda gradient: dist.all_reduce(gradient) or gradient * 2)
    (x * weight).square().sum().backward()
    return weight.grad


def read_in_between(x):
    y = x * 2
    dist.all_reduce(y)
    z = y * 2 if y.sum().item() > 1e6 else y - 1
    dist.all_reduce(z)
    return z


@pytest.mark.parametrize(
    "program", [summed, gathered, sent_around, without_changes, in_a_backward, read_in_between]
)
def test_what_nobody_waits_for_is_captured(group, program):
    g = rote.graph(program, keep=True, capture_collectives=True)
    for n in range(CALLS):
        x = torch.full((4,), n + 1.5, device="cuda")
        assert torch.equal(g(x), program(x))
    report = g.report()
    assert report.replayed >= 4, g.explain()
    assert "c10d::" not in str(g.explain()), g.explain()
    g.reset()


def test_what_gives_a_handle_runs_between_two_graphs(group):
    def call(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 1
        work.wait()
        return y + z

    g = rote.graph(call, keep=True, capture_collectives=True)
    for n in range(CALLS):
        x = torch.full((4,), n + 1.5, device="cuda")
        assert torch.equal(g(x), call(x))
    assert g.report().replayed >= 6 and "island: c10d::allreduce_" in str(g.explain()), g.explain()
    g.reset()


def test_what_is_waited_for_later_runs_between_two_graphs(group):
    """Another rank may begin the two in another order, and wait for neither before it has begun both."""

    def call(x):
        y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = functional.broadcast(x * 3, 0, dist.group.WORLD)
        return y + z

    g = rote.graph(call, keep=True, capture_collectives=True)
    for n in range(CALLS):
        x = torch.full((4,), n + 1.5, device="cuda")
        assert torch.equal(g(x), call(x))
    explained = str(g.explain())
    assert g.report().replayed >= 6 and "island: _c10d_functional::all_reduce" in explained, explained
    g.reset()


def test_the_exact_tier_leaves_such_a_recording(group):
    g = rote.graph(summed, keep=True, capture_collectives=True)
    for n in range(200):
        x = torch.full((4,), float(n), device="cuda")
        assert torch.equal(g(x), summed(x))
    assert g.report().replayed >= 190 and "exact tier" not in str(g.explain()), g.explain()
    g.reset()


def test_a_group_ends_while_there_are_graphs_with_its_collectives(group):
    """NCCL would wait for ever; the call in a new group is recorded anew."""
    g = rote.graph(summed, keep=True, capture_collectives=True)
    for turn in range(2):
        for n in range(CALLS):
            x = torch.full((4,), float(n), device="cuda")
            assert torch.equal(g(x), summed(x))
        assert g.report().replayed >= 6 * (turn + 1), g.explain()
        dist.destroy_process_group()
        if not turn:
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    g.reset()


def test_without_the_setting_of_nccl_it_is_refused(group, monkeypatch):
    monkeypatch.delenv("NCCL_GRAPH_REGISTER")
    g = rote.graph(summed, capture_collectives=True)
    with pytest.raises(rote.EnvironmentError_, match="needs NCCL_GRAPH_REGISTER=0 in the environment of all"):
        g(torch.ones(4, device="cuda"))
    plain = rote.graph(summed)
    for n in range(CALLS):
        x = torch.full((4,), float(n), device="cuda")
        assert torch.equal(plain(x), summed(x))
    assert "island: c10d::allreduce_" in str(plain.explain())
    plain.reset()
