"""Transforms of ``torch.func`` in a call: host data among them, forward mode, what they ask of shapes."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn import functional

import rote
from rote.testing import assert_same, compare

TABLE = numpy.array([1.0, 2.0, 3.0, 4.0], dtype=numpy.float32)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated")
        yield


def replays(function: Callable[..., Any], device: torch.device, *shape: int) -> rote.Graphed:
    generator = torch.Generator().manual_seed(0)
    calls = [(torch.randn(shape or (4,), generator=generator).to(device),) for _ in range(6)]
    g = compare(function, calls)
    # On CUDA the last reference to a gradient goes in autograd's thread, perhaps after a call (RT205).
    assert g.report().replayed >= (4 if device.type == "cpu" else 3), g.explain()
    return g


def built(how: str, device: torch.device) -> torch.Tensor:
    """Host data that become a tensor, as PyTorch offers it."""
    if how == "tensor":
        return torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
    if how == "as_tensor":
        return torch.as_tensor([1.0, 2.0, 3.0, 4.0], device=device)
    if how == "new_tensor":
        return torch.zeros(1, device=device).new_tensor([1.0, 2.0, 3.0, 4.0])
    if how == "array":
        return torch.tensor(TABLE, device=device)
    return torch.as_tensor(TABLE, device=device)


BUILDERS = ["tensor", "as_tensor", "new_tensor", "array", "as_tensor of an array"]


@pytest.mark.parametrize("how", BUILDERS)
def test_host_data_where_a_gradient_is_taken(device, how):
    replays(grad(lambda a: (a**2 * built(how, device)).sum()), device)
    replays(jacrev(lambda a: a**2 * built(how, device)), device)


@pytest.mark.parametrize("how", BUILDERS)
def test_host_data_in_nested_transforms(device, how):
    replays(hessian(lambda a: (a**3 * built(how, device)).sum()), device)
    replays(vmap(grad(lambda a: (a**2 * built(how, device)).sum())), device, 3, 4)
    replays(jacfwd(lambda a: a * built(how, device)), device)


def test_host_data_that_the_function_writes(device):
    def function(a):
        table = torch.tensor([0.0, 0.0, 0.0, 0.0], device=device)
        table[0] = a[1]
        table += a
        return (a * table).sum()

    replays(grad(function), device)


def test_an_array_that_changes_is_read_again(device):
    table = TABLE.copy()
    g = rote.graph(grad(lambda a: (a**2 * torch.as_tensor(table, device=device)).sum()))
    try:
        for i in range(6):
            table[:] = i
            assert g(torch.ones(4, device=device)).tolist() == [2.0 * i] * 4
        assert g.report().replayed in ((4,) if device.type == "cpu" else (3, 4)), g.explain()
    finally:
        g.reset()


def test_values_read_where_a_gradient_is_taken(device):
    compare(
        grad(lambda a: (a * sum(a.detach().tolist())).sum()),
        [(torch.full((4,), float(i % 2), device=device),) for i in range(8)],
    )


def test_tangents_of_constants(device):
    table = torch.arange(4.0, device=device)
    for function in (
        lambda x: jvp(lambda a: a * table, (x,), (x,))[1],
        lambda x: jvp(lambda a: torch.where(a > 0, a * table, table), (x,), (x,)),
        jacfwd(lambda a: torch.cat([a * table.sum(), table * a[0] / table.norm()])),
        hessian(lambda a: torch.sin(a) @ torch.outer(table, table) @ torch.tanh(a)),
    ):
        g = replays(function, device)
        assert "same" not in g.explain()  # is_same_size and _has_same_storage_numel read no memory


@pytest.mark.parametrize("forward", [jvp, None])
def test_zeros_that_a_graph_saves(device, forward):
    layer = torch.nn.Linear(4, 4, device=device)

    def pushed(a):
        if forward is None:
            return jacfwd(layer)(a) @ a
        return jvp(lambda z: layer(torch.where(z > 0, z, z.softmax(-1))), (a,), (torch.ones_like(a),))[1]

    def gradients(fn, x):
        result = fn(x)
        result.sum().backward()
        found = [result.detach(), x.grad, *[parameter.grad for parameter in layer.parameters()]]
        layer.zero_grad()
        return found

    g = rote.graph(lambda x: vmap(pushed)(torch.stack([x, x * 2])) * x)
    try:
        for _ in range(7):
            x = torch.randn(4, device=device)
            mine = gradients(g, x.clone().requires_grad_())
            assert_same(mine, gradients(g.__wrapped__, x.requires_grad_()))
        assert g.report().replayed >= 4, g.explain()  # what jvp loads makes the first call another one
    finally:
        g.reset()


def _filled(z):
    return torch.zeros(5, device=z.device).index_add(0, torch.tensor([0, 1, 1], device=z.device), z)


def _dual(function):
    def call(x):
        with forward_ad.dual_level():
            primal, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x))))
            return primal, tangent

    return call


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "transform",
    [
        lambda function: lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),)),
        torch.func.jacfwd,
        lambda function: torch.func.hessian(lambda x: function(x).sum()),
        lambda function: torch.func.jacfwd(torch.func.jacfwd(function)),
        _dual,
    ],
    ids=["jvp", "jacfwd", "hessian", "twice", "dual"],
)
@pytest.mark.parametrize(
    "function",
    [torch.sgn, _filled, lambda z: (z.abs() + 1).sqrt(), lambda z: z * 0 + z.detach()],
    ids=["sgn", "index_add", "sqrt", "detach"],
)
def test_zeros_without_memory_that_are_copied_or_returned(device, function, transform):
    replays(transform(function), device, 3)


def test_a_zero_without_memory_must_not_be_written(device):
    def tangent(x):
        return torch.func.jvp(lambda z: (z.detach() * 2, z), (x,), (torch.ones_like(x),))[1][0]

    def write(x):
        zero = torch.func.jacfwd(torch.func.jacfwd(lambda z: z * 0 + z.detach()))(x)
        return zero.zero_()

    for function in (tangent, write):
        compare(function, [(torch.randn(3, device=device),) for _ in range(6)])


def _forbidding(function, x):
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        return function(x)


def _forbidding_ones_own(function, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept):
        return _forbidding(function, x)


@pytest.mark.parametrize("always", [True, False], ids=["always", "in turns"])
@pytest.mark.parametrize("use", [
    lambda function, x: torch.func.vjp(function, x)[0],
    lambda function, x: torch.func.vjp(function, x)[1](x)[0],
    _forbidding,
    _forbidding_ones_own,
])  # fmt: skip
def test_what_forbids_hooks_in_a_call_whose_result_is_walked_back(device, use, always):
    def play(wrap):
        torch.manual_seed(0)
        layer, seen = torch.nn.Linear(3, 3, device=device), []
        state = types.SimpleNamespace(on=always)

        def step(x):
            return use(lambda y: layer(y).tanh(), x) if state.on else layer(x)

        graphed = wrap(step)
        for number in range(16):
            state.on = always or number // 4 % 2 == 1
            layer.zero_grad()
            try:
                result = graphed(torch.full((2, 3), float(number), device=device))
            except RuntimeError as error:
                seen.append(str(error))
                continue
            result.sum().backward()
            seen += [result.detach(), layer.weight.grad]
        return seen

    assert_same(play(rote.graph), play(lambda step: step))


@pytest.mark.parametrize("of", [
    lambda f: grad(lambda x: f(x).sum()), lambda f: vmap(f, randomness="different"), jacrev,
    lambda f: lambda x: jvp(f, (x,), (torch.ones_like(x),)),
], ids=["grad", "vmap", "jacrev", "jvp"])  # fmt: skip
def test_dropout_in_a_transform(device, of):
    replays(of(lambda x: functional.dropout(x, 0.3) * x), device, 3, 4)
