"""Numbers that change in operations with gradients, whose backward takes them again."""

from __future__ import annotations

import math
import types
from functools import partial

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from tests.conformance.numbers_programs import bits
from tests.conformance.placing import between_segments
from tests.seeds import seed
from torch import nn
from torch.utils.checkpoint import checkpoint

import rote

pytestmark = pytest.mark.parametrize("device", ["cpu"], indirect=True)


@pytest.fixture(params=["captured", "between segments"])
def _placed(request, monkeypatch):
    """Operations with numbers that change, as the backend takes them, and as one takes them that cannot."""
    if request.param != "captured":
        between_segments(monkeypatch)


FOLLOWED = {
    "mul": lambda x, y, n: x * n,
    "of both": lambda x, y, n: (n * x) * (y - x * n),
    "div": lambda x, y, n: x / (n or 1),
    "numerator": lambda x, y, n: n / (x.abs() + 1),
    "add": lambda x, y, n: (x + n) * (n + x),
    "add alpha": lambda x, y, n: torch.add(y, x, alpha=n),
    "sub": lambda x, y, n: (x - n) * (n - x),
    "sub alpha": lambda x, y, n: torch.sub(x, x, alpha=n) + torch.sub(y, x, alpha=n),
    "pow": lambda x, y, n: (x.abs() + 1) ** n,
    "elu": lambda x, y, n: torch._C._nn.elu(x, n, 2, 3),
    "leaky": lambda x, y, n: torch._C._nn.leaky_relu(x, n),
    "hardtanh": lambda x, y, n: torch._C._nn.hardtanh(x, -abs(n) - 1.0, abs(n) + 1.0),
    "threshold": lambda x, y, n: torch.threshold(x, n, n),
    "huber": lambda x, y, n: torch._C._nn.huber_loss(x, y, 1, abs(n) + 0.1),
    "clamp": lambda x, y, n: x.clamp(-abs(n), abs(n)) + x.clamp(min=n) + x.clamp(max=n) + x.clamp_min(n),
    "addcmul": lambda x, y, n: torch.addcmul(y, x, x, value=n),
    "addcdiv": lambda x, y, n: torch.addcdiv(y, x, x.abs() + 1, value=n),
    "masked": lambda x, y, n: x.masked_fill(y > 0, n),
    "softplus": lambda x, y, n: F.softplus(x, float(n)),
    "remainder": lambda x, y, n: x % (n or 1) + torch.fmod(x, n or 1),
    "diagonals": lambda x, y, n: (y * x).tril(int(n) % 5 - 2) + (x + y).triu(int(n) % 3 - 1),
    "rolled": lambda x, y, n: (x.roll(int(n) % 7 - 3, 0) * y).roll(-(int(n) % 4), 1) * y,
    "filled": lambda x, y, n: x.nan_to_num(float(n)) + x.index_fill(0, torch.tensor([1]), float(n)) * y,
    "shrunk": lambda x, y, n: F.hardshrink(x, abs(float(n))) + F.softshrink(y * x, abs(float(n))),
    "twice": lambda x, y, n: (x * n).exp() * n - (y + n) * n,
    "aside": lambda x, y, n: x * n + _aside(y * x, n),
    "in place": lambda x, y, n: x.clone().mul_(n).add_(y, alpha=n).sub_(x, alpha=n).div_(n or 1),
}
"""Programs whose numbers are followed into the backward."""
OTHERS = {
    "elu in Python": lambda x, y, n: F.elu(x, alpha=float(n)),
    "leaky in Python": lambda x, y, n: F.leaky_relu(x, float(n)),
    "threshold in Python": lambda x, y, n: F.threshold(x, float(n), float(n)),
    "hardtanh in Python": lambda x, y, n: F.hardtanh(x, -abs(n) - 1.0, abs(n) + 1.0),
    "rolled twice": lambda x, y, n: x.roll((int(n) % 3, int(n) % 2), (0, 1)) * y,
    "rolled as one": lambda x, y, n: (x.t().roll(int(n) % 5)).roll(int(n) % 2, 0) * y,
    "smooth": lambda x, y, n: F.smooth_l1_loss(x, y, beta=abs(float(n))),
    "huber in Python": lambda x, y, n: F.huber_loss(x, y, delta=abs(n) + 0.1),
    "lerp": lambda x, y, n: torch.lerp(x, y, float(n)),
    "base": lambda x, y, n: (abs(n) + 1.0) ** x,
    "addmm": lambda x, y, n: torch.addmm(x[:3, :3], x[:3].T[:3], x[:3, :3], alpha=n, beta=n),
    "view": lambda x, y, n: x.clone()[0].mul_(n) * 2,
    "of a view": lambda x, y, n: x.clone().view(-1).mul_(n),
    "where": lambda x, y, n: torch.where(y > 0, x, n),
    "foreach": lambda x, y, n: sum(torch._foreach_mul([x, y], n)),
    "foreach list": lambda x, y, n: sum(torch._foreach_mul([x, y], [n, 2])),
    "norm": lambda x, y, n: x.norm(abs(float(n)) + 1),
    "dropout": lambda x, y, n: F.dropout(x, min(abs(n), 1) * 0.5),
    "attention": lambda x, y, n: F.scaled_dot_product_attention(x[None], y[None], x[None], scale=float(n)),
    "checkpointed": lambda x, y, n: checkpoint(lambda a: (a * n).sin() * n, x, use_reentrant=False),
    "kept": lambda x, y, n: Kept.apply(x, n),
    "second": lambda x, y, n: torch.autograd.grad((x.square() * n).sum(), x, create_graph=True)[0],
    "hooked": lambda x, y, n: _hooked(x, n),
}
"""Programs where they may be conditions."""


