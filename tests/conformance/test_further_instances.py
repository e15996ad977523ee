"""Many modules of one class: what is noted of the first is not asked of the others, and each may differ."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

import rote

LAYERS, CALLS = 5, 6


class Layer(nn.Module):
    gain = 2.0

    def __init__(self, device):
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4, device=device), 1.5
        self.register_buffer("shift", torch.rand(4, device=device))
        self.register_buffer("bias", torch.rand(4, device=device))

    def forward(self, x):
        return self.linear(x) * self.scale * self.gain + self.shift


class Other(Layer):
    def forward(self, x):
        return super().forward(x) - 1


class Asked(Layer):
    """A class whose instances are asked for what they do not have."""

    def __getattr__(self, name):
        return 0.25 if name == "extra" and "extra" not in self.__dict__ else super().__getattr__(name)

    def forward(self, x):
        return super().forward(x) * self.extra


class Net(nn.Module):
    def __init__(self, device, kind=Layer):
        super().__init__()
        self.layers = nn.ModuleList([kind(device) for _ in range(LAYERS)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def doubled(module, args, result):
    return result * 2


def of_instance(net):
    net.layers[-1].forward = lambda x: x * 3


def of_call(net):
    net.layers[-1]._call_impl = lambda x: x * 5


def compiled_call(net):
    net.layers[-1]._compiled_call_impl = lambda x: x * 7


def hook(net):
    net.layers[-1].register_forward_hook(doubled)


def hook_in_place_of_the_table(net):
    net.layers[-1]._forward_hooks = OrderedDict({0: doubled})


def hook_before(net):
    net.layers[-2].linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def parameter(net):
    net.layers[-1].linear.weight = nn.Parameter(torch.rand(4, 4, device=net.layers[0].shift.device))


def parameter_as_an_attribute(net):
    weight = net.layers[-1].linear._parameters.pop("weight")
    net.layers[-1].linear.__dict__["weight"] = weight.detach() * 2


def parameter_as_a_buffer(net):
    weight = net.layers[-1].linear._parameters.pop("weight")
    net.layers[-1].linear._buffers["weight"] = weight.detach() * 2


def tables(net):
    other = nn.Linear(4, 4, device=net.layers[0].shift.device)
    net.layers[-1].linear._parameters = other._parameters


def attributes(net):
    vars(net.layers[-1])["gain"] = 3.0


def all_attributes(net):
    net.layers[-1].__dict__ = {**net.layers[-1].__dict__, "scale": 4.0}


def another_class(net):
    net.layers[-1].__class__ = Other


def buffer(net):
    net.layers[-2].shift = net.layers[-2].shift + 1


CHANGES = [
    of_instance, of_call, compiled_call, hook, hook_in_place_of_the_table, hook_before, parameter,
    parameter_as_an_attribute, parameter_as_a_buffer, tables, attributes, all_attributes, another_class,
    buffer,
]  # fmt: skip


def same(graphed, net, device):
    for _ in range(CALLS):
        x = torch.rand(2, 4, device=device)
        assert torch.equal(graphed(x), net(x))


@pytest.mark.parametrize("kind", [Layer, Asked])
@pytest.mark.parametrize("change", CHANGES)
def test_one_of_them_changes(device, change, kind):
    net = Net(device, kind)
    graphed = rote.graph(net)
    with torch.no_grad():
        same(graphed, net, device)
        assert graphed.report().replayed
        change(net)
        same(graphed, net, device)


@pytest.mark.parametrize("change", CHANGES)
def test_one_of_them_is_different_from_the_beginning(device, change):
    net = Net(device)
    change(net)
    graphed = rote.graph(net)
    with torch.no_grad():
        same(graphed, net, device)
        of_instance(net)
        same(graphed, net, device)


CLASSES = {
    "attribute": ("gain", 5.0),
    "method": ("forward", lambda self, x: x + self.shift),
    "property": ("scale", property(lambda self: 6.0)),
    "missing": (
        "__getattr__",
        lambda self, name: nn.Module.__getattr__(self, {"shift": "bias"}.get(name, name)),
    ),
    "every": ("__getattribute__", lambda self, name: object.__getattribute__(self, name)),
    "call": ("__call__", lambda self, x: self.forward(x) * 8),
}


@pytest.mark.parametrize("what", CLASSES)
def test_the_class_changes(device, what, monkeypatch):
    class Mine(Layer):
        def forward(self, x):
            return super().forward(x)

    net = Net(device, Mine)
    graphed = rote.graph(net)
    with torch.no_grad():
        same(graphed, net, device)
        assert graphed.report().replayed
        monkeypatch.setattr(Mine, *CLASSES[what], raising=False)
        same(graphed, net, device)


PATCHES = {
    "__call__": lambda self, *args: nn.Module._call_impl(self, *args) * 2,
    "_call_impl": lambda self, *args: self.forward(*args) * 3,
    "__getattr__": lambda self, name: next(
        self.__dict__[table][name] for table in ("_modules", "_buffers", "_parameters")
        if name in self.__dict__[table]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_the_class_of_all_modules_changes(device, name, monkeypatch):
    net = Net(device)
    graphed = rote.graph(net)
    with torch.no_grad():
        same(graphed, net, device)
        monkeypatch.setattr(nn.Module, name, PATCHES[name])
        same(graphed, net, device)


def test_a_hook_of_all_modules(device):
    net = Net(device)
    graphed = rote.graph(net)
    with torch.no_grad():
        same(graphed, net, device)
        handle = nn.modules.module.register_module_forward_hook(doubled)
        try:
            same(graphed, net, device)
        finally:
            handle.remove()
        same(graphed, net, device)


class Changing(nn.Module):
    """One of its modules changes in the middle of the call, and back at the end."""

    def __init__(self, device, change, back):
        super().__init__()
        self.layers = nn.ModuleList([Layer(device) for _ in range(LAYERS)])
        self.change, self.back = change, back

    def forward(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        kept = self.change(self.layers[-1])
        for layer in self.layers[2:]:
            x = layer(x)
        self.back(self.layers[-1], kept)
        return self.layers[-1](x)


def set_class(layer):
    layer.__class__ = Other


def set_class_back(layer, _):
    layer.__class__ = Layer


def set_table(layer):
    kept = layer.__dict__
    layer.__dict__ = {**kept, "scale": 0.5}
    return kept


def set_table_back(layer, kept):
    layer.__dict__ = kept


def set_gain(layer):
    Layer.gain = 0.5


def set_gain_back(layer, _):
    Layer.gain = 2.0


def set_forward(layer):
    layer.forward = lambda x: x * 2


def set_forward_back(layer, _):
    del layer.forward


def add_hook(layer):
    return layer.register_forward_hook(doubled)


def remove_hook(layer, handle):
    handle.remove()


@pytest.mark.parametrize(("change", "back"), [
    (set_class, set_class_back), (set_table, set_table_back), (set_gain, set_gain_back),
    (set_forward, set_forward_back), (add_hook, remove_hook),
])  # fmt: skip
def test_one_changes_inside_of_the_call(device, change, back):
    net = Changing(device, change, back)
    graphed = rote.graph(net)
    with torch.no_grad():
        same(graphed, net, device)
        net.layers[2].scale = 3.0
        same(graphed, net, device)
