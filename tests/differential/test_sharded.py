"""Training with parameters that are spread over a mesh of one process, and what may happen around a step."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import rote

if dist.is_available() and dist.is_gloo_available():
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import implicit_replication
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
else:
    pytest.skip("no gloo", allow_module_level=True)

CALLS = 8
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}


@pytest.fixture(scope="module")
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.device_mesh.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class Trained:
    """Layers that are spread, an optimizer, and a training step."""

    def __init__(self, mesh, optimizer="SGD"):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
        parallelize_module(self.net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        self.optimizer = OPTIMIZERS[optimizer](self.net.parameters())

    def backward(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss.detach()

    def step(self, x):
        loss = self.backward(x)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def step_after_clearing(self, x):
        self.optimizer.zero_grad()
        loss = self.backward(x)
        self.optimizer.step()
        return loss

    def left(self):
        """What is left of parameters and gradients, and how they are spread."""
        tensors = [t for p in self.net.parameters() for t in (p, p.grad) if t is not None]
        return [t.to_local().clone() for t in tensors], [t.placements for t in tensors]


def inputs(number):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(number))


def assert_same(mine, theirs):
    (tensors, placements), (expected, others) = mine.left(), theirs.left()
    assert placements == others and len(tensors) == len(expected)
    assert all(map(torch.equal, tensors, expected))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["step", "step_after_clearing"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_two_hundred_steps(mesh, optimizer, way):
    mine, theirs = Trained(mesh, optimizer), Trained(mesh, optimizer)
    g = rote.graph(getattr(mine, way), keep=True)
    for number in range(200):
        assert torch.equal(g(inputs(number)), getattr(theirs, way)(inputs(number)))
    assert_same(mine, theirs)
    assert g.report().replayed > 190


def test_autograd_counts_writes_where_eager_does(mesh):
    mine, theirs = Trained(mesh), Trained(mesh)
    g = rote.graph(mine.step, keep=True)
    for number in range(CALLS):
        g(inputs(number))
        theirs.step(inputs(number))
    assert g.report().replayed
    for one, two in zip(mine.net.parameters(), theirs.net.parameters(), strict=True):
        assert one._version == two._version and one.to_local()._version == two.to_local()._version
    waiting = mine.net(inputs(0)).mean()
    g(inputs(0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        waiting.backward()


def test_held_gradients_stay_what_they_were(mesh):
    mine, theirs = Trained(mesh), Trained(mesh)
    g = rote.graph(mine.step_after_clearing, keep=True)
    held, expected = [], []
    for number in range(CALLS):
        g(inputs(number))
        theirs.step_after_clearing(inputs(number))
        held += [p.grad for p in mine.net.parameters()]
        expected += [p.grad.to_local().clone() for p in theirs.net.parameters()]
    assert g.report().replayed
    assert all([torch.equal(one.to_local(), two) for one, two in zip(held, expected, strict=True)])


def frozen(trained, number):
    trained.net[0].weight.requires_grad_(number < 5)


def hooked(trained, number):
    if number == 5:
        trained.net[0].weight.register_hook(lambda gradient: gradient * 2)


def spread_otherwise(trained, number):
    weight = trained.net[0].weight
    if number == 5:
        with torch.no_grad():
            other = weight.redistribute(weight.device_mesh, [Replicate()])
        weight._local_tensor, weight._spec = other._local_tensor, other._spec


def gradient_before(trained, number):
    if number == 5:
        trained.net(inputs(0)).sum().backward()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("change", [frozen, hooked, spread_otherwise, gradient_before])
@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.no_grad])
def test_what_changes_before_a_call_is_noticed(mesh, change, around):
    mine, theirs = Trained(mesh), Trained(mesh)
    g = rote.graph(torch.enable_grad()(mine.step), keep=True)
    plain = torch.enable_grad()(theirs.step)
    for number in range(CALLS):
        for each in (mine, theirs):
            change(each, number)
        with around():
            assert torch.equal(g(inputs(number)), plain(inputs(number)))
        assert_same(mine, theirs)
    assert g.report().replayed


def graphs_from_outside(trained, wrap):
    """A backward in the call goes on to a graph that was made before it."""
    factor = distribute_tensor(torch.ones(4), trained.net[2].bias.device_mesh, [Replicate()])
    held = [torch.zeros(4)]
    g = wrap(lambda x: (trained.net(x) * held[0]).mean().backward())

    def call(x):
        held[0] = (factor * trained.net[2].bias).to_local()
        g(x)

    return call, g


def results_with_a_history(trained, wrap):
    g = wrap(lambda x: trained.net(x).square().mean())
    return lambda x: g(x).backward(), g


def added_gradients(trained, wrap):
    g = wrap(trained.backward)
    return g, g


def optimizer_alone(trained, wrap):
    g = wrap(lambda: trained.optimizer.step())

    def call(x):
        trained.backward(x)
        g()

    return call, g


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (graphs_from_outside, "a backward runs through a graph that was made outside"),
        (results_with_a_history, "a result has a history"),
        (added_gradients, "the call reads a gradient from before it that is a DTensor"),
        (optimizer_alone, "the call reads a gradient from before it that is a DTensor"),
    ],
)
def test_what_does_not_replay_says_why(mesh, make, said):
    mine, theirs = Trained(mesh), Trained(mesh)
    (one, g), (two, _) = make(mine, rote.graph), make(theirs, lambda function: function)
    for number in range(CALLS):
        one(inputs(number))
        two(inputs(number))
        assert_same(mine, theirs)
    report = g.report()
    assert not report.replayed and any([said in each.message for each in report.reasons]), report.reasons


def test_forward_and_backward_with_the_optimizer_behind(mesh):
    mine, theirs = Trained(mesh, "AdamW"), Trained(mesh, "AdamW")
    g = rote.graph(mine.backward, keep=True)
    for number in range(2 * CALLS):
        assert torch.equal(g(inputs(number)), theirs.backward(inputs(number)))
        assert_same(mine, theirs)
        for each in (mine, theirs):
            each.optimizer.step()
            each.optimizer.zero_grad()
    assert g.report().replayed > CALLS


def branching(trained, x):
    loss = trained.backward(x)
    if loss.item() > 0.3:
        trained.optimizer.step()
    trained.optimizer.zero_grad()
    return loss


def checkpointed(trained, x):
    loss = checkpoint(trained.net, x, use_reentrant=False).square().mean()
    loss.backward()
    trained.optimizer.step()
    trained.optimizer.zero_grad()
    return loss.detach()


def clipped(trained, x):
    loss = trained.backward(x)
    nn.utils.clip_grad_norm_(trained.net.parameters(), 0.1)
    trained.optimizer.step()
    trained.optimizer.zero_grad()
    return loss


def by_hand(trained, x):
    loss = trained.net(x).square().mean()
    parameters = list(trained.net.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=0.01)
    return loss.detach()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [branching, checkpointed, clipped, by_hand])
def test_ways_to_train(mesh, step):
    mine, theirs = Trained(mesh), Trained(mesh)
    g = rote.graph(lambda x: step(mine, x), keep=True)
    for number in range(2 * CALLS):
        assert torch.equal(g(inputs(number)), step(theirs, inputs(number)))
        assert_same(mine, theirs)
    assert g.report().replayed > CALLS // 2


def test_a_setting_that_refuses_operations_is_a_condition(mesh):
    """PyTorch takes other tensors together with spread ones where it is told to."""

    @rote.graph(keep=True)
    def call(x):
        return (DTensor.from_local(x, mesh, [Shard(0)], run_check=False) * torch.ones(3, 4)).to_local() + 1

    for number, allowed in enumerate(itertools.islice(itertools.cycle([True] * 5 + [False]), 2 * CALLS)):
        with implicit_replication() if allowed else pytest.raises(RuntimeError, match="mixed"):
            assert torch.equal(call(inputs(number)), inputs(number) + 1)
    assert call.report().replayed > CALLS // 2


def test_checks_of_replays_leave_such_steps_out(mesh):
    """A check would make the step once more, on memory that only the parts have."""
    mine, theirs = Trained(mesh), Trained(mesh)
    g = rote.graph(mine.step_after_clearing, verify=2, keep=True)
    for number in range(CALLS):
        assert torch.equal(g(inputs(number)), theirs.step_after_clearing(inputs(number)))
    assert_same(mine, theirs)
    assert g.report().replayed
