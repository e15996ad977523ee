"""Walking a recorded graph back by a hot path: which walks it makes, what it counts, and when it lets go."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.flop_counter import FlopCounterMode

import rote
from rote.runtime.autograd.graph import GradientWalk, packing
from rote.runtime.backends.select import PROCESS
from rote.runtime.engine.specialization import Specialization
from rote.runtime.replay.generated import HotPath
from rote.testing import assert_pool_empty


@pytest.fixture
def alone(monkeypatch):
    """From now on only hot paths may answer."""

    def forbid():
        monkeypatch.setattr(Specialization, "run", lambda *_: pytest.fail("the general path was taken"))

    return forbid


def layers(device, depth=6):
    """With so many that their gradients are handed out as parts of one tensor."""
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(4, 4), nn.Tanh())]).to(device)


def gradients(call, model, x):
    model.zero_grad()
    call(x).square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def same(found, right):
    return len(found) == len(right) and all(map(torch.equal, found, right))


def warmed(model, device, calls=6, **options):
    graphed = rote.graph(model, **options)
    for _ in range(calls):
        gradients(graphed, model, torch.randn(3, 4, device=device))
    return graphed


def test_a_walk_needs_no_general_path(device, alone):
    model = layers(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    before = graphed.report()
    alone()
    for _ in range(3):
        x = torch.randn(3, 4, device=device)
        assert same(gradients(graphed, model, x), gradients(plain, plain, x))
    after = graphed.report()
    assert after.backwards == before.backwards + 3
    assert after.backwards_replayed == before.backwards_replayed + 3


def test_parameters_that_were_stepped_need_no_general_path(device, alone):
    model = layers(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    alone()
    for _ in range(3):
        x = torch.randn(3, 4, device=device)
        found, right = gradients(graphed, model, x), gradients(plain, plain, x)
        assert same(found, right)
        with torch.no_grad():
            for module, grads in ((model, found), (plain, right)):
                for parameter, gradient in zip(module.parameters(), grads, strict=True):
                    parameter -= 0.1 * gradient


def test_gradients_stay_and_have_versions_of_their_own(device):
    model = layers(device)
    graphed = warmed(model, device)
    held = gradients(graphed, model, torch.randn(3, 4, device=device))
    copies = [gradient.clone() for gradient in held]
    assert not any(gradient._is_view() or gradient.requires_grad for gradient in held)
    gradients(graphed, model, torch.randn(3, 4, device=device))
    assert same(held, copies)
    held[0].add_(1)
    assert [gradient._version for gradient in held] == [1] + [0] * (len(held) - 1)
    assert same(held[1:], copies[1:])


def test_large_gradients_have_memory_of_their_own(device, alone, monkeypatch):
    monkeypatch.setattr(packing, "LARGE", 32 * 32 * 4)
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 4))
    model = nn.Sequential(wide, layers("cpu")).to(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    alone()
    x = torch.randn(3, 4, device=device)
    found = gradients(graphed, model, x)
    assert same(found, gradients(plain, plain, x))
    holders = [gradient.untyped_storage().nbytes() for gradient in found]
    assert holders[2] == found[2].nbytes == packing.LARGE
    small = sum(gradient.nbytes for gradient in found) - found[2].nbytes
    assert {nbytes for number, nbytes in enumerate(holders) if number != 2} == {small}


def test_gradients_are_added_to_those_that_are_there(device):
    model = layers(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    model.zero_grad()
    for _ in range(3):
        x = torch.randn(3, 4, device=device)
        graphed(x).sum().backward()
        plain(x).sum().backward()
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.first(x)
        return x.tanh(), self.second(x).sin()


LOSSES = {
    "the first": lambda a, b: a.square().sum(),
    "the second": lambda a, b: b.square().sum(),
    "both": lambda a, b: (a * b).sum(),
    "one element repeated": lambda a, b: a.sum() + b.sum(),
    "transposed": lambda a, b: (a.t().contiguous() @ b).square().sum(),
}


def test_walks_of_several_kinds_in_turn(device):
    torch.manual_seed(0)
    model = Two().to(device)
    plain, graphed = copy.deepcopy(model), rote.graph(model, keep=True)
    for number in range(40):
        loss = list(LOSSES.values())[number % len(LOSSES)] if number < 30 else LOSSES["both"]
        x = torch.randn(3, 4, device=device)
        for call, module in ((graphed, model), (plain, plain)):
            module.zero_grad()
            loss(*call(x)).backward()
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            assert one.grad is None or torch.equal(one.grad, other.grad)
    report = graphed.report()
    assert report.backwards == 39 and report.backwards_replayed >= 25, graphed.explain()


def test_some_of_the_gradients(device):
    model = layers(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    for wanted in ([0], [1, 5], [0], list(range(12)), [1, 5], [0], [1, 5], [0]):
        x = torch.randn(3, 4, device=device)
        found = [
            torch.autograd.grad(call(x).sum(), [list(module.parameters())[number] for number in wanted])
            for call, module in ((graphed, model), (plain, plain))
        ]
        assert same(*found)


def test_a_mode_around_it_sees_its_operations(device):
    model = layers(device)
    graphed = warmed(model, device)
    loss = graphed(torch.randn(3, 4, device=device)).sum()
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert counter.get_total_flops() > 0


def test_another_thread_has_the_device(device):
    model = layers(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    x = torch.randn(3, 4, device=device)
    loss = graphed(x).square().sum()
    model.zero_grad()
    lock, taken, go = PROCESS.of(x.device).lock, threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            go.wait(10)

    thread, timer = threading.Thread(target=hold), threading.Timer(0.2, go.set)
    thread.start()
    taken.wait(10)
    timer.start()
    loss.backward()
    for waiting in (thread, timer):
        waiting.join()
    assert same([parameter.grad for parameter in model.parameters()], gradients(plain, plain, x))


def test_with_checks_every_walk_goes_the_general_way(device):
    model = layers(device)
    graphed = warmed(model, device, calls=8, verify=1)
    report = graphed.report()
    assert report.backwards_verified >= 4, graphed.explain()


def test_a_walk_where_a_reducer_has_hooked_the_nodes_of_parameters(device, monkeypatch):
    """As in DistributedDataParallel: on the device they run on the stream on which they were made."""
    monkeypatch.setattr(torch.distributed, "is_initialized", torch.distributed.is_available)
    model, seen = layers(device, depth=2), []
    nodes = [get_gradient_edge(parameter).node for parameter in model.parameters()]
    for node in nodes:
        node.register_prehook(lambda gradients: seen.append(gradients[0].clone()))
    plain, graphed = copy.deepcopy(model), warmed(model, device, calls=3)
    for _ in range(5):
        x = torch.randn(3, 4, device=device)
        seen.clear()
        found = gradients(graphed, model, x)
        assert same(found, gradients(plain, plain, x)) and len(seen) == len(found)
    assert graphed.report().backwards_replayed >= 5, graphed.explain()
    walks = [each for each in gc.get_objects() if type(each) is GradientWalk]
    ends = [edge.node for walk in walks for edge in vars(walk)["_edges"]]
    assert len(ends) >= len(nodes) and not any([end is node for end in ends for node in nodes])


class Branch(torch.autograd.Function):
    """Its backward depends on a value that the host reads."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 if gradient.sum().item() > 0 else gradient * 3


