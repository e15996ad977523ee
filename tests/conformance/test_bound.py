"""What a call reaches through bound methods and other graphed callables is read like anything else."""

from __future__ import annotations

import functools
import itertools
import operator

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same


class Policy:
    def __init__(self):
        self.scale, self.table = 2.0, {"k": 2.0}

    def act(self, x, k=1.0):
        return x * self.scale * k

    half = functools.partialmethod(act, k=0.5)

    def __getitem__(self, key):
        return self.scale * key


def partial(policy):
    return functools.partial(policy.act, k=3.0)


def nested_partial(policy):
    return functools.partial(functools.partial(policy.act), k=3.0)


def half(policy):
    return policy.half


def in_a_closure(policy):
    act = policy.act
    return lambda x: act(x)


def in_a_list(policy):
    acts = [policy.act]
    return lambda x: acts[0](x)


def given_to_c(policy):
    act = policy.act
    return lambda x: next(map(act, [x]))


def given_in_a_star(policy):
    act = policy.act
    return lambda x: next(itertools.starmap(act, [(x, 2.0)]))


def of_a_dict(policy):
    get = policy.table.get
    return lambda x: x * get("k")


def of_c(policy):
    get = policy.__getitem__
    return lambda x: x * get(2)


def through_the_function(policy):
    act = policy.act
    return lambda x: act.__func__(act.__self__, x)


@pytest.mark.parametrize("make", [
    partial, nested_partial, half, in_a_closure, in_a_list, given_to_c, given_in_a_star, of_a_dict, of_c,
    through_the_function,
])  # fmt: skip
def test_the_object_of_a_method(device, make):
    policy = Policy()
    call = make(policy)
    g, x = rote.graph(call), torch.ones(3, device=device)
    for scale in (2.0, 5.0):
        policy.scale = policy.table["k"] = scale
        for _ in range(5):
            assert_same(g(x), call(x))
    assert g.report().replayed >= 5, g.explain()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        return x * self.scale

    def __getitem__(self, key):
        return self.scale * key


class Other(Scaled):
    pass


def attribute_of(inner):
    return lambda x: x * inner.scale


def by_name(inner):
    return lambda x: x * getattr(inner, "sca" + "le")


def by_getter(inner):
    get = operator.attrgetter("scale")
    return lambda x: x * get(inner)


def item_of(inner):
    return lambda x: x * inner[2]


def method_of(inner):
    return lambda x: inner.forward(x)


def state_of(inner):
    return lambda x: x * inner.__dict__["scale"] if "scale" in vars(inner) else x * inner.scale


def class_of(inner):
    return lambda x: x * (2 if isinstance(inner, Other) else 3) * inner.scale


@pytest.mark.parametrize("make", [attribute_of, by_name, by_getter, item_of, method_of, state_of, class_of])
def test_a_graphed_module_inside(device, make):
    module = Scaled()
    plain, g = make(module), rote.graph(make(rote.graph(module)))
    x = torch.ones(3, device=device)
    for name, value in (("scale", 2.0), ("scale", 7.0), ("__class__", Other)):
        setattr(module, name, value)
        for _ in range(5):
            assert_same(g(x), plain(x))
    assert g.report().replayed >= 3 or make is by_getter, g.explain()


def test_a_graphed_module_that_the_call_writes(device, reason):
    module, plain = Scaled(), Scaled()

    def call(inner, x):
        inner.scale = complex(inner.scale) + 1  # a real number would be followed
        return x * inner.scale.real

    g, x = rote.graph(functools.partial(call, rote.graph(module))), torch.ones(3, device=device)
    for _ in range(6):
        assert_same(g(x), call(plain, x))
    assert g.report().replayed == 0 and ".scale was" in reason(g, "RT201").message
