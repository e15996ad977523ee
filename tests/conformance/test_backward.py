"""Forward graphed, backward outside: both replay, and every gradient is the one eager gives."""

from __future__ import annotations

import copy
import gc
import queue
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import rote
from rote.testing import assert_same

STEPS = 8


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.dropout = dropout

    def forward(self, x):
        return self.second(functional.dropout(functional.gelu(self.first(x)), self.dropout, self.training))


def both(device, step, build=Net, steps=STEPS, same=torch.equal, **options):
    """Run a step many times, plainly and graphed, each on a copy of one model; compare all it returns.

    ``same=torch.allclose`` where a tensor gets gradients from inside and outside of the call: they are added
    in another order.
    """
    torch.manual_seed(7)
    plain = build().to(device)
    model = copy.deepcopy(plain)
    graphed = rote.graph(model, **options)
    wanted = _outcomes(plain, plain, step, device, steps)
    got = _outcomes(model, graphed, step, device, steps)
    for number, (one, other) in enumerate(zip(wanted, got, strict=True)):
        for position, (a, b) in enumerate(zip(one, other, strict=True)):
            assert (a is None) == (b is None), f"step {number}, value {position}"
            assert a is None or same(a, b), f"step {number}, value {position}: {a} and {b}"
    return graphed


def _outcomes(model, call, step, device, steps):
    torch.manual_seed(3)
    found = []
    for number in range(steps):
        values = step(model, call, number, device)
        found.append([value.detach().clone() if value is not None else None for value in values])
    return found


def gradients(model):
    return [parameter.grad for parameter in model.parameters()]


def replays_both(graphed, backwards=STEPS - 1):
    """Whether forward and backward replayed from the third and fourth call on."""
    report = graphed.report()
    assert report.replayed >= STEPS - 2, graphed.explain()
    assert report.backwards == backwards and report.backwards_replayed >= STEPS - 3, graphed.explain()


def test_forward_and_backward_replay(device):
    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device, requires_grad=True)
        loss = call(x).square().mean()
        loss.backward()
        return [loss, x.grad, *gradients(model)]

    g = both(device, step)
    replays_both(g)
    assert g.report().reasons == ()
    assert "backward: 7 passes, 5 replayed" in g.explain()


def test_strict(device):
    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward()
        return [loss, *gradients(model)]

    replays_both(both(device, step, strict=True))


def test_dropout(device):
    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).sum()
        loss.backward()
        return [loss, *gradients(model), torch.rand(2, device=device)]

    replays_both(both(device, step, lambda: Net(0.4)))


def test_batch_norm(device):
    def build():
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))

    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).sum()
        loss.backward()
        return [loss, *gradients(model), *model.buffers()]

    replays_both(both(device, step, build))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizer_outside(device, optimizer):
    made = {}

    def step(model, call, number, device):
        if id(model) not in made:
            made[id(model)] = optimizer(model.parameters(), lr=0.05)
        made[id(model)].zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward()
        made[id(model)].step()
        return [loss, *model.parameters()]

    replays_both(both(device, step))


def test_gradient_accumulation(device):
    def step(model, call, number, device):
        if number % 3 == 0:
            model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward()
        return [loss, *gradients(model)]

    replays_both(both(device, step))


def test_gradients_held_over_steps(device):
    held = {}

    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward()
        held.setdefault(id(model), []).append(list(gradients(model)))
        return [gradient for earlier in held[id(model)] for gradient in earlier]

    replays_both(both(device, step))


def test_several_forwards_before_their_backwards(device):
    def step(model, call, number, device):
        model.zero_grad()
        losses = [call(torch.randn(5, 4, device=device)).square().mean() for _ in range(3)]
        for loss in reversed(losses):
            loss.backward()
        return [*losses, *gradients(model)]

    g = both(device, step, steps=10)
    assert len(g.report().recordings) == 3
    assert g.report().replayed >= 3 * 10 - 7 and g.report().backwards_replayed >= 3 * 10 - 10, g.explain()


def test_one_callable_twice_in_a_loss(device):
    def step(model, call, number, device):
        model.zero_grad()
        one, other = torch.randn(5, 4, device=device), torch.randn(5, 4, device=device)
        loss = (call(one) * call(other)).sum()
        loss.backward()
        return [loss, *gradients(model)]

    g = both(device, step)
    assert len(g.report().recordings) == 2 and g.report().backwards_replayed >= 6


