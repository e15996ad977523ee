"""Autograd: gradients that are held, hooks that come late, and errors of the backward pass."""

from __future__ import annotations

import warnings

import pytest
import torch
from tests.differential.harness import attempt, check, full
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.checkpoint import checkpoint


def make_step(m, o, forward=None):
    def step(x):
        o.zero_grad()
        loss = (forward or m)(x).pow(2).mean()
        loss.backward()
        o.step()
        return loss.detach()

    return step


def test_checkpoint_with_dropout():
    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        g = wrap(make_step(m, o, lambda x: checkpoint(m, x, use_reentrant=False)))
        for _ in range(8):
            yield g(torch.randn(3, 4))
            yield m[0].weight

    check(scenario)


def test_version_of_a_buffer_saved_for_backward():
    def scenario(wrap):
        buffer, weight = torch.ones(4), torch.ones(4, requires_grad=True)

        def fn(x):
            buffer.add_(x)

        g = wrap(fn)
        for i in range(6):
            total = (weight * buffer).sum()
            g(full(i))
            yield attempt(total.backward)

    check(scenario)


def test_gradients_held_past_the_step():
    def scenario(wrap):
        m = nn.Linear(4, 2)
        g, held = wrap(make_step(m, torch.optim.AdamW(m.parameters(), lr=0.01))), []
        for _ in range(8):
            g(torch.randn(3, 4))
            held.append(m.weight.grad)
        yield held

    check(scenario)


def test_tensor_hook_registered_later():
    def scenario(wrap):
        m = nn.Linear(4, 2)
        g = wrap(make_step(m, torch.optim.SGD(m.parameters(), lr=0.1)))
        for i in range(8):
            if i == 5:
                m.weight.register_hook(lambda grad: grad * 3)
            g(torch.randn(3, 4))
            yield m.weight

    check(scenario)


def test_branches_that_reach_different_parameters():
    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        o = torch.optim.SGD(m.parameters(), lr=0.1)

        def step(x):
            o.zero_grad()
            if x[0, 0] > 0:
                m(x).sum().backward()
            else:
                m[0](x).sum().backward()
            o.step()

        g = wrap(step)
        for _ in range(40):
            g(torch.randn(3, 4))
            yield [p.grad for p in m.parameters()]

    check(scenario)


def test_anomaly_detection():
    def scenario(wrap):
        weight = nn.Parameter(torch.ones(4))
        o = torch.optim.SGD([weight], lr=0.1)

        def fn(x):
            o.zero_grad()
            torch.sqrt(weight * x).sum().backward()
            o.step()

        g = wrap(fn)
        for _ in range(6):
            yield g(full(1))
        with torch.autograd.set_detect_anomaly(True):
            yield attempt(g, full(-1))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        warnings.filterwarnings("ignore", "Error detected in")
        check(scenario)


def _train_once(m):
    m(torch.ones(2, 4)).sum().backward()


def test_gradients_that_a_call_clears_and_that_come_later():
    def scenario(wrap):
        m = nn.Linear(4, 2)

        def fn(x):
            m.zero_grad()
            return m(x).detach()

        g = wrap(fn)
        for i in range(16):
            if i in (6, 7, 12):
                _train_once(m)
            yield g(torch.randn(3, 4))
            yield [p.grad for p in m.parameters()]

    check(scenario)


@pytest.mark.parametrize("clear", [setattr, lambda p, name, _: delattr(p, name)])
def test_gradients_of_tensors_that_a_call_sets(clear):
    def scenario(wrap):
        tensors = [torch.randn(4, requires_grad=True) for _ in range(2)]

        def fn(x):
            with torch.no_grad():
                for tensor in tensors:
                    clear(tensor, "grad", None)
                return x * 2

        g = wrap(fn)
        for i in range(16):
            if i in (6, 7, 12):
                (tensors[0] * 2).sum().backward()
            yield g(full(i))
            yield [tensor.grad for tensor in tensors]

    check(scenario)


