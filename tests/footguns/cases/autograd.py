"""Autograd: a graphed forward with backward outside, and whole training steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from tests.footguns.case import Kind, Wrap, attempt, case, full
from torch import nn
from torch.utils.checkpoint import checkpoint

Items = Iterator[Any]


def mlp(device: torch.device) -> nn.Sequential:
    """Two layers, 4 to 2 features."""
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)).to(device)


def batch(device: torch.device) -> torch.Tensor:
    """Three rows."""
    return torch.randn(3, 4, device=device)


def grads(m: nn.Module) -> list[torch.Tensor | None]:
    """The gradients of all parameters."""
    return [p.grad for p in m.parameters()]


def step_of(m: nn.Module, o: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    """A whole training step."""

    def step(x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss.detach()

    return step


def train(wrap: Wrap, m: nn.Module, o: torch.optim.Optimizer, device: torch.device, steps: int = 12) -> Items:
    """Graph the whole step and show losses and parameters."""
    g = wrap(step_of(m, o))
    for _ in range(steps):
        yield g(batch(device)), list(m.parameters())


# ------------------------------------------------------------------ forward graphed, backward outside


@case(Kind.REFUSED)
def backward_outside(wrap: Wrap, device: torch.device) -> Items:
    """The forward is graphed; backward and the optimizer's step are plain."""
    m = mlp(device)
    o, g = torch.optim.SGD(m.parameters(), lr=0.1), wrap(m)
    for _ in range(10):
        o.zero_grad()
        loss = g(batch(device)).square().mean()
        loss.backward()
        o.step()
        yield loss, grads(m), list(m.parameters())


@case(Kind.REFUSED)
def gradients_accumulated(wrap: Wrap, device: torch.device) -> Items:
    """Gradients of three batches add up before they are used."""
    m = mlp(device)
    g = wrap(m)
    for i in range(12):
        if i % 3 == 0:
            m.zero_grad()
        g(batch(device)).square().mean().backward()
        yield grads(m)


@case(Kind.REFUSED)
def gradients_held_over_steps(wrap: Wrap, device: torch.device) -> Items:
    """The gradients of every step are kept, as for a noise estimate."""
    m, held = mlp(device), []
    g = wrap(m)
    for _ in range(10):
        m.zero_grad()
        g(batch(device)).square().mean().backward()
        held.append(m[0].weight.grad)
        yield held[-1]
    yield held


@case(Kind.REFUSED)
def several_forwards_before_their_backwards(wrap: Wrap, device: torch.device) -> Items:
    """Two forwards, then the backwards of both, the first one last."""
    m = mlp(device)
    g = wrap(m)
    for _ in range(8):
        m.zero_grad()
        first, second = g(batch(device)), g(batch(device))
        second.square().mean().backward()
        yield grads(m)
        first.square().mean().backward()
        yield grads(m)


@case(Kind.REFUSED)
def used_twice_in_one_loss(wrap: Wrap, device: torch.device) -> Items:
    """A contrastive loss uses one encoder for both sides."""
    m = mlp(device)
    g = wrap(m)
    for _ in range(8):
        m.zero_grad()
        loss = (g(batch(device)) - g(batch(device))).square().mean()
        loss.backward()
        yield loss, grads(m)


@case(Kind.REFUSED)
def backward_twice_with_the_graph_retained(wrap: Wrap, device: torch.device) -> Items:
    """Backward runs twice over one forward."""
    m = mlp(device)
    g = wrap(m)
    for _ in range(10):
        m.zero_grad()
        y = g(batch(device))
        y.mean().backward(retain_graph=True)
        y.square().mean().backward()
        yield grads(m)


@case(Kind.REFUSED)
def gradients_of_a_part(wrap: Wrap, device: torch.device) -> Items:
    """``torch.autograd.grad`` asks for one parameter's gradient, another one in turn."""
    m = mlp(device)
    g, parameters = wrap(m), list(m.parameters())
    for i in range(12):
        yield torch.autograd.grad(g(batch(device)).square().mean(), parameters[i % 4])