def test_a_callable_that_takes_its_own_output(device):
    def step(model, call, number, device):
        model.zero_grad()
        loss = call(call(torch.randn(5, 4, device=device))).square().sum()
        loss.backward()
        return [loss, *gradients(model)]

    g = both(device, step, lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    assert g.report().backwards_replayed >= 6, g.explain()


def test_more_pending_results_than_recordings(device, reason):
    def step(model, call, number, device):
        model.zero_grad()
        losses = [call(torch.randn(5, 4, device=device)).square().mean() for _ in range(10)]
        sum(losses).backward()
        return [*losses, *gradients(model)]

    g = both(device, step, lambda: nn.Linear(4, 2), steps=5, same=torch.allclose)
    found = reason(g, "RT404")
    assert found.message == "8 results of this key are alive and their backward has not run"
    assert found.where.endswith("test_backward.py:" + found.where.rpartition(":")[2])
    assert len(g.report().recordings) == 8


def test_results_that_nobody_calls_backward_on(device):
    def step(model, call, number, device):
        return [call(torch.randn(5, 4, device=device))]

    """Each waits in vain until the next one is there, so two recordings take turns."""
    g = both(device, step, steps=12)
    assert g.report().replayed >= 8 and len(g.report().recordings) == 2 and g.report().backwards == 0


def test_gradients_asked_for_over_graphs_from_before_and_after_the_recording(device):
    def step(model, call, number, device):
        x = torch.randn(5, 4, device=device)
        plain = model(x)
        first = call(x)
        for _ in range(4):
            last = call(first.new_ones(5, 4) * number)
        loss = plain.sum() + first.square().sum() + last.sum()
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    g = both(device, step, steps=3, same=torch.allclose)
    assert g.report().replayed >= 8, g.explain()


def test_another_thread_uses_the_parameters_while_they_are_recorded(device):
    class Meeting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.visitor = None

        def forward(self, x):
            if self.visitor is not None:
                self.visitor()
            return super().forward(x)

    model = Meeting().to(device)
    plain = copy.deepcopy(model)
    views, asked, done = [], queue.SimpleQueue(), queue.SimpleQueue()

    def work():
        while asked.get():
            views.append(model.weight.view(-1))
            done.put(True)

    @rote.pure  # a call that hands work to a thread is not recorded
    def visit():
        asked.put(True)
        done.get()

    thread = threading.Thread(target=work)
    thread.start()
    x = torch.randn(5, 4, device=device)
    g = rote.graph(model)
    model.visitor = visit
    try:
        for _ in range(4):
            g(x)
    finally:
        asked.put(False)
        thread.join()
    assert g.report().recorded == 1, g.explain()
    for view in views:
        view.square().sum().backward()
        plain.weight.square().sum().backward()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad)


def test_retain_graph(device):
    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        return [loss, *gradients(model)]

    g = both(device, step)
    assert (
        g.report().backwards == 3 * (STEPS - 1) and g.report().backwards_replayed == g.report().backwards - 2
    )


def test_backward_twice_raises_as_in_eager(device):
    model = Net().to(device)
    g = rote.graph(model)
    for _ in range(STEPS):
        loss = g(torch.randn(5, 4, device=device)).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_backward_twice_of_a_graph_that_saved_nothing(device):
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, x):
            return (x + self.bias).double() + 1

    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device, requires_grad=True)
        kept = call(x)
        call(torch.randn(5, 4, device=device)).sum().backward()
        for _ in range(3):
            kept.sum().backward()
        return [kept, x.grad, *gradients(model)]

    g = both(device, step, Shift, same=torch.allclose)
    assert g.report().backwards_replayed >= 4 * (STEPS - 3), g.explain()


def test_a_view_of_a_parameter_beside_a_gradient_still_in_use(device):
    """A gradient is read on the caller's stream; nothing may take its memory before that."""

    class Views(nn.Linear):
        def forward(self, x):
            return super().forward(x), self.bias[1:]

    def wait(gradient):
        if gradient.is_cuda:
            torch.cuda._sleep(20_000_000)

    def step(model, call, number, device):
        model.zero_grad()
        leaf = torch.randn(4, 4, device=device, requires_grad=True)
        x = leaf * 2
        x.register_hook(wait)
        out, view = call(x)
        (out.square().sum() + view.sum()).backward()
        return [leaf.grad, view, *gradients(model)]

    g = both(device, step, lambda: Views(4, 4), steps=12)
    assert g.report().backwards_replayed, g.explain()


def test_partial_gradients(device):
    def step(model, call, number, device):
        x = torch.randn(5, 4, device=device, requires_grad=True)
        loss = call(x).square().mean()
        first = torch.autograd.grad(loss, [model.second.weight], retain_graph=True)
        return [loss, *first, *torch.autograd.grad(loss, [x, model.first.bias])]

    g = both(device, step)
    assert g.report().backwards_replayed >= 2 * (STEPS - 3), g.explain()


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 3)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return {"one": self.one(h), "other": self.other(h), "count": h.argmax(1), "free": h.detach()}


