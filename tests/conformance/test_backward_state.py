"""State that only the backward of a call reads, in functions and in hooks, inside of the call and outside."""

from __future__ import annotations

import itertools
import threading
from unittest import mock

import pytest
import torch
from torch import nn

import rote

from .test_contexts import CALLS, Settings, both, function_of


def by_context():
    settings = Settings()
    function = function_of(lambda ctx, x: setattr(ctx, "c", settings), lambda ctx, g: g * ctx.c.scale)
    return (lambda x: function.apply(x)), settings


def by_closure():
    settings = Settings()
    function = function_of(lambda ctx, x: None, lambda ctx, g: g * settings.scale)
    return (lambda x: function.apply(x)), settings


def by_class():
    function = function_of(lambda ctx, x: None, lambda ctx, g: g * ctx._forward_cls.scale)
    return (lambda x: function.apply(x)), function


def by_function_in_context():
    settings = Settings()
    function = function_of(
        lambda ctx, x: setattr(ctx, "f", lambda g: g * settings.scale), lambda ctx, g: ctx.f(g)
    )
    return (lambda x: function.apply(x)), settings


_NUMBERS = itertools.count()


def operator_of(backward):
    """A custom operator that doubles."""

    @torch.library.custom_op(f"rote_contexts::doubled{next(_NUMBERS)}", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    doubled.register_autograd(backward, setup_context=lambda ctx, inputs, output: None)
    return lambda x: doubled(x)


def by_operator():
    settings = Settings()
    return operator_of(lambda ctx, g: g * settings.scale), settings


def by_cell_of_an_operator():
    scale = 2.0

    class Cell:
        def __setattr__(self, name, value):
            nonlocal scale
            scale = value

    return operator_of(lambda ctx, g: g * scale), Cell()


class Scaling(Settings):
    def backward(self, ctx, g):
        return g * self.scale


def by_method_of_an_operator():
    scaling = Scaling()
    return operator_of(scaling.backward), scaling


READS = [
    by_context, by_closure, by_class, by_function_in_context, by_operator, by_cell_of_an_operator,
    by_method_of_an_operator,
]  # fmt: skip


def doubles_late(state, number):
    state.scale = 2.0 if number < 6 else 4.0


@pytest.mark.parametrize("build", READS, ids=[each.__name__ for each in READS])
def test_state_that_only_a_backward_reads_is_under_guard(device, build):
    report = both(build, device, doubles_late).report()
    assert report.replayed >= CALLS - 4 and report.backwards_replayed >= 3


@pytest.mark.parametrize("build", READS, ids=[each.__name__ for each in READS])
def test_a_backward_reads_at_its_own_time(device, build):
    def observe(graph):
        function, state = build()
        call = graph(function)
        for number in range(CALLS):
            state.scale = 2.0
            x = torch.ones(3, device=device, requires_grad=True)
            y = call(x)
            state.scale = 3.0 if number < 6 else 5.0
            y.sum().backward()
            yield x.grad.tolist()

    assert list(observe(rote.graph)) == list(observe(lambda function: function))


# ---------------------------------------------------------------------- hooks, with the backward inside


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.settings = nn.Linear(3, 3), nn.Linear(3, 3), Settings()

    def forward(self, x):
        self.zero_grad()
        h = self.middle(self.first(x))
        self.second(h).square().sum().backward()
        return [parameter.grad.clone() for parameter in self.parameters()]

    def middle(self, h):
        return h


def hook_on_a_parameter(step):
    settings = step.settings
    del step.settings
    step.first.weight.register_hook(lambda g: g * settings.scale)
    return settings


def hook_object_on_a_parameter(step):
    class Scaled(Settings):
        def __call__(self, g):
            return g * self.scale

    scaled = Scaled()
    step.second.weight.register_hook(scaled)
    return scaled


def hook_after_accumulation(step):
    settings = Settings()

    def double(parameter):
        parameter.grad = parameter.grad * settings.scale

    step.first.weight.register_post_accumulate_grad_hook(double)
    return settings


def hook_on_a_module(step):
    settings = Settings()

    def scale(module, given, gradients):
        return tuple(g if g is None else g * settings.scale for g in given)

    step.second.register_full_backward_hook(scale)
    return settings


def hook_before_a_module(step):
    settings = Settings()
    step.second.register_full_backward_pre_hook(lambda module, given: (given[0] * settings.scale,))
    return settings


def hook_on_a_tensor(step):
    def middle(h):
        h.register_hook(lambda g: g * step.settings.scale)
        return h

    step.middle = middle
    return step.settings


def hook_that_is_swapped(step):
    class Hook:
        handle = step.first.weight.register_hook(lambda g: g * 2)
        known = 2.0

        def __setattr__(self, name, value):
            if value != Hook.known:
                Hook.handle.remove()
                Hook.handle, Hook.known = step.first.weight.register_hook(lambda g: g * value), value

    return Hook()


HOOKS = [
    hook_on_a_parameter, hook_object_on_a_parameter, hook_after_accumulation, hook_on_a_module,
    hook_before_a_module, hook_on_a_tensor, hook_that_is_swapped,
]  # fmt: skip


@pytest.mark.parametrize("hang", HOOKS, ids=[each.__name__ for each in HOOKS])
def test_state_that_a_hook_reads_is_under_guard(device, hang):
    def observe(graph):
        step = Step().to(device)
        state = hang(step)
        call = graph(step)
        calls.append(call)
        for number in range(CALLS):
            doubles_late(state, number)
            yield [g.tolist() for g in call(torch.ones(2, 3, device=device) * number)]

    calls: list = []
    assert list(observe(rote.graph)) == list(observe(lambda function: function))
    assert hang is hook_after_accumulation or calls[0].report().replayed >= 3, calls[0].explain()


def test_a_hook_that_a_call_does_not_run_may_count(device):
    """Where the backward is outside, hooks of parameters run there."""

    def observe(graph):
        torch.manual_seed(0)
        layer, seen = nn.Linear(3, 3).to(device), []
        layer.weight.register_hook(lambda g: seen.append(1))
        call = graph(layer)
        calls.append(call)
        for _ in range(CALLS):
            layer.zero_grad()
            call(torch.ones(2, 3, device=device)).sum().backward()
            yield layer.weight.grad.tolist(), len(seen)

    calls: list = []
    assert list(observe(rote.graph)) == list(observe(lambda function: function))
    assert calls[0].report().replayed == CALLS - 2


def test_a_hook_that_has_every_attribute(device):
    layer, hook = nn.Linear(3, 3).to(device), mock.Mock(return_value=None)
    layer.weight.register_hook(hook)
    call = rote.graph(lambda x: layer(x).sum().backward())
    for number in range(CALLS):
        call(torch.ones(2, 3, device=device))
        assert hook.call_count == number + 1


@pytest.mark.parametrize("build", [
    lambda grad: torch.tensor(2.0, device=grad.device), lambda grad: grad.new_tensor([0.5]),
    lambda grad: torch.as_tensor([1.0, 2.0, 3.0], device=grad.device),
], ids=["tensor", "new_tensor", "as_tensor"])  # fmt: skip
@pytest.mark.parametrize("way", ["backward", "autograd", "grad"])
def test_a_backward_makes_tensors_of_numbers(device, build, way):
    """What is copied to a GPU there is copied by the recording as well."""
    function = function_of(lambda ctx, x: None, lambda ctx, g: g * build(g))
    sides = [torch.ones(3, device=device, requires_grad=True) for _ in range(2)]

    def step(x, weight):
        loss = function.apply(x * weight).square().sum()
        if way == "grad":
            (gradient,) = torch.autograd.grad(loss, [weight])
        else:
            weight.grad = None
            loss.backward() if way == "backward" else torch.autograd.backward([loss])
            gradient = weight.grad
        with torch.no_grad():
            weight.sub_(gradient, alpha=0.01)

    g = rote.graph(lambda x: step(x, sides[0]), keep=True)
    for _ in range(12):
        x = torch.randn(3, device=device)
        g(x), step(x, sides[1])
        assert torch.equal(sides[0], sides[1])
    assert g.report().replayed >= 8, g.explain()


def test_backwards_of_other_threads(device):
    """They run in no mode of rote's while a backward of a traced call goes on."""
    modes = []
    other = function_of(
        lambda ctx, x: None, lambda ctx, g: modes.append(torch._C._len_torch_function_stack()) or g * 2
    )

    def beside():
        x = torch.ones(3, device=device, requires_grad=True)
        other.apply(x).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 2.0))

    def backward(ctx, g):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return g * 2

    function = function_of(lambda ctx, x: None, backward)

    def step(x):
        weight = x.detach().requires_grad_()
        function.apply(weight * 3).sum().backward()
        return weight.grad

    g = rote.graph(step)
    for _ in range(4):
        assert torch.equal(g(torch.ones(3, device=device)), torch.full((3,), 6.0, device=device))
    assert modes == [0] * 4