@case(Kind.REFUSED)
def one_of_two_heads_used(wrap: Wrap, device: torch.device) -> Items:
    """Of two results only one reaches the loss; the other head gets no gradient."""
    trunk, heads = mlp(device), nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]).to(device)

    def fn(x):
        h = trunk(x).relu()
        return heads[0](h), heads[1](h)

    g = wrap(fn)
    for i in range(12):
        trunk.zero_grad()
        heads.zero_grad()
        g(batch(device))[i % 2].square().mean().backward()
        yield grads(trunk), grads(heads)


@case(Kind.WRONG)
def gradient_of_an_input(wrap: Wrap, device: torch.device) -> Items:
    """The gradient with respect to the input is wanted, as in attacks and guidance."""
    m = mlp(device).requires_grad_(False)
    g = wrap(m)
    for _ in range(10):
        x = batch(device).requires_grad_()
        g(x).square().mean().backward()
        yield x.grad


@case(Kind.WRONG)
def input_from_a_graph(wrap: Wrap, device: torch.device) -> Items:
    """A plain layer before the graphed one gets its gradient through it."""
    before, m = nn.Linear(4, 4).to(device), mlp(device)
    g = wrap(m)
    for _ in range(10):
        before.zero_grad()
        g(before(batch(device)).relu()).square().mean().backward()
        yield grads(before)


@case(Kind.WRONG)
def two_graphs_in_one_backward(wrap: Wrap, device: torch.device) -> Items:
    """Encoder and decoder are graphed one by one and trained together."""
    a, b = mlp(device), nn.Linear(2, 4).to(device)
    encode, decode = wrap(a), wrap(b)
    for _ in range(10):
        a.zero_grad()
        b.zero_grad()
        x = batch(device)
        loss = (decode(encode(x)) - x).square().mean()
        loss.backward()
        yield loss, grads(a), grads(b)


@case(Kind.REFUSED, replays=None)
def checkpointed_outside(wrap: Wrap, device: torch.device) -> Items:
    """A graphed block with dropout is recomputed in backward by ``checkpoint``."""
    m = nn.Sequential(mlp(device), nn.Dropout(0.5))
    g = wrap(m)
    for _ in range(8):
        m.zero_grad()
        y = checkpoint(g, batch(device), use_reentrant=False)
        y.square().mean().backward()
        yield y, grads(m)


@case(Kind.REFUSED)
def hook_on_a_parameter(wrap: Wrap, device: torch.device) -> Items:
    """A hook on a parameter scales its gradient, from the sixth step on."""
    m = mlp(device)
    g = wrap(m)
    for i in range(12):
        if i == 6:
            m[0].weight.register_hook(lambda grad: grad * 10)
        m.zero_grad()
        g(batch(device)).square().mean().backward()
        yield grads(m)


@case(Kind.REFUSED)
def hook_on_a_result(wrap: Wrap, device: torch.device) -> Items:
    """A hook on the result sees the gradient that arrives there."""
    m, seen = mlp(device), []
    g = wrap(m)
    for _ in range(10):
        y = g(batch(device))
        y.register_hook(seen.append)
        y.retain_grad()
        y.square().mean().backward()
        yield y.grad, seen[-1]


@case(Kind.REFUSED, replays=None)
def gradient_penalty(wrap: Wrap, device: torch.device) -> Items:
    """A gradient is part of the loss, so backward goes through a backward."""
    m = mlp(device)
    g = wrap(m)
    for _ in range(8):
        m.zero_grad()
        x = batch(device).requires_grad_()
        (slope,) = torch.autograd.grad(g(x).sum(), x, create_graph=True)
        slope.square().sum().backward()
        yield grads(m)[:3]