def test_a_walk_in_which_the_host_reads(device):
    model = nn.Linear(4, 4).to(device)
    plain = copy.deepcopy(model)
    graphed = rote.graph(lambda x: Branch.apply(model(x)))
    for number in range(24):
        x, sign = torch.rand(3, 4, device=device), (-1) ** (number // 6)
        for module, call in ((model, graphed), (plain, lambda x: Branch.apply(plain(x)))):
            module.zero_grad()
            (call(x).sum() * sign).backward()
        assert torch.equal(model.weight.grad, plain.weight.grad)
    report = graphed.report()
    assert report.backwards == 23 and report.backwards_replayed >= 15, graphed.explain()


FACTOR = {"value": 1.0}


class Scaled(torch.autograd.Function):
    """Its backward reads what Python code may change."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * FACTOR["value"]


def test_a_walk_that_reads_what_changes(device, monkeypatch):
    monkeypatch.setitem(FACTOR, "value", 1.0)
    model = nn.Linear(4, 4).to(device)
    plain = copy.deepcopy(model)
    graphed = rote.graph(lambda x: Scaled.apply(model(x)))
    for number in range(18):
        x = torch.rand(3, 4, device=device)
        for module, call in ((model, graphed), (plain, lambda x: Scaled.apply(plain(x)))):
            module.zero_grad()
            FACTOR["value"] = 1.0
            loss = call(x).sum()
            FACTOR["value"] = 1.0 + number // 6
            loss.backward()
        assert torch.equal(model.weight.grad, plain.weight.grad)
    report = graphed.report()
    assert report.replayed == 16 and report.backwards_replayed >= 9, graphed.explain()


def test_a_recording_that_was_given_back(device):
    model = layers(device)
    plain, graphed = copy.deepcopy(model), warmed(model, device)
    x = torch.randn(3, 4, device=device)
    loss = graphed(x).square().sum()
    model.zero_grad()
    graphed.reset()
    loss.backward()
    assert same([parameter.grad for parameter in model.parameters()], gradients(plain, plain, x))


def test_a_wrapper_that_is_deleted_leaves_nothing(device):
    model = layers(device)
    graphed = warmed(model, device)
    paths = [weakref.ref(path) for path in gc.get_objects() if type(path) is HotPath]
    assert len(paths) == 2
    del graphed
    assert_pool_empty()
    assert not any(path() for path in paths)
