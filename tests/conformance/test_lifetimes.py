"""What a caller has replaced dies, at the latest with the next call; what is swapped in turns replays."""

from __future__ import annotations

import collections
import gc
import types
import weakref

import numpy
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("swap", SWAPPING)
def test_what_was_replaced_dies(device, swap, grad):
    net = Net(device)
    graphed, gone = rote.graph(net, keep=True), []
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
    graphed = rote.graph(net, keep=True)
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


PLACES = [
    ("adapter", swap_layer), ("listed", swap_list), ("named", swap_dict), ("settings", swap_object),
    ("function", swap_function), ("scale", swap_tensor),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("turns", [1, 3, 16])
@pytest.mark.parametrize(("place", "swap"), PLACES)
def test_other_keys_keep_nothing_either(device, place, swap, turns):
    """Each shape has a key of its own, and may never be called again."""
    net = Net(device)
    graphed, gone, most = rote.graph(net, keep=True), [], 0
    with torch.no_grad():
        for number in range(16):
            for _ in range(4):
                x = torch.rand(2 + number % turns, 4, device=device)
                assert torch.equal(graphed(x), net(x))
            gc.collect()
            most = max(most, sum(reference() is not None for reference in gone))
            gone += [weakref.ref(old) for old in swap(net)]
        graphed(torch.rand(40, 4, device=device))
    gc.collect()
    assert most == 0 and not any(reference() is not None for reference in gone)
    assert graphed.report().replayed >= 16, graphed.explain()


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight


def test_what_cannot_be_referred_to_weakly_is_not_known_by_an_address_that_comes_again(device):
    """Objects of one size are made one after the other, and come to lie where the last one lay."""
    holder = types.SimpleNamespace(held=Slotted(torch.ones(4, device=device)))
    graphed, gone, places = rote.graph(lambda x: x * holder.held.weight, keep=True), [], set()
    x = torch.ones(4, device=device)
    for number in range(24):
        for _ in range(1 + number % 5):
            assert graphed(x).tolist() == [number + 1.0] * 4 if number else True
        gone.append(weakref.ref(holder.held.weight))
        places.add(id(holder.held))
        holder.held = None
        holder.held = Slotted(torch.full((4,), number + 2.0, device=device))
    assert graphed(x).tolist() == [25.0] * 4
    gc.collect()
    assert not any(reference() is not None for reference in gone) and len(places) <= 24


@pytest.mark.parametrize("make", [
    lambda value: [value], lambda value: {"k": value}, lambda value: (value,), lambda value: {"k": [value]},
])  # fmt: skip
def test_containers_made_anew_for_each_call(device, make):
    holder = types.SimpleNamespace(held=None)

    def fn(x):
        found = holder.held
        while not isinstance(found, float):
            found = found["k"] if isinstance(found, dict) else found[0]
        return x * found

    graphed, x = rote.graph(fn), torch.ones(4, device=device)
    for number in range(40):
        holder.held = None
        holder.held = make(float(number // 3))
        assert graphed(x).tolist() == [float(number // 3)] * 4


class Owner:
    factor = 2.0

    def method(self):
        return self.factor


def made_class():
    return type("Made", (), {"factor": 2.0})


def made_generator():
    return (number for number in (1, 2))


OBJECTS = [
    Owner, made_class, made_generator, lambda: lambda: 2.0, lambda: {1, 2}, nn.Identity,
    lambda: compile("1", "a", "eval"), lambda: numpy.ones(3), collections.OrderedDict,
]  # fmt: skip


@pytest.mark.parametrize("make", OBJECTS)
@pytest.mark.parametrize(
    "use",
    [
        lambda held, found: 7.0 if found() is None else 2.0,
        lambda held, found: (7.0 if found() is None else 2.0) + (held.one is None),
        lambda held, found: 2.0 if found() is held.one is not None else 7.0,
        lambda held, found: getattr(found(), "factor", 7.0),
    ],
)
def test_the_death_of_what_is_referred_to_weakly(device, make, use):
    held = types.SimpleNamespace(one=make())
    found = weakref.ref(held.one)
    g, x = rote.graph(lambda x: x * use(held, found)), torch.ones(3, device=device)
    for _ in range(6):
        assert g(x).tolist() == [use(held, found)] * 3
    held.one = None
    gc.collect()
    assert g(x).tolist() == [use(held, lambda: None)] * 3
    for _ in range(4):
        assert g(x).tolist() == [use(held, lambda: None)] * 3


def test_the_death_of_a_method_that_is_referred_to_weakly(device, monkeypatch):
    owner, x = Owner(), torch.ones(3, device=device)
    monkeypatch.setattr(Owner, "method", lambda self: self.factor)
    found = weakref.WeakMethod(owner.method)
    g = rote.graph(lambda x: x * (found()() if found() is not None else 7.0))
    for _ in range(6):
        assert g(x).tolist() == [2.0] * 3
    Owner.method = None
    for _ in range(4):
        assert g(x).tolist() == [7.0] * 3


def drops(held):
    held.one = None


def replaces(held):
    held.one = type(held.one)(held) if held.one is not None else None


def looks_and_drops(held):
    if getattr(held.one, "factor", 0.0):
        held.one = None


def deletes(held):
    held.parts.pop("one", None)
    if hasattr(held, "one"):
        del held.one


def empties(held):
    held.several.clear()


def fills(held):
    held.several[:] = [None]


class Counting:
    """Counts those that have died."""

    factor = 2.0

    def __init__(self, held):
        self.held = held

    def __del__(self):
        self.held.gone += 1


@pytest.mark.parametrize("drop", [drops, replaces, looks_and_drops, deletes, empties, fills])
def test_what_a_call_drops_dies_then(device, drop):
    """What its death does is seen by the rest of the call."""

    def state():
        held = types.SimpleNamespace(gone=0, several=[], parts={})
        return held, lambda x: drop(held) or x * held.gone

    (held, plain), (other, fn) = state(), state()
    g, x = rote.graph(fn), torch.ones(3, device=device)
    for each in (held, other):
        each.one, each.parts["one"], each.several[:] = Counting(each), Counting(each), [Counting(each)]
    for _ in range(8):
        assert g(x).tolist() == plain(x).tolist()
        assert held.gone == other.gone


class Rate:
    """Plain values in an object."""

    def __init__(self, value: float) -> None:
        self.value = value


class OneSlot:
    __slots__ = ("held",)


def _in_a_cell():
    held = None

    def put(new):
        nonlocal held
        held = new

    return put, lambda: held


def _in_an_attribute(owner):
    return lambda new: setattr(owner, "held", new), lambda: owner.held


def _in_an_item(container, key):
    return lambda new: container.__setitem__(key, new), lambda: container[key]


def _within(put, get):
    """In a tuple that is made anew."""
    return lambda new: put((new,)), lambda: get()[0]


PLACES = {
    "slot": lambda: _in_an_attribute(OneSlot()),
    "attribute": lambda: _in_an_attribute(types.SimpleNamespace()),
    "attribute of a module": lambda: _in_an_attribute(nn.Module()),
    "attribute of a class": lambda: _in_an_attribute(type("Other", (), {})),
    "list": lambda: _in_an_item([None], 0),
    "deque": lambda: _in_an_item(collections.deque([None]), 0),
    "dict": lambda: _in_an_item({}, "held"),
    "ordered dict": lambda: _in_an_item(collections.OrderedDict(), "held"),
    "cell": _in_a_cell,
    "tuple in a list": lambda: _within(*_in_an_item([None], 0)),
    "tuple in an attribute": lambda: _within(*_in_an_attribute(types.SimpleNamespace())),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_is_replaced_again_and_again(device, place):
    """Of each but the last nobody is left, also where it takes too long to look for others who hold it."""
    put, get = place()
    put(Rate(1.0))
    g, told = rote.graph(lambda x: x * get().value), []
    for number in range(3 * SWAPS):
        if number % 3 == 0:
            rate = Rate(float(number))
            told.append(weakref.ref(rate))
            put(rate)
            del rate
        g(torch.full((4,), float(number), device=device))
        gc.collect()
        assert [each() is not None for each in told] == [False] * (len(told) - 1) + [True], number
    assert g.report().replayed >= SWAPS // 2, g.explain()
    g.reset()