@case(Kind.REFUSED)
def frozen_after_some_steps(wrap: Wrap, device: torch.device) -> Items:
    """The first layer is frozen in the middle of training, and thawed later."""
    m = mlp(device)
    g = wrap(m)
    for i in range(18):
        m[0].requires_grad_(not 6 <= i < 12)
        m.zero_grad()
        g(batch(device)).square().mean().backward()
        yield grads(m)


@case(Kind.REFUSED)
def training_and_evaluation_in_turn(wrap: Wrap, device: torch.device) -> Items:
    """One graph serves training with gradients and evaluation without."""
    m = mlp(device)
    o, g = torch.optim.SGD(m.parameters(), lr=0.1), wrap(m)
    for i in range(16):
        if i % 4 == 3:
            with torch.no_grad():
                yield g(batch(device))
            continue
        o.zero_grad()
        loss = g(batch(device)).square().mean()
        loss.backward()
        o.step()
        yield loss


@case(Kind.REFUSED)
def backward_that_reads_python(wrap: Wrap, device: torch.device) -> Items:
    """The backward of a custom function reads a variable that changes, also between forward and backward."""
    factor = [3.0]

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * factor[0]

    m = mlp(device)
    g = wrap(lambda x: Scaled.apply(m(x)))
    for i in range(24):
        factor[0] = 3.0 if i < 8 else 5.0
        m.zero_grad()
        loss = g(batch(device)).sum()
        if i >= 16:
            factor[0] = 7.0
        loss.backward()
        yield grads(m)


@case(Kind.REFUSED)
def recurrent_over_three_steps(wrap: Wrap, device: torch.device) -> Items:
    """A cell is called three times, each time with its last state, before one backward through all."""
    cell = nn.GRUCell(3, 4).double().to(device)
    g = wrap(cell)
    for _ in range(8):
        cell.zero_grad()
        h = torch.zeros(2, 4, device=device, dtype=torch.float64)
        for _ in range(3):
            h = g(torch.randn(2, 3, device=device, dtype=torch.float64), h)
        h.square().sum().backward()
        # At the step that records, the three gradients may be added in another order.
        yield h, [gradient.float() for gradient in grads(cell)]


@case(Kind.REFUSED)
def dropout_in_the_forward(wrap: Wrap, device: torch.device) -> Items:
    """Two forwards with dropout, then their backwards: each has the mask of its own forward."""
    m = nn.Sequential(mlp(device), nn.Dropout(0.5))
    g = wrap(m)
    for _ in range(10):
        m.zero_grad()
        first, second = g(batch(device)), g(batch(device))
        first.sum().backward()
        second.sum().backward()
        yield first, second, grads(m), torch.rand(1, device=device)


@case(Kind.REFUSED)
def result_changed_in_place(wrap: Wrap, device: torch.device) -> Items:
    """The caller works in place on the result, and the gradient goes through that as well."""
    weight = nn.Parameter(torch.ones(4, device=device))
    g = wrap(lambda x: weight * x)
    for i in range(12):
        weight.grad = None
        y = g(full(i + 1, device))
        y.mul_(3)
        y[:2] = 0
        y.sum().backward()
        yield y, weight.grad


@case(Kind.REFUSED)
def optimizer_in_a_hook(wrap: Wrap, device: torch.device) -> Items:
    """Each parameter is stepped by a hook as soon as its gradient is there."""
    m = mlp(device)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in optimizers:
        p.register_post_accumulate_grad_hook(hook)
    g = wrap(m)
    for _ in range(12):
        g(batch(device)).square().mean().backward()
        yield list(m.parameters()), grads(m)


@case(Kind.REFUSED, replays=None)
def hook_of_a_module(wrap: Wrap, device: torch.device) -> Items:
    """A full backward hook on a layer inside sees the gradients of every step."""
    m, seen = mlp(device), []
    m[2].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0]))
    g = wrap(m)
    for _ in range(10):
        m.zero_grad()
        g(batch(device)).square().mean().backward()
        yield len(seen), seen[-1], grads(m)