def test_gradients_of_some_results_only(device):
    def step(model, call, number, device):
        model.zero_grad()
        out = call(torch.randn(5, 4, device=device))
        loss = out["one"].sum() if number % 2 else out["one"].sum() + out["other"].square().sum()
        loss.backward()
        return [loss, out["count"], out["free"], *gradients(model)]

    g = both(device, step, Two, steps=12)
    assert g.report().backwards_replayed >= 7, g.explain()


def test_one_result_backward_after_the_other(device):
    def step(model, call, number, device):
        model.zero_grad()
        out = call(torch.randn(5, 4, device=device))
        out["one"].sum().backward(retain_graph=True)
        out["other"].sum().backward()
        return [*gradients(model)]

    both(device, step, Two)


def test_one_tensor_returned_twice(device):
    class Twice(nn.Linear):
        def forward(self, x):
            y = super().forward(x).relu()
            return y, [y]

    def step(model, call, number, device):
        model.zero_grad()
        one, (other,) = call(torch.randn(5, 4, device=device))
        assert one is other
        (one.sum() + other.square().sum()).backward()
        return [one, *gradients(model)]

    replays_both(both(device, step, lambda: Twice(4, 3)))


def test_results_that_share_memory(device):
    class Views(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y, y[0]

    def step(model, call, number, device):
        model.zero_grad()
        whole, row = call(torch.randn(5, 4, device=device))
        (whole.sum() + row.square().sum()).backward()
        return [whole, row, *gradients(model)]

    replays_both(both(device, step, lambda: Views(4, 3)))


def test_views_of_arguments_keep_their_history(device):
    class Views(nn.Linear):
        def forward(self, x):
            return super().forward(x), x.t(), x, self.weight.t(), self.weight

    def step(model, call, number, device):
        model.zero_grad()
        leaf = torch.randn(5, 4, device=device, requires_grad=True)
        parts = call(leaf * 2)
        sum((part.square() * n).sum() for n, part in enumerate(parts, 1)).backward()
        return [leaf.grad, *gradients(model)]

    replays_both(both(device, step, lambda: Views(4, 3), same=torch.allclose))


def test_inputs_with_a_history(device):
    def step(model, call, number, device):
        model.zero_grad()
        leaf = torch.randn(5, 4, device=device, requires_grad=True)
        loss = call((leaf * 3).tanh()).square().sum()
        loss.backward()
        return [loss, leaf.grad, *gradients(model)]

    replays_both(both(device, step))


def test_expanded_and_transposed_gradients(device):
    """What comes in from outside has shapes and strides of its own."""

    def step(model, call, number, device):
        model.zero_grad()
        out = call(torch.randn(5, 4, device=device))
        kind = number % 3
        incoming = torch.ones((), device=device).expand(5, 2)
        if kind == 1:
            incoming = torch.randn(2, 5, device=device).t()
        elif kind == 2:
            incoming = torch.randn(5, 2, device=device)
        out.backward(incoming)
        return [*gradients(model)]

    g = both(device, step, steps=15)
    assert g.report().backwards_replayed >= 8, g.explain()


def test_frozen_parameters_changed_later(device):
    def step(model, call, number, device):
        model.zero_grad(set_to_none=True)
        model.first.requires_grad_(number // 4 % 2 == 0)
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward()
        return [loss, *gradients(model)]

    g = both(device, step, steps=20)
    assert g.report().replayed >= 12 and g.report().backwards_replayed >= 12, g.explain()


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match:UserWarning")
def test_hooks_on_parameters_and_results(device):
    """On CUDA the nodes of hooked parameters are left alone; they may belong to a stream without captures."""
    seen = {}

    def step(model, call, number, device):
        kept = seen.setdefault(id(model), [])
        if number == 0:
            model.first.weight.register_hook(lambda gradient: gradient * 2)
            model.second.bias.register_post_accumulate_grad_hook(lambda p: kept.append(p.grad.clone()))
        model.zero_grad()
        out = call(torch.randn(5, 4, device=device))
        out.register_hook(lambda gradient: gradient + 1)
        out.square().mean().backward()
        return [*gradients(model), *kept]

    g = both(device, step)
    report = g.report()
    assert report.replayed and (report.backwards_replayed or report.reasons[0].code == "RT132"), g.explain()


def test_hooks_on_a_result_that_the_walk_does_not_come_from(device):
    """In eager each result has a node of its own; a hook that does not expect None would raise."""
    g = rote.graph(lambda x: (x.exp(), x.sin()), keep=True)
    x = torch.rand(4, device=device, requires_grad=True)
    for _ in range(6):
        first, second = g(x)
        first.register_hook(lambda gradient: gradient * 2)
        first.retain_grad()
        x.grad = None
        second.sum().backward(retain_graph=True)
        assert torch.equal(x.grad, x.cos()) and first.grad is None
        x.grad = None
        (first + second).sum().backward()
        assert torch.allclose(x.grad, 2 * x.exp() + x.cos())
        assert torch.equal(first.grad, torch.full_like(x, 2))
    assert g.report().backwards_replayed


def test_results_with_nodes_of_their_own_are_no_views(device):
    g = rote.graph(lambda x: (x * 3, x.sin()), keep=True)
    x = torch.rand(4, device=device, requires_grad=True)
    for _ in range(5):
        first, second = g(x)
        assert first._base is None and first._version == 0
        first.mul_(2)
        x.grad = None
        (first.sum() + second.sum()).backward()
        assert torch.allclose(x.grad, 6 + x.cos())


@pytest.mark.parametrize("walked", [0, 6], ids=["at once", "after replayed walks"])
def test_gradients_in_a_batch(walked, device, reason):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(device)
    g = rote.graph(model, keep=True)
    x = torch.rand(4, device=device, requires_grad=True)
    every = torch.eye(4, device=device)
    for _ in range(walked):
        g(x).sum().backward()
    for _ in range(5):
        (wanted,) = torch.autograd.grad(model(x), x, every, is_grads_batched=True)
        (found,) = torch.autograd.grad(g(x), x, every, is_grads_batched=True)
        assert torch.allclose(found, wanted)
    why = reason(g, "RT307")
    assert "a backward pass ran plainly: its gradients came in a batch" in why.message
    jacobian = torch.autograd.functional.jacobian(g, x.detach(), vectorize=True)
    assert torch.allclose(jacobian, wanted)
    replayed = g.report().backwards_replayed
    for _ in range(4):
        g(x).sum().backward()
    assert g.report().backwards_replayed > replayed


def test_hooks_inside_run_eagerly(device, reason, where):
    class Hooked(Net):
        def forward(self, x):
            h = torch.tanh(self.first(x))
            h.register_hook(lambda gradient: gradient * 3)
            return self.second(h)

    def step(model, call, number, device):
        model.zero_grad()
        call(torch.randn(5, 4, device=device)).sum().backward()
        return [*gradients(model)]

    g = both(device, step, Hooked)
    assert g.report().replayed == 0
    assert reason(g, "RT405").where == where(Hooked.forward, "register_hook")


def test_module_hooks_run(device):
    class Counting(Net):
        def __init__(self) -> None:
            super().__init__()
            self.calls = []
            self.first.register_full_backward_hook(lambda m, i, o: self.calls.append(o[0].clone()))

    def step(model, call, number, device):
        model.zero_grad()
        call(torch.randn(5, 4, device=device, requires_grad=True)).sum().backward()
        return [torch.tensor(len(model.calls)), *gradients(model)]

    torch.manual_seed(0)
    model = Counting().to(device)
    g = rote.graph(model)
    for number in range(STEPS):
        assert step(model, g, number, device)[0] == number + 1


def test_the_argument_s_own_gradient_is_read(device, reason):
    g = rote.graph(lambda x: x * (2 if x.grad is None else 3))
    for number in range(STEPS):
        x = torch.ones(2, device=device, requires_grad=True)
        if number % 2:
            x.grad = torch.zeros(2, device=device)
        assert g(x).tolist() == [3.0 if number % 2 else 2.0] * 2
    assert "args[0] was float32[2] strides [1] on" in reason(g, "RT306").message
    assert "is a leaf with a gradient" in reason(g, "RT306").message


def test_a_history_from_outside(device, reason):
    scale = torch.ones(4, device=device, requires_grad=True)

    def fn(x):
        return x * factor

    g = rote.graph(fn)
    for _ in range(STEPS):
        scale.grad = None
        factor = scale * 2
        g(torch.full((4,), 3.0, device=device)).sum().backward()
        assert scale.grad.tolist() == [6.0] * 4
    assert "has a history" in reason(g, "RT401").message


def test_an_argument_that_requires_grad_is_modified(device, reason):
    def fn(x):
        return x.mul_(2) + 1

    g = rote.graph(fn)
    for _ in range(STEPS):
        leaf = torch.ones(3, device=device, requires_grad=True)
        g(leaf * 1).sum().backward()
        assert leaf.grad.tolist() == [2.0] * 3
    assert reason(g, "RT403").message == "args[0] requires grad and is modified in place"


def test_an_argument_that_gets_a_history(device):
    weight = torch.full((3,), 2.0, device=device, requires_grad=True)

    def fn(x):
        x.mul_(weight)

    g = rote.graph(fn)
    for _ in range(STEPS):
        weight.grad = None
        x = torch.ones(3, device=device)
        g(x)
        assert x.requires_grad
        x.sum().backward()
        assert weight.grad.tolist() == [1.0] * 3


def test_a_buffer_that_gets_a_history(device):
    weight = torch.full((3,), 2.0, device=device, requires_grad=True)
    state = [torch.zeros(3, device=device)]

    def fn(x):
        state[0].copy_(x * weight)

    g = rote.graph(fn)
    for _ in range(STEPS):
        state[0], weight.grad = torch.zeros(3, device=device), None
        g(torch.ones(3, device=device))
        state[0].sum().backward()
        assert weight.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_around(device, reentrant):
    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device, requires_grad=True)
        loss = checkpoint(call, x, use_reentrant=reentrant).square().mean()
        loss.backward()
        return [loss, x.grad, *gradients(model), torch.rand(1, device=device)]

    g = both(device, step, lambda: Net(0.4))
    if reentrant:
        assert g.report().replayed >= 8, g.explain()
    else:
        assert {found.code for found in g.report().reasons} == {"RT406"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_inside(device, reentrant):
    class Inner(Net):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=reentrant)

    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device, requires_grad=True)
        loss = call(x).square().mean()
        loss.backward()
        return [loss, x.grad, *gradients(model), torch.rand(1, device=device)]

    g = both(device, step, lambda: Inner(0.4))
    assert g.report().replayed == 0
    assert "RT406" in [found.code for found in g.report().reasons]