class Kept(torch.autograd.Function):
    """A function that keeps a number for its backward."""

    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x * n

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.n + 1), None


@torch.no_grad()
def _aside(x, n):
    return x * n


def _hooked(x, n):
    y = x * 2
    y.register_hook(lambda grad: grad * n)
    return y


def step(program):
    w = torch.ones(4, 4, requires_grad=True)

    def run(x, y, n):
        loss = program(x * w, y, n).sum()
        return [loss.detach(), *torch.autograd.grad(loss, w)]

    return run


def run(program, values, device):
    graphed, plain = (step(program) for _ in range(2))
    graphed = rote.graph(graphed, keep=True)
    for number, value in enumerate(values):
        made = torch.Generator().manual_seed(number)
        seen = []
        for each in (graphed, plain):
            seed(number)
            x, y = (torch.randn(4, 4, generator=made.manual_seed(number)).to(device) for _ in range(2))
            try:
                seen.append(bits(each(x, y, value)))
            except (RuntimeError, OverflowError, ZeroDivisionError, ValueError) as error:
                seen.append(str(error))
        assert seen[0] == seen[1], (number, value)
    return graphed.report().replayed


FLOATS = [
    0.5,
    1.0,
    2.0,
    0.0,
    -0.0,
    1.5,
    -1.0,
    3.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-310,
    1e308,
    2**53 + 0.0,
    7.5,
]
WHOLE = [3, 2, 1, 0, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**53 + 1, 255, 256, 257, 5]


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("_placed")
@pytest.mark.parametrize("name", FOLLOWED)
def test_numbers_are_followed_into_the_backward(device, name):
    assert run(FOLLOWED[name], [0.3 + 0.1 * n for n in range(14)], device) >= 7
    assert run(FOLLOWED[name], [3 + n for n in range(14)], device) >= 7


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("_placed")
@pytest.mark.parametrize("values", [FLOATS, WHOLE])
@pytest.mark.parametrize("name", [*FOLLOWED, *OTHERS])
def test_special_values(device, name, values):
    again = values if name in FOLLOWED else values[:3]  # a condition is asked once more
    run((FOLLOWED | OTHERS)[name], [*[n + values[0] for n in range(7)], *values, *again], device)


numbers = some.one_of(some.floats(width=64), some.floats(width=32), some.sampled_from(FLOATS)) | some.one_of(
    some.integers(-(2**63), 2**63 - 1), some.sampled_from(WHOLE)
)


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(name=some.sampled_from([*FOLLOWED, *OTHERS]), values=some.lists(numbers, min_size=4, max_size=12))
def test_any_values(device, name, values):
    first = type(values[0])
    run((FOLLOWED | OTHERS)[name], [*[first(n + 3) for n in range(7)], *values], device)


@pytest.mark.usefixtures("_placed")
def test_a_training_step_with_a_scale_and_a_temperature(device):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        log_alpha = torch.zeros(1, requires_grad=True)
        tune = torch.optim.SGD([log_alpha], lr=0.1)

        def train(x, scale):
            alpha = log_alpha.exp().item()
            optimizer.zero_grad()
            out = model(x)
            loss = (alpha * out - out.square()).mean() * scale
            loss.backward()
            optimizer.step()
            tune.zero_grad()
            (log_alpha * out.detach().mean()).sum().backward()
            tune.step()
            return loss.detach(), alpha

        return train, lambda: [*[each.detach() for each in model.parameters()], log_alpha.detach()]

    (graphed, state), (plain, other) = make(), make()
    graphed = rote.graph(graphed, keep=True)
    for number in range(40):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(number)).to(device)
        assert bits(graphed(x, 1 / (number + 1))) == bits(plain(x, 1 / (number + 1))), number
        assert bits(state()) == bits(other()), number
    assert graphed.report().replayed >= 25


@pytest.mark.parametrize("keep, read", [
    (lambda n: n, lambda kept: kept),
    (lambda n: n * 2 + 1, lambda kept: kept),
    (lambda n: [n, (n,)], lambda kept: kept[1][0]),
    (lambda n: {"n": n}, lambda kept: kept["n"]),
    (lambda n: lambda: n * 2, lambda kept: kept()),
    (lambda n: partial(pow, n), lambda kept: kept(2)),
    (lambda n: types.SimpleNamespace(n=n), lambda kept: kept.n),
    (lambda n: numpy.full(2, n), lambda kept: float(kept[1])),
    (lambda n: numpy.array([n, 1.0]), lambda kept: float(kept.sum())),
])  # fmt: skip
def test_a_number_outside_that_is_kept_for_a_backward_after_the_call(device, keep, read):
    state = types.SimpleNamespace()

    class Keeping(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = keep(state.number)
            return x * state.number

        @staticmethod
        def backward(ctx, grad):
            return grad * read(ctx.kept)

    weight = torch.ones(3, device=device, requires_grad=True)
    g = rote.graph(lambda x: Keeping.apply(x * weight))
    for number in range(12):
        state.number, weight.grad = float(number), None
        g(torch.ones(3, device=device)).sum().backward()
        assert weight.grad.tolist() == [read(keep(float(number)))] * 3