@case(Kind.REFUSED)
def loss_scaled_outside(wrap: Wrap, device: torch.device) -> Items:
    """A GradScaler around a graphed forward; one batch overflows."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler, g = torch.amp.GradScaler(device.type, init_scale=64.0), wrap(m)
    for i in range(14):
        o.zero_grad()
        x = batch(device)
        scaler.scale(g(x * float("inf") if i == 8 else x).square().mean()).backward()
        scaler.step(o)
        scaler.update()
        yield list(m.parameters()), scaler.get_scale()


@case(Kind.REFUSED)
def parameter_replaced_before_backward(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is replaced between forward and backward: the old one gets the gradient."""
    m = mlp(device)
    g = wrap(m)
    for i in range(18):
        m.zero_grad()
        loss, old = g(batch(device)).sum(), m[0].weight
        if i == 8:
            m[0].weight = nn.Parameter(old.detach() * 2)
        loss.backward()
        yield grads(m), old.grad


@case(Kind.WRONG)
def changed_before_backward(wrap: Wrap, device: torch.device) -> Items:
    """The argument or the result, which backward needs, is changed in place: eager raises."""
    weight = nn.Parameter(torch.ones(4, device=device))
    g = wrap(lambda x: (weight * x).exp())
    for i in range(16):
        weight.grad = None
        x = full(i / 8, device)
        y = g(x)
        if i % 4 > 1:
            (x if i % 4 == 2 else y).add_(1)
        yield type(attempt(y.sum().backward)).__name__, weight.grad


# ------------------------------------------------------------------ whole steps


@case(Kind.RIGHT)
def sgd_with_momentum(wrap: Wrap, device: torch.device) -> Items:
    """Whole steps with momentum, whose buffers are made in the first one."""
    m = mlp(device)
    yield from train(wrap, m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), device)


@case(Kind.REFUSED, replays=None)
def adam_that_counts_in_python(wrap: Wrap, device: torch.device) -> Items:
    """Plain Adam takes its bias correction from a step count on the host."""
    m = mlp(device)
    yield from train(wrap, m, torch.optim.Adam(m.parameters(), lr=0.01, foreach=False), device)


@case(Kind.REFUSED, replays=None)
def adamw_foreach(wrap: Wrap, device: torch.device) -> Items:
    """AdamW over lists of tensors."""
    m = mlp(device)
    yield from train(wrap, m, torch.optim.AdamW(m.parameters(), lr=0.01, foreach=True), device)


@case(Kind.RIGHT)
def adamw_fused(wrap: Wrap, device: torch.device) -> Items:
    """AdamW in one kernel, which counts on the device."""
    m = mlp(device)
    yield from train(wrap, m, torch.optim.AdamW(m.parameters(), lr=0.01, fused=True), device)


@case(Kind.WRONG)
def learning_rate_scheduled(wrap: Wrap, device: torch.device) -> Items:
    """A schedule lowers the learning rate between the steps."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    schedule, g = torch.optim.lr_scheduler.StepLR(o, step_size=8, gamma=0.1), wrap(step_of(m, o))
    for _ in range(24):
        yield g(batch(device)), m[0].weight
        schedule.step()


@case(Kind.WRONG, replays=None)
def learning_rate_changed_at_every_step(wrap: Wrap, device: torch.device) -> Items:
    """A cosine schedule gives another learning rate at every step."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    schedule, g = torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=16), wrap(step_of(m, o))
    for _ in range(16):
        yield g(batch(device)), m[0].weight
        schedule.step()