def test_saved_tensor_hooks_around(device):
    def step(model, call, number, device):
        model.zero_grad()
        with torch.autograd.graph.save_on_cpu():
            loss = call(torch.randn(5, 4, device=device)).square().mean()
        loss.backward()
        return [loss, *gradients(model)]

    g = both(device, step)
    assert [found.code for found in g.report().reasons] == ["RT406"]


def test_a_parameter_stepped_before_backward(device):
    """Eager raises; a replayed backward must not use the new weights silently."""
    model = Net().to(device)
    g = rote.graph(model)
    for number in range(STEPS):
        model.zero_grad()
        loss = g(torch.randn(5, 4, device=device)).square().mean()
        if number >= 5:
            with torch.no_grad():
                model.second.weight.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()


def test_a_parameter_rebound_before_backward(device):
    model = Net().to(device)
    g = rote.graph(model)
    for _ in range(5):
        g(torch.randn(5, 4, device=device)).sum().backward()
    loss = g(torch.randn(5, 4, device=device)).sum()
    model.second.weight.data = model.second.weight.data.clone()
    with pytest.raises(rote.NotReplayedError, match=r"rebound to other memory \(tensor.data = ...\)"):
        loss.backward()


def test_a_parameter_replaced_before_backward(device):
    """The graph belongs to the old parameter, as in eager."""

    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        old = model.second.weight
        if number % 4 == 3:
            model.second.weight = nn.Parameter(old.detach() * 2)
        loss.backward()
        return [loss, old.grad, *gradients(model)]

    both(device, step, steps=16)


