"""Globals of PyTorch's own Python modules that public functions set, after a call was recorded."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import rote
from rote.testing import assert_same


class Symmetric(nn.Module):
    def forward(self, w):
        return w + w.T


def symmetric():
    made = nn.Linear(3, 3)
    parametrize.register_parametrization(made, "weight", Symmetric())
    return made


def normed():
    return parametrizations.weight_norm(nn.Linear(3, 3))


def same_weight(m, x):
    return x * 2 if m.weight is m.weight else x * 3


def both_weights(m, x):
    first, second = m.weight, m.weight
    return first @ x.T, second @ x.T, first.data_ptr() == second.data_ptr()


def called(m, x):
    return m(x) + m(x)


def cached_inside(m, x):
    with parametrize.cached():
        return m(x) + m(x), m.weight is m.weight


@pytest.mark.parametrize("make", [symmetric, normed])
@pytest.mark.parametrize("call", [same_weight, both_weights, called, cached_inside])
@pytest.mark.parametrize("tracked", [True, False])
def test_parametrizations_are_cached_later(make, call, tracked, device):
    made = []
    for wrap in (lambda f: f, rote.graph):
        torch.manual_seed(0)
        m = make().to(device)
        made.append((m, wrap(lambda x, m=m: call(m, x))))
    x = torch.randn(2, 3, device=device)

    def compare():
        results = []
        for m, g in made:
            m.zero_grad()
            result = g(x)
            if tracked and call is not same_weight:
                sum(part.sum() for part in (result if isinstance(result, tuple) else (result,))
                    if isinstance(part, torch.Tensor)).backward()  # fmt: skip
            results.append((result, [p.grad for p in m.parameters()]))
        assert_same(results[1], results[0])

    with torch.set_grad_enabled(tracked):
        for _ in range(6):
            compare()
        assert call is both_weights or made[1][1].report().replayed, made[1][1].explain()
        for _ in range(3):
            with parametrize.cached():
                compare()
        for _ in range(3):
            compare()


def test_conversions_are_made_in_another_way_later(device):
    def call(x, m):
        before = m.weight  # kept: what replaces it may lie where it lay
        m.double().float()
        return x * 2 if m.weight is before else x * 3

    x, (plain, other) = torch.ones(3, device=device), (nn.Linear(3, 3, device=device) for _ in range(2))
    g = rote.graph(call)
    try:
        for on in (False, True, False):
            torch.__future__.set_overwrite_module_params_on_conversion(on)
            for _ in range(4):
                assert_same(g(x, other), call(x, plain))
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def test_state_dicts_are_assigned_later(device):
    torch.manual_seed(0)
    plain, other = (nn.Linear(3, 3, device=device) for _ in range(2))
    plain.load_state_dict(other.state_dict())
    g, x = rote.graph(lambda x: other(x)), torch.randn(2, 3, device=device)
    for step in range(4):
        for _ in range(4):
            assert_same(g(x), plain(x))
        state = nn.Linear(3, 3, device=device).state_dict()
        for m in (plain, other):
            m.load_state_dict({name: value.clone() for name, value in state.items()}, assign=bool(step % 2))
        assert_same(g(x).sum().detach(), plain(x).sum().detach())
    assert g.report().replayed >= 4, g.explain()


def test_the_fast_path_of_encoders(device):
    def call(x):
        return x * (2.0 if torch.backends.mha.get_fastpath_enabled() else 3.0)

    g, x = rote.graph(call), torch.ones(3, device=device)
    try:
        for on in (True, False, True):
            torch.backends.mha.set_fastpath_enabled(on)
            for _ in range(4):
                assert_same(g(x), call(x))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert g.report().replayed >= 5


METHODS = {
    "mul": (lambda x: x.mul(2) * 3, lambda function: lambda self, *given: function(self, *given) + 1),
    "add": (lambda x: x + 1, lambda function: lambda self, *given: function(self, *given) * 2),
    "view": (lambda x: x.view(3, 1), lambda function: lambda self, *given: function(self, *given) + 1),
    "sum": (lambda x: x.sum() * 2, lambda function: lambda self, *given: function(self, *given) - 1),
    "__getitem__": (lambda x: x[1:] + x[0], lambda function: lambda self, key: function(self, key) * 2),
    "__mul__": (lambda x: x * 2, lambda function: lambda self, other: function(self, other) + 1),
}
"""What calls use, and what a user puts around the method."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("first", [0, 6])
def test_a_method_of_tensors_that_the_user_wraps(name, first, device):
    call, around = METHODS[name]
    g, method = rote.graph(call), getattr(torch.Tensor, name)
    wrapped, own = around(method), vars(torch.Tensor).get(name)
    try:
        for n in range(18):
            if n == first:
                setattr(torch.Tensor, name, wrapped)
            if n == 12 and own is None:
                delattr(torch.Tensor, name)
            elif n == 12:
                setattr(torch.Tensor, name, own)
            x = torch.arange(3.0, device=device)
            found, wanted = g(x), call(x)
            assert torch.equal(found, wanted)
    finally:
        if own is not None:
            setattr(torch.Tensor, name, own)
        elif name in vars(torch.Tensor):
            delattr(torch.Tensor, name)
    assert g.report().replayed