@case(Kind.WRONG)
def clipped(wrap: Wrap, device: torch.device) -> Items:
    """Gradients are clipped to a norm, which is returned."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        o.zero_grad()
        m(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        o.step()
        return norm

    g, norms = wrap(step), []
    for _ in range(12):
        norms.append(g(batch(device)))
        yield norms[-1], m[0].weight
    yield norms


@case(Kind.REFUSED, replays=None)
def gradients_scaled(wrap: Wrap, device: torch.device) -> Items:
    """A GradScaler finds an infinity in one of the batches, skips that step and lowers its scale."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)

    def step(x):
        o.zero_grad()
        loss = m(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(o)
        scaler.update()
        return loss.detach()

    g = wrap(step)
    for i in range(14):
        x = batch(device)
        yield g(x * float("inf") if i == 9 else x), m[0].weight, scaler.get_scale()


@case(Kind.RIGHT)
def average_of_the_weights(wrap: Wrap, device: torch.device) -> Items:
    """An exponential moving average of the weights is updated in the step."""
    m, average = mlp(device), mlp(device).requires_grad_(False)
    inner = step_of(m, torch.optim.SGD(m.parameters(), lr=0.1))

    def step(x):
        loss = inner(x)
        with torch.no_grad():
            for mine, other in zip(average.parameters(), m.parameters(), strict=True):
                mine.lerp_(other, 0.1)
        return loss.clone()

    g = wrap(step)
    for _ in range(12):
        g(batch(device))
        yield list(average.parameters())


@case(Kind.RIGHT)
def accumulated_inside(wrap: Wrap, device: torch.device) -> Items:
    """The step runs two small batches and adds their gradients."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        o.zero_grad()
        for part in x.chunk(2):
            (m(part).square().mean() / 2).backward()
        o.step()

    g = wrap(step)
    for _ in range(12):
        g(torch.randn(6, 4, device=device))
        yield list(m.parameters()), grads(m)


@case(Kind.WRONG)
def losses_and_gradients_held(wrap: Wrap, device: torch.device) -> Items:
    """Losses and gradients of whole steps are kept and looked at in the end."""
    m, losses, held = mlp(device), [], []
    g = wrap(step_of(m, torch.optim.SGD(m.parameters(), lr=0.1)))
    for i in range(14):
        losses.append(g(batch(device)))
        if i % 4 == 1:
            held.append(m[2].weight.grad)
        yield losses[-1]
    yield losses, held


@case(Kind.WRONG)
def gradients_left_for_the_optimizer_outside(wrap: Wrap, device: torch.device) -> Items:
    """Forward and backward are graphed, the optimizer's step and zero_grad are plain."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def forward_backward(x):
        loss = m(x).square().mean()
        loss.backward()
        return loss.detach()

    g = wrap(forward_backward)
    for _ in range(12):
        o.zero_grad()
        yield g(batch(device)), grads(m)
        o.step()


@case(Kind.WRONG)
def layer_frozen_during_whole_steps(wrap: Wrap, device: torch.device) -> Items:
    """The first layer is frozen after some steps; its gradient is None from then on."""
    m = mlp(device)
    g = wrap(step_of(m, torch.optim.SGD(m.parameters(), lr=0.1)))
    for i in range(16):
        if i == 8:
            m[0].requires_grad_(False)
        yield g(batch(device)), list(m.parameters()), grads(m)


@case(Kind.WRONG, replays=None)
def checkpointed_inside(wrap: Wrap, device: torch.device) -> Items:
    """A block with dropout is recomputed in the backward of a whole step."""
    m = nn.Sequential(mlp(device), nn.Dropout(0.5), nn.Linear(2, 2).to(device))
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        o.zero_grad()
        checkpoint(m, x, use_reentrant=False).square().mean().backward()
        o.step()

    g = wrap(step)
    for _ in range(10):
        g(batch(device))
        yield list(m.parameters())


@case(Kind.REFUSED)
def host_read_in_backward(wrap: Wrap, device: torch.device) -> Items:
    """A custom function looks at the gradient on the host in its backward."""

    class Signed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 if grad.sum() > 0 else grad * 2  # RT101 stops

    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.01)

    def step(x):
        o.zero_grad()
        F.mse_loss(Signed.apply(m(x)), x[:, :2]).backward()
        o.step()

    g = wrap(step)
    for _ in range(24):
        g(batch(device))
        yield list(m.parameters())