def test_gradient_penalty(device, reason):
    """The gradient of a gradient: the call is made again, and from then on the key runs eagerly."""

    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device, requires_grad=True)
        out = call((x * 2).tanh())
        if number < 4:
            out.square().sum().backward()
            return [out, x.grad, *gradients(model)]
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (out.sum() + slope.square().sum()).backward()
        return [out, slope, x.grad, *gradients(model)]

    g = both(device, step, same=torch.allclose)
    assert g.report().replayed == 3  # the last of them is made again
    assert reason(g, "RT408").count == 3


def test_gradient_penalty_with_dropout_is_refused_with_a_remedy(device, reason):
    model = Net(0.5).to(device)
    g = rote.graph(model)
    for _ in range(4):
        g(torch.randn(5, 4, device=device, requires_grad=True)).sum().backward()
    x = torch.randn(5, 4, device=device, requires_grad=True)
    with pytest.raises(rote.MisuseError, match=r"RT408( at .*)?: create_graph=True was asked"):
        torch.autograd.grad(g(x).square().sum(), x, create_graph=True)
    (slope,) = torch.autograd.grad(g(x).square().sum(), x, create_graph=True)
    assert slope.requires_grad and reason(g, "RT408").count == 1


def test_gradient_penalty_after_the_argument_changed(device):
    model = Net().to(device)
    g = rote.graph(model)
    for _ in range(4):
        g(torch.randn(5, 4, device=device, requires_grad=True) * 1).sum().backward()
    leaf = torch.randn(5, 4, device=device, requires_grad=True)
    x = leaf * 1
    out = g(x)
    with torch.no_grad():
        x.zero_()
    with pytest.raises((rote.MisuseError, RuntimeError), match=r"RT408|inplace operation"):
        torch.autograd.grad(out.sum(), leaf, create_graph=True)


