"""Results whose graph a call has gone back through: it asks for gradients, and returns their value.

Eager frees what lies on the way to what the gradients are of. Where each way from a result to a leaf is
freed, a replay's result is like eager's: it requires grad, and its backward raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import rote
from rote.testing import assert_same

CALLS = 14


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0].exp()


def asks(x: torch.Tensor) -> torch.Tensor:
    return x.detach().requires_grad_()


def score(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = s.model(x)[:, 1]
    return torch.autograd.grad(value.sum(), x)[0], value


def energy(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = s.model(x).square().sum()
    return {"energy": value, "forces": -torch.autograd.grad(value, x)[0]}


def features(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    feature = s.model[0](x)
    value = s.model[1:](feature)
    return torch.autograd.grad(value.sum(), x)[0], feature, value


def langevin(s: Any, x: torch.Tensor) -> Any:
    value = None
    for _ in range(3):
        x = asks(x)
        value = s.model(x).sum()
        x = x - 0.1 * torch.autograd.grad(value, x)[0] + 0.01 * torch.randn_like(x)
    return x.detach(), value


def of_parameters(s: Any, x: torch.Tensor) -> Any:
    value = s.model(x).square().mean()
    return torch.autograd.grad(value, list(s.model.parameters())), value


def guided(s: Any, x: torch.Tensor) -> Any:
    with torch.enable_grad():
        x = asks(x)
        chosen = F.log_softmax(s.model(x), -1)[:, 0]
        slope = torch.autograd.grad(chosen.sum(), x)[0]
    with torch.no_grad():
        return x - slope, chosen.mean(), chosen


def own_function(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = Scaled.apply(x @ s.weight)
    return torch.autograd.grad(value.sum(), x)[0], value


def kept(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    s.last = s.model(x).sum()
    return torch.autograd.grad(s.last, x)[0]


FREED = [score, energy, features, langevin, of_parameters, guided, own_function, kept]


def without_saved(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = x.sum() * 2
    return torch.autograd.grad(value, x)[0], value


def another_way(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = s.model(x).sum() + (s.weight * 3).square().sum()
    return torch.autograd.grad(value, x)[0], value


def retained(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = s.model(x).sum()
    return torch.autograd.grad(value, x, retain_graph=True)[0], value


def on_the_way(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = s.model(x).sum()
    return x - torch.autograd.grad(value, x)[0], value


def of_gradients(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = s.model(x).square().sum()
    return torch.autograd.grad(value, x, create_graph=True)[0], value


def of_a_part(s: Any, x: torch.Tensor) -> Any:
    feature = s.model[:2](x)
    value = s.model[2](feature).square().sum()
    return torch.autograd.grad(value, feature)[0], value, feature


def checkpointed(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    value = checkpoint(s.model, x, use_reentrant=False).sum() + (x * s.weight[0]).sum()
    return torch.autograd.grad((x * s.weight[1]).sum(), x)[0], value


def hooked(s: Any, x: torch.Tensor) -> Any:
    x = asks(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda each: each * 1, lambda each: each):
        value = s.model(x).sum()
    return torch.autograd.grad(value, x)[0], value


OTHERS = [without_saved, another_way, retained, on_the_way, of_gradients, of_a_part, checkpointed, hooked]


def captured(s: Any, x: torch.Tensor) -> Any:
    was = x.requires_grad
    if not was:
        x.requires_grad_()
    if x.grad is not None:
        x.grad = None
    chosen = s.model(x)[:, 1]
    slope = torch.autograd.grad(torch.unbind(chosen), x)[0]
    if not was:
        x.requires_grad_(False)
    return slope.abs()


def by_attribute(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad = True
    value = s.model(x).sum()
    slope = torch.autograd.grad(value, x)[0]
    x.requires_grad = False
    return slope, value


def decided_between(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    found = s.model(x)
    chosen = found[:, int(found.sum() > 0)]
    slope = torch.autograd.grad(chosen.sum(), x)[0]
    return slope * x.requires_grad_(False)


def several_times(s: Any, x: torch.Tensor) -> Any:
    found = []
    for row in (x, x * 2):
        row.requires_grad_()
        found.append(torch.autograd.grad(s.model(row).square().sum(), row)[0])
        row.requires_grad_(False)
    return found


ASKED = [by_attribute, decided_between, several_times]


def stays(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    return torch.autograd.grad(s.model(x).sum(), x)[0]


def with_a_history(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    value = s.model(x)
    x.requires_grad_(False)
    return value, x * 2


def with_a_history_of_its_own(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    value = x * 2
    x.requires_grad_(False)
    return value


def filled(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).sum().backward()
    slope, x.grad = x.grad, None
    x.requires_grad_(False)
    s.model.zero_grad()
    return slope


def left_filled(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    s.model(x).sum().backward()
    s.model.zero_grad()
    x.requires_grad_(False)
    return x.grad * 2


def raises_between(s: Any, x: torch.Tensor) -> Any:
    x.requires_grad_()
    slope = torch.autograd.grad(s.model(x).sum(), x)[0]
    if x.sum() > 1:
        raise ValueError("too large")
    x.requires_grad_(False)
    return slope


def at_times(s: Any, x: torch.Tensor) -> Any:
    found = s.model(x).detach()
    if found.sum() > 0:
        x.requires_grad_()
    return found


def unasked(s: Any, x: torch.Tensor) -> Any:
    return s.model(x.requires_grad_(False))


NOT_ASKED = [
    captured,  # it asks for a gradient that the caller may have left
    stays,
    with_a_history,
    with_a_history_of_its_own,
    filled,
    left_filled,
    raises_between,
    unasked,
    at_times,
]


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for part in (value.values() if isinstance(value, dict) else value) for each in tensors(part)]


def back(result: torch.Tensor, s: Any) -> Any:
    """What comes of a backward from a result, behind the call."""
    if not result.requires_grad:
        return None
    try:
        result.sum().backward(retain_graph=True)
    except RuntimeError as error:
        assert "second time" in str(error)
        return "freed"
    found = [each.grad for each in (*s.model.parameters(), s.weight)]
    for each in (*s.model.parameters(), s.weight):
        each.grad = None
    return [each is not None for each in found], [each for each in found if each is not None]


def play(program: Any, device: Any, asking: Sequence[int] = ()) -> Any:
    def made() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).to(device)
        return SimpleNamespace(model=model, weight=nn.Parameter(torch.randn(3, 3, device=device)), last=None)

    ours, theirs = made(), made()
    g = rote.graph(lambda x: program(ours, x), keep=True)
    before = None
    for number in range(CALLS):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(number)).to(device)
        found = []
        for call, s in ((g, ours), (lambda x: program(theirs, x), theirs)):
            torch.manual_seed(number)
            given = x.clone().requires_grad_(number in asking)
            try:
                result = call(given)
            except ValueError:
                result = ()
            left = [s.last] if s.last is not None else []
            assert s is ours or (given.requires_grad, given.grad is None) == before
            before = given.requires_grad, given.grad is None
            flags = [each.requires_grad for each in (*tensors(result), *left)]
            found.append((result, flags, [back(each, s) for each in (*tensors(result), *left)]))
        assert_same(found[0], found[1])
    return g.report()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", FREED, ids=lambda each: each.__name__)
def test_what_is_freed(device, program):
    assert play(program, device).replayed >= CALLS - 6


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", ASKED, ids=lambda each: each.__name__)
def test_an_argument_that_is_asked_for_gradients(device, program):
    """It is as it was when the call ends."""
    assert play(program, device).replayed >= CALLS - 8


def test_arguments_that_require_grad_among_others(device):
    play(captured, device, asking=(3, 9, 10))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", NOT_ASKED, ids=lambda each: each.__name__)
def test_an_argument_that_is_changed(device, program):
    play(program, device)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_what_is_not(device, program):
    play(program, device)


@pytest.mark.parametrize(
    "part", [lambda x, w: x + w, lambda x, w: x.sum(), lambda x, w: -x, lambda x, w: x[1:]]
)
@pytest.mark.parametrize("given", [False, True], ids=["made inside", "given"])
def test_a_result_is_walked_again_where_its_graph_saves_nothing(device, part, given):
    """The backward inside frees what is above it."""
    w = torch.ones(3, device=device)

    def call(x):
        x = x if given else asks(x)
        y = part(x, w)
        (y * y).sum().backward()
        return y, x

    g = rote.graph(call)
    for number in range(7):
        found = []
        for each in (call, g):
            y, x = each(torch.full((3,), float(number), device=device, requires_grad=given))
            for _ in range(2):
                y.sum().backward(retain_graph=True)
            y.sum().backward()
            found.append((y.detach(), x.grad))
        assert_same(*found)
