"""What a caller has replaced dies, at the latest with the next call; what is swapped in turns replays."""

from __future__ import annotations

import gc
import types
import weakref

import pytest
import torch
from torch import nn

import rote

SWAPS = 8


class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.adapter, self.scale = nn.Linear(4, 4, device=device), torch.ones(4, device=device)
        self.listed, self.named = [self.scale.clone()], {"k": self.scale.clone()}
        self.settings = types.SimpleNamespace(w=self.scale.clone())
        self.function = lambda x: x

    def forward(self, x):
        h = self.function(self.adapter(x) * self.scale)
        return h * self.listed[0] * self.named["k"] * self.settings.w


def swap_layer(net):
    old, net.adapter = net.adapter, nn.Linear(4, 4, device=net.scale.device)
    return [old, old.weight]


def swap_layer_in_a_cycle(net):
    found = swap_layer(net)
    net.adapter.itself = net.adapter
    return found


def swap_parameter(net):
    old, net.adapter.weight = net.adapter.weight, nn.Parameter(torch.rand_like(net.adapter.weight))
    return [old]


def swap_tensor(net):
    old, net.scale = net.scale, torch.rand_like(net.scale)
    return [old]


def swap_item(net):
    old, net.listed[0] = net.listed[0], torch.rand_like(net.scale)
    return [old]


def swap_list(net):
    old, net.listed = net.listed, [torch.rand_like(net.scale)]
    return old


def swap_dict(net):
    old, net.named = net.named, {"k": torch.rand_like(net.scale)}
    return list(old.values())


def swap_object(net):
    old, net.settings = net.settings, types.SimpleNamespace(w=torch.rand_like(net.scale))
    return [old.w]


def swap_function(net):
    factor = torch.rand_like(net.scale)
    old, net.function = net.function, lambda x: x * factor
    return [old]


SWAPPING = [
    swap_layer, swap_layer_in_a_cycle, swap_parameter, swap_tensor, swap_item, swap_list, swap_dict,
    swap_object, swap_function,
]  # fmt: skip


def use(graphed, device, grad, calls=4):
    """Whether calls replay, and give what the plain module gives."""
    before = graphed.report().replayed
    for _ in range(calls):
        x = torch.rand(2, 4, device=device)
        y = graphed(x)
        if grad:
            y.sum().backward()
    assert torch.equal(y, graphed.__wrapped__(x))
    return graphed.report().replayed > before


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("swap", SWAPPING)
def test_what_was_replaced_dies(device, swap, grad):
    net = Net(device)
    graphed, gone = rote.graph(net), []
    with torch.set_grad_enabled(grad):
        for _ in range(SWAPS):
            assert use(graphed, device, grad)
            gone += [weakref.ref(old) for old in swap(net)]
        assert use(graphed, device, grad)
    gc.collect()
    assert not any(reference() is not None for reference in gone)


@pytest.mark.parametrize("name", ["adapter", "listed", "named", "settings", "function"])
def test_what_the_caller_keeps_has_a_recording_of_its_own(device, name):
    net, other = Net(device), Net(device)
    other.function = lambda x: x * 2
    graphed = rote.graph(net)
    kept = [getattr(net, name), getattr(other, name)]
    with torch.no_grad():
        for number in range(8):
            setattr(net, name, kept[number % 2])
            use(graphed, device, grad=False)
        recorded = graphed.report().recorded
        for number in range(8):
            setattr(net, name, kept[number % 2])
            assert use(graphed, device, grad=False, calls=1)
    assert recorded == graphed.report().recorded == 2


def test_what_a_local_variable_keeps(device):
    net = Net(device)
    graphed, old = rote.graph(net), net.adapter
    with torch.no_grad():
        use(graphed, device, grad=False)
        net.adapter = nn.Linear(4, 4, device=device)
        use(graphed, device, grad=False)
        net.adapter = old
        assert use(graphed, device, grad=False, calls=1)


def test_a_result_that_waits_for_its_backward_keeps_what_it_needs(device):
    net = Net(device)
    graphed = rote.graph(net)
    use(graphed, device, grad=True)
    waiting, weight = graphed(torch.ones(2, 4, device=device)), weakref.ref(net.adapter.weight)
    net.zero_grad()
    swap_layer(net)
    use(graphed, device, grad=True)
    waiting.sum().backward()
    del waiting
    swap_layer(net)
    use(graphed, device, grad=True)
    gc.collect()
    assert weight() is None