@pytest.mark.parametrize("what", ["nothing", "bias", "scale"])
def test_gradient_penalty_after_the_state_changed(device, what):
    """The graph saves neither the bias nor a number, so eager goes on with what they were."""
    model = nn.Linear(4, 4).to(device)
    model.scale = 2.0
    g = rote.graph(lambda x: torch.tanh(model(x)) * model.scale)
    for _ in range(4):
        g(torch.randn(5, 4, device=device, requires_grad=True)).sum().backward()
    x = torch.randn(5, 4, device=device, requires_grad=True)
    out = g(x)
    if what == "bias":
        model.bias.data.add_(1)
    elif what == "scale":
        model.scale = 3.0
    if what == "nothing":
        assert torch.autograd.grad(out.sum(), x, create_graph=True)[0].requires_grad
    else:
        with pytest.raises(rote.MisuseError, match=r"What the call reads was changed before its backward\."):
            torch.autograd.grad(out.sum(), x, create_graph=True)


def _keeps(state, y):
    state.last = y.detach()


def _keeps_its_argument(state, y):
    state.last = state.x


def _counts(state, y):
    state.count += 1


def _appends(state, y):
    state.kept.append(y.detach())


def _appends_a_number(state, y):
    state.kept.append(1)


@pytest.mark.parametrize("leaves", [_keeps, _keeps_its_argument, _counts, _appends, _appends_a_number])
def test_gradient_penalty_of_a_call_that_leaves_something_behind(device, leaves):
    """It is left behind once, by the call itself: it lies in the memory of that call's result."""

    def play(wrap):
        state = SimpleNamespace(last=None, count=0, kept=[], x=None)

        def call(x):
            state.x = x
            y = x * x
            leaves(state, y)
            return y

        g, found = wrap(call), []
        for number in range(8):
            x = torch.full((3,), float(number), device=device, requires_grad=True)
            out = g(x)
            if number >= 4:
                found.append(torch.autograd.grad(out.sum(), x, create_graph=True)[0].tolist())
            beside = [state.last, *state.kept]
            shared = [each.data_ptr() == out.data_ptr() for each in beside if isinstance(each, torch.Tensor)]
            found.append((state.count, len(state.kept), state.last is x, shared))
        return found

    assert play(lambda f: f) == play(rote.graph)


def test_a_host_read_in_the_forward(device):
    class Branching(Net):
        def forward(self, x):
            h = torch.tanh(self.first(x))
            return self.second(h) if h.sum() > 0 else self.second(h * 2).exp()

    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device) * (1 if number % 3 else -1)
        loss = call(x).square().mean()
        loss.backward()
        return [loss, *gradients(model)]

    g = both(device, step, Branching, steps=20)
    assert g.report().replayed >= 12 and g.report().backwards_replayed >= 10, g.explain()


def test_a_host_read_in_the_backward(device):
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 2 if float(x.detach().sum()) > 0 else gradient * 3

    class Custom(nn.Linear):
        def forward(self, x):
            return Clip.apply(super().forward(x))

    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).sum()
        loss.backward()
        return [loss, *gradients(model)]

    both(device, step, lambda: Custom(4, 3), steps=16)


