"""State that a method reads of its instance, where the class graphs the method."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 14
CHANGES = (6, 10)


def _scaled(graph, **more):
    def __init__(self):  # noqa: N807
        self.scale = 2.0

    @graph
    def method(self, x):
        return x * self.scale

    holder = type("Holder", (), {"__init__": __init__, "method": method, **more})()
    return lambda x: holder.method(x), lambda value: setattr(holder, "scale", value), lambda: holder.method


def _attribute(graph):
    return _scaled(graph)


def _slot(graph):
    return _scaled(graph, __slots__=("__weakref__", "scale"))


def _property(graph):
    class Holder:
        def __init__(self):
            self.values = [2.0]

        @property
        def scale(self):
            return self.values[0]

        @graph
        def method(self, x):
            return x * self.scale

    holder = Holder()
    return (
        lambda x: holder.method(x),
        lambda value: holder.values.__setitem__(0, value),
        lambda: holder.method,
    )


def _called(graph):
    class Holder:
        def __init__(self):
            self.scale = 2.0

        @graph
        def __call__(self, x):
            return x * self.scale

    holder = Holder()
    return lambda x: holder(x), lambda value: setattr(holder, "scale", value), lambda: holder.__call__


def _inherited(graph):
    class Base:
        def __init__(self):
            self.scale = 2.0

        @graph
        def method(self, x):
            return x * self.scale

    class Derived(Base):
        @graph
        def method(self, x):
            return super().method(x) + self.scale

    holder = Derived()
    return lambda x: holder.method(x), lambda value: setattr(holder, "scale", value), lambda: holder.method


def _class_of_the_instance(graph):
    class Holder:
        def factor(self):
            return 2.0

        @graph
        def method(self, x):
            return x * self.factor()

    class Other(Holder):
        def factor(self):
            return 5.0

    holder = Holder()
    return (
        lambda x: holder.method(x),
        lambda value: setattr(holder, "__class__", Other if value == CHANGES[0] else Holder),
        lambda: holder.method,
    )


def _attribute_of_a_module(graph):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0
            self.weight = nn.Parameter(torch.ones(3), requires_grad=False)

        @graph
        def method(self, x):
            return x * self.scale + self.weight.to(x.device)

    net = Net()
    return lambda x: net.method(x), lambda value: setattr(net, "scale", value), lambda: net.method


def _weight_of_a_module(graph):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3), requires_grad=False)

        @graph
        def method(self, x):
            return x + self.weight.to(x.device)

    net = Net()

    def change(value):
        net.weight = nn.Parameter(torch.full((3,), value), requires_grad=False)

    return lambda x: net.method(x), change, lambda: net.method


CASES = (
    *(_attribute, _slot, _property, _called, _inherited, _class_of_the_instance),
    *(_attribute_of_a_module, _weight_of_a_module),
)


@pytest.mark.parametrize("make", CASES, ids=[case.__name__.removeprefix("_") for case in CASES])
def test_a_change_is_noticed(device, make):
    call, change, find = make(rote.graph)
    plain, change_plainly, _ = make(lambda function: function)
    for number in range(CALLS):
        if number in CHANGES:
            change(float(number))
            change_plainly(float(number))
        x = torch.full((3,), float(number), device=device)
        assert_same(call(x), plain(x))
    assert find().report().replayed >= CALLS - 2 * (1 + len(CHANGES))


@pytest.mark.parametrize("make", [_attribute, _slot], ids=["attribute", "slot"])
def test_a_change_is_noticed_where_another_callable_calls_it(device, make):
    call, change, _ = make(rote.graph)
    plain, change_plainly, _ = make(lambda function: function)
    graphed = rote.graph(lambda x: call(x) + 1)
    for number in range(CALLS):
        if number in CHANGES:
            change(float(number))
            change_plainly(float(number))
        x = torch.full((3,), float(number), device=device)
        assert_same(graphed(x), plain(x) + 1)
    assert graphed.report().replayed


@pytest.mark.parametrize("make", [_attribute, _slot, _called], ids=["attribute", "slot", "called"])
def test_no_instance_is_kept_alive(device, make):
    call, _, find = make(rote.graph)
    for number in range(CALLS):
        call(torch.full((3,), float(number), device=device))
    assert find().report().replayed
    instance = weakref.ref(find().__self__)
    del call, find, _
    gc.collect()
    assert instance() is None