@case(Kind.WRONG)
def hook_registered_during_whole_steps(wrap: Wrap, device: torch.device) -> Items:
    """A hook on a parameter is registered after some whole steps, and removed again."""
    m = mlp(device)
    g, hook = wrap(step_of(m, torch.optim.SGD(m.parameters(), lr=0.1))), None
    for i in range(18):
        if i == 6:
            hook = m[0].weight.register_hook(lambda grad: grad * 5)
        if i == 12:
            hook.remove()
        yield g(batch(device)), m[0].weight


@case(Kind.RIGHT, replays=None)
def two_optimizers_in_turn(wrap: Wrap, device: torch.device) -> Items:
    """Two networks are trained against each other, by two whole steps that share both networks."""
    a, b = mlp(device), mlp(device)
    oa, ob = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (a, b))

    def step(o, sign, x):
        oa.zero_grad()
        ob.zero_grad()
        loss = sign * (a(x) * b(x).detach().tanh() if o is oa else a(x).detach() * b(x).tanh()).mean()
        loss.backward()
        o.step()
        return loss.detach()

    ga, gb = wrap(lambda x: step(oa, 1.0, x)), wrap(lambda x: step(ob, -1.0, x))
    for _ in range(12):
        yield ga(batch(device)), gb(batch(device)), list(a.parameters()), list(b.parameters())


@case(Kind.WRONG)
def parameter_group_added(wrap: Wrap, device: torch.device) -> Items:
    """A second network joins the optimizer after some whole steps."""
    m, late = mlp(device), mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        o.zero_grad()
        loss = (m(x) + late(x)).square().mean()
        loss.backward()
        o.step()
        return loss.detach()

    g = wrap(step)
    for i in range(16):
        if i == 8:
            o.add_param_group({"params": list(late.parameters()), "lr": 0.5})
        yield g(batch(device)), m[0].weight, late[0].weight


@case(Kind.WRONG)
def training_resumed(wrap: Wrap, device: torch.device) -> Items:
    """Optimizer and model go back to an earlier state in the middle of training."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    g, saved = wrap(step_of(m, o)), None
    for i in range(20):
        if i == 6:
            saved = copy.deepcopy((o.state_dict(), m.state_dict()))
        if i == 12:
            o.load_state_dict(saved[0])
            m.load_state_dict(saved[1])
        yield g(batch(device)), m[0].weight


@case(Kind.REFUSED)
def step_skipped_when_the_norm_is_large(wrap: Wrap, device: torch.device) -> Items:
    """The optimizer's step is left out when the gradient norm is above a bound."""
    m = mlp(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x):
        o.zero_grad()
        m(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        if norm < 0.35:  # RT101 stops
            o.step()
        return norm

    g = wrap(step)
    for _ in range(24):
        yield g(batch(device)), m[0].weight


@case(Kind.REFUSED, replays=False)
def lbfgs(wrap: Wrap, device: torch.device) -> Items:
    """An optimizer that calls the loss several times and decides on the host."""
    m = mlp(device)
    o = torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=3)

    def closure(x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        return loss

    g = wrap(lambda x: o.step(lambda: closure(x)).detach())  # RT201
    for _ in range(8):
        yield g(batch(device)), list(m.parameters())


@case(Kind.REFUSED)
def loss_as_a_number(wrap: Wrap, device: torch.device) -> Items:
    """Every whole step returns its loss as a Python number, another one each time."""
    m = mlp(device)
    step = step_of(m, torch.optim.SGD(m.parameters(), lr=0.1))
    g = wrap(lambda x: step(x).item())  # RT304 on cuda stops
    for _ in range(30):
        yield g(batch(device)), m[0].weight