def test_python_state_read_in_the_backward(device):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, owner):
            ctx.owner = owner
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.owner.factor, None

    class Custom(nn.Linear):
        factor = 1.0

        def forward(self, x):
            return Scale.apply(super().forward(x), self)

    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).sum()
        model.factor = float(number // 5)
        loss.backward()
        return [loss, *gradients(model)]

    both(device, step, lambda: Custom(4, 3), steps=20)


def test_grad_no_grad_and_inference_in_turn(device):
    def step(model, call, number, device):
        model.zero_grad()
        x = torch.randn(5, 4, device=device)
        if number % 3 == 0:
            loss = call(x).sum()
            loss.backward()
            return [loss, *gradients(model)]
        with torch.no_grad() if number % 3 == 1 else torch.inference_mode():
            return [call(x)]

    g = both(device, step, steps=18)
    assert g.report().replayed >= 12 and g.report().backwards_replayed >= 3


def test_gradients_switched_on_inside(device):
    class Inside(Net):
        def forward(self, x):
            with torch.enable_grad():
                return super().forward(x)

    def step(model, call, number, device):
        model.zero_grad()
        with torch.no_grad():
            out = call(torch.randn(5, 4, device=device))
        assert out.requires_grad
        out.sum().backward()
        return [out, *gradients(model)]

    replays_both(both(device, step, Inside))


def test_an_output_changed_in_place(device):
    def step(model, call, number, device):
        model.zero_grad()
        out = call(torch.randn(5, 4, device=device))
        out.mul_(2).add_(1)
        out.square().sum().backward()
        return [out, *gradients(model)]

    replays_both(both(device, step, lambda: nn.Linear(4, 3)))


@pytest.mark.parametrize("which", ["argument", "result"])
def test_what_backward_needs_is_changed(device, which):
    """Eager refuses; the recording has copies of its own, and refuses too."""
    weight = torch.full((3,), 2.0, device=device, requires_grad=True)
    g = rote.graph(lambda x: (weight * x).exp())
    for number in range(STEPS):
        x = torch.full((3,), 0.5, device=device)
        y = g(x)
        if number % 2:
            (x if which == "argument" else y).add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
        else:
            y.sum().backward()
    assert g.report().replayed >= 4


def test_what_backward_does_not_need_is_changed(device):
    layer = nn.Linear(4, 3).to(device).requires_grad_(False)
    g = rote.graph(layer)
    for _ in range(STEPS):
        leaf = torch.randn(5, 4, device=device, requires_grad=True)
        x = leaf * 1
        y = g(x)
        with torch.no_grad():
            x.zero_()
            y.zero_()
        y.sum().backward()
        assert torch.allclose(leaf.grad, layer.weight.sum(0).expand(5, 4), atol=1e-5)
    assert g.report().replayed == STEPS - 2


def test_reset_between_forward_and_backward(device):
    def step(model, call, number, device):
        model.zero_grad()
        loss = call(torch.randn(5, 4, device=device)).square().mean()
        if number % 5 == 4 and isinstance(call, rote.Graphed):
            call.reset()
        loss.backward()
        return [loss, *gradients(model)]

    both(device, step, steps=20)


def test_the_wrapper_dropped_before_backward(device):
    model = Net().to(device)
    x = torch.randn(5, 4, device=device)
    model(x).square().mean().backward()
    wanted = [gradient.clone() for gradient in gradients(model)]
    g = rote.graph(model)
    for _ in range(5):
        model.zero_grad()
        loss = g(x).square().mean()
    gone = weakref.ref(g)
    del g
    gc.collect()
    assert gone() is None
    loss.backward()
    assert all(torch.equal(a, b) for a, b in zip(wanted, gradients(model), strict=True))


def test_embedding_with_sparse_gradients(device):
    def step(model, call, number, device):
        model.zero_grad()
        out = call(torch.randint(0, 7, (5,), device=device))
        out.square().sum().backward()
        return [out, model.weight.grad.to_dense()]

    both(device, step, lambda: nn.Embedding(7, 3, sparse=True))


def test_whole_step_around_a_graphed_forward(device):
    """The outer callable traces the inner one plainly."""
    torch.manual_seed(0)
    plain = Net().to(device)
    model = copy.deepcopy(plain)
    inner = rote.graph(model)

    def run(model, forward, step):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def whole(x):
            optimizer.zero_grad()
            loss = forward(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = step(whole)
        torch.manual_seed(1)
        return [call(torch.randn(5, 4, device=device)) for _ in range(STEPS)]

    wanted, got = run(plain, plain, lambda f: f), run(model, inner, rote.graph)
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))


def test_backward_of_a_result_inside_another_graphed_call(device):
    """The result of one wrapper is an argument of another that runs backward inside."""
    layer, grads = nn.Linear(4, 4).to(device), []
    first, second = rote.graph(layer), rote.graph(lambda y: y.square().sum().backward())
    for _ in range(STEPS):
        layer.zero_grad()
        x = torch.randn(3, 4, device=device)
        second(first(x))
        grads.append(layer.weight.grad.clone())
        layer.zero_grad()
        layer(x).square().sum().backward()
        assert torch.equal(grads[-1], layer.weight.grad)