def test_which_gradients_there_are():
    def scenario(wrap):
        m = nn.Linear(4, 2)
        g = wrap(lambda x: x * sum(p.grad is not None for p in m.parameters()))
        for i in range(28):
            if i == 6:
                _train_once(m)
            if i == 12:
                m.weight.grad = None
            if i == 16:
                m.requires_grad_(False)
            if i == 20:
                m.zero_grad()
            if i == 24:
                m.bias.grad = torch.ones(2)
            yield g(full(i))

    check(scenario)


@pytest.mark.parametrize("plain", [False, True])
def test_freezing_leaves_a_gradient_behind(plain):
    """The first call after it clears the gradient of the last one before, also the second time."""

    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        if plain:  # no parameters
            m = nn.Module()
            m.a, m.b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
        both = (m.a, m.b) if plain else tuple(m.parameters())
        o = torch.optim.SGD(both, lr=0.1)

        def step(x):
            o.zero_grad()
            y = m.a * m.b * x if plain else m(x)
            y.square().sum().backward()
            norm = nn.utils.clip_grad_norm_(both, 1.0)
            o.step()
            return norm

        g = wrap(step)
        for i in range(60):
            if i % 10 == 9:
                both[0].requires_grad_(i % 20 == 19)
            yield g(torch.randn(4))
            yield [*both, *[p.grad for p in both]]

    check(scenario)


def test_a_gradient_asked_for_on_one_path_only():
    def scenario(wrap):
        m = nn.Linear(4, 2)

        def fn(x):
            y = m(x).detach()
            if x.sum() > 0:
                m.zero_grad()
            return y

        g = wrap(fn)
        for i in range(30):
            if i in (15, 20, 21):
                _train_once(m)
            yield g(torch.ones(3, 4) * (-1 if i % 3 or i < 4 else 1))
            yield [p.grad for p in m.parameters()]

    check(scenario)


def test_freezing_where_only_the_call_takes_gradients():
    """Gradients are off around the call, so that only what it does says that they matter."""

    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
        g = wrap(torch.enable_grad()(make_step(m, torch.optim.SGD(m.parameters(), lr=0.1))))
        for number in range(9):
            m[0].weight.requires_grad_(number // 4 != 1)
            with torch.no_grad():
                yield g(full(number))
            yield m[0].weight

    check(scenario)


def test_freezing_inside():
    """What the call leaves frozen is seen, also where the tensors themselves are not read."""

    def scenario(wrap):
        m = nn.Linear(4, 2)

        def fn(x, trains):
            m.requires_grad_(trains)
            return x * 2

        def whole(x):
            m.requires_grad_(False)
            y = m(x)
            m.weight.requires_grad = True
            return y

        first, second = wrap(fn), wrap(whole)
        for i in range(20):
            yield first(full(i), i % 2 == 0 if i < 10 else i % 3 == 0)
            yield [p.requires_grad for p in m.parameters()]
        for i in range(20):
            if i % 3 == 0 or i > 15:
                m.requires_grad_(i % 2 == 0)
            yield second(full(i))
            yield [p.requires_grad for p in m.parameters()]

    check(scenario)


def test_hooks_of_all_optimizers():
    def scenario(wrap):
        m, count = nn.Linear(4, 2), torch.zeros(())
        g = wrap(make_step(m, torch.optim.SGD(m.parameters(), lr=0.1)))
        hooks = []
        for i in range(24):
            if i in (6, 10):  # another one in its place
                hooks.append(register_optimizer_step_post_hook(lambda *_, i=i: count.add_(i) and None))
            if i in (10, 16):
                hooks.pop(0).remove()
            yield g(torch.randn(3, 4))
            yield count

    check(scenario)


def test_forward_mode():
    def scenario(wrap):
        m = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).requires_grad_(False)
        tangents = wrap(lambda x, t: torch.func.jvp(m, (x,), (t,)))
        jacobian = wrap(lambda x: torch.func.jacfwd(m)(x))
        for _ in range(6):
            yield tangents(torch.randn(4), torch.randn(4))
            yield jacobian(torch.randn(4))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated")
        check(scenario)