def test_many_gradients_are_tensors_of_their_own(device):
    """They are handed out as parts of one copy, yet one may be changed while a graph needs another."""

    def build():
        return nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])

    def step(model, call, number, device):
        model.zero_grad()
        call(torch.randn(5, 4, device=device)).square().mean().backward()
        first, second, *_ = gradients(model)
        leaf = torch.ones_like(first, requires_grad=True)
        product = (first * leaf).sum()
        second.mul_(2)
        product.backward()
        return [leaf.grad, *gradients(model)]

    replays_both(both(device, step, build))


def test_backward_of_a_result_inside_an_eager_call(device):
    """On a GPU the recorded node runs on a thread of autograd while the outer call waits for it."""
    layer, numbers = nn.Linear(4, 4).to(device), iter(range(1000))
    inner = rote.graph(layer)
    outer = rote.graph(lambda y: (y.square().sum() * next(numbers)).backward())
    for number in range(14):
        layer.zero_grad()
        x = torch.randn(3, 4, device=device)
        outer(inner(x))
        got = layer.weight.grad.clone()
        layer.zero_grad()
        (layer(x).square().sum() * number).backward()
        assert torch.equal(got, layer.weight.grad)
    assert outer.report().replayed == 0


class Sparse(nn.Module):
    """Its embedding gets a sparse gradient, whose indices are a view of the argument."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2)

    def forward(self, index):
        return self.head(self.embedding(index).mean(1))


def parts_of(gradient):
    return [gradient] if gradient.layout is torch.strided else [gradient._indices(), gradient._values()]


def test_sparse_gradients_that_are_held_and_summed(device):
    def step(model, call, number, device):
        if number % 3 == 0:
            model.zero_grad()
        loss = call(torch.randint(0, 9, (3, 5), device=device)).square().mean()
        loss.backward()
        return [loss, *[part for gradient in gradients(model) for part in parts_of(gradient)]]

    g = both(device, step, build=Sparse)
    assert g.report().replayed >= STEPS - 2, g.explain()


class Adjoint(torch.autograd.Function):
    """Saves the parameters of a module, and goes back through what it computes again with them."""

    @staticmethod
    def forward(ctx, module, x, *parameters):
        with torch.no_grad():
            y = module(x)
        ctx.module = module
        ctx.save_for_backward(x, *parameters)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.module(x)
        found = torch.autograd.grad(y, [x, *parameters], gradient, allow_unused=True)
        return None, *found


@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # at its first use in autograd's thread
@pytest.mark.parametrize("steps", [0.0, 0.125])
def test_a_backward_that_asks_for_gradients_of_saved_parameters(device, steps):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    other = copy.deepcopy(module)

    def gradients(fn, layers, x):
        result = fn(x)
        result.sum().backward()
        found = [result.detach(), x.grad, *[parameter.grad for parameter in layers.parameters()]]
        layers.zero_grad()
        with torch.no_grad():
            for parameter in layers.parameters():
                parameter.sub_(steps)
        return found

    def plain(x):
        return Adjoint.apply(other, x, *other.parameters())

    g = rote.graph(lambda x: Adjoint.apply(module, x, *module.parameters()))
    try:
        for _ in range(7):
            x = torch.randn(5, 3, device=device)
            mine = gradients(g, module, x.clone().requires_grad_())
            theirs = gradients(plain, other, x.requires_grad_())
            assert_same(mine, theirs)
        report = g.report()
        assert (report.replayed, report.backwards_replayed) >= (5, 4), g.explain()
    finally:
        g.reset()


def test_every_backward_that_is_no_replay_has_a_reason(device, reason):
    net = nn.Linear(4, 6).to(device)

    def called(g):
        return g(torch.randn(5, 4, device=device))

    g = rote.graph(net)
    for _ in range(4):
        called(g).sum().backward()
    late = called(g)
    g.reset()
    late.sum().backward()
    assert "given back before" in reason(g, "RT307").message

    g = rote.graph(net)
    for _ in range(4):
        called(g).sum().backward()
    with Observer():
        called(g).sum().backward()  # which is not even counted
    late = called(g)
    with Observer():
        late.sum().backward()
    assert reason(g, "RT307").remedy == "Call backward() outside of it."

    g = rote.graph(lambda x: net(x) * x.sum().item())
    for _ in range(4):
        called(g).sum().backward()
    text = "its forward went a way that is not recorded"
    assert sum(text in why.message for why in g.report().reasons) == 1, g.explain()

    g = rote.graph(lambda x: net(x).chunk(3, -1))
    for number in range(40):
        parts = called(g)
        sum(part.sum() for place, part in enumerate(parts) if (number % 7 + 1) >> place & 1).backward()
    assert "of other results" in reason(g, "RT307").message
    assert reason(g, "RT307").count == 6


class Observer(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
