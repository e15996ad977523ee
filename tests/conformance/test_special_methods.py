"""Special methods of a graphed module are those of the module, and what they change is noticed."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

SHARED = [nn.Linear(3, 3), nn.Tanh()]


class Listed(nn.Module):
    """Calls what a list, or a dict, of modules holds."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x):
        for layer in self.layers.values() if isinstance(self.layers, nn.ModuleDict) else self.layers:
            x = layer(x)
        return x


def sequential():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))


def layer(seed=3):
    torch.manual_seed(seed)
    return nn.Linear(3, 3)


def put(w):
    w[0] = layer()


def put_by_slice(w):
    w[-1] = nn.Sigmoid()


def delete(w):
    del w[2]


def delete_several(w):
    del w[1:]


def remove(w):
    del w.extra
    w.pop(0)


def swap(w):
    w[0], w[2] = w[2], w[0]


def add_to(w):
    before = id(w)
    w += nn.Sequential(nn.Tanh())
    return id(w) == before


def times(w):
    w *= 2


CHANGES = [
    put, put_by_slice, delete, delete_several, remove, swap, add_to, times, lambda w: w.append(nn.Tanh()),
    lambda w: w.insert(1, nn.Tanh()), lambda w: w.extend([nn.Tanh(), layer()]), lambda w: w.pop(1),
    lambda w: w.__delitem__(0), lambda w: delattr(w, "1"), lambda w: setattr(w, "1", nn.Sigmoid()),
]  # fmt: skip
QUESTIONS = [
    len, lambda w: [type(each) for each in w], lambda w: SHARED[0] in w, lambda w: w[0] in w,
    lambda w: len(w + nn.Sequential(nn.ReLU())), lambda w: len(nn.Sequential(nn.ReLU()) + w),
    lambda w: len(w * 2), lambda w: len(2 * w), lambda w: type(w[1:]), lambda w: type(w[-1]),
    lambda w: [type(each) for each in reversed(w)], bool, lambda w: isinstance(hash(w), int),
    lambda w: w == w, lambda w: w["0"], lambda w: w["missing"], lambda w: w[17], lambda w: w < 3,
    lambda w: w @ 2, lambda w: iter(w).__length_hint__(), lambda w: w.__enter__(), lambda w: +w,
]  # fmt: skip


def answer(question, w):
    try:
        found = question(w)
    except Exception as error:
        return type(error)
    return type(found) if isinstance(found, nn.Module) else found


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_sequence(device, change):
    plain, wrapped = sequential().to(device), sequential().to(device)
    for each in (plain, wrapped):
        each.extra = nn.ReLU()
    g = rote.graph(wrapped)
    x = torch.randn(2, 3, device=device)
    with torch.no_grad():
        for _ in range(4):
            assert_same(g(x), plain(x))
        assert answer(change, plain) == answer(change, g)
        plain.to(device), wrapped.to(device)
        assert [type(each) for each in plain] == [type(each) for each in wrapped]
        for _ in range(5):
            assert_same(g(x), plain(x))
    assert g.report().replayed >= 5


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("make", [sequential, lambda: nn.Linear(3, 3), lambda: nn.ModuleList([nn.ReLU()])])
def test_a_question(question, make):
    plain = make()
    assert answer(question, plain) == answer(question, rote.graph(plain))


def test_an_empty_container_is_false():
    assert not rote.graph(nn.Sequential()) and not rote.graph(nn.ModuleList()) and rote.graph(nn.Linear(1, 1))


@pytest.mark.parametrize("kind", [nn.ModuleList, nn.ModuleDict])
def test_lists_and_dicts(device, kind):
    parts = [layer(0), nn.ReLU()]
    plain = kind(parts if kind is nn.ModuleList else {str(n): part for n, part in enumerate(parts)})
    held = rote.graph(copy.deepcopy(plain))
    first, second = "0" if kind is nn.ModuleDict else 0, "1" if kind is nn.ModuleDict else 1
    one, two = Listed(plain).to(device), Listed(held).to(device)
    g = rote.graph(two)
    x = torch.randn(2, 3, device=device)
    with torch.no_grad():
        for step in range(4):
            for each in (plain, held):
                if step == 1:
                    each[first] = layer(9).to(device)
                elif step == 2:
                    del each[second]
                elif step == 3:
                    each.update({"z": nn.Tanh()}) if kind is nn.ModuleDict else each.append(nn.Tanh())
            assert len(plain) == len(held)
            for _ in range(4):
                assert_same(g(x), one(x))


class Odd(nn.Module):
    """Defines special methods of all kinds."""

    __array_priority__ = 7
    __hash__ = None

    def __init__(self):
        super().__init__()
        self.entered = 0

    def __eq__(self, other):
        return other == 5

    def __enter__(self):
        self.entered += 1
        return self

    def __exit__(self, *exception):
        self.entered -= 1

    def __getitem__(self, key):
        return key * 2

    def __float__(self):
        return 2.5

    def __index__(self):
        return 3

    def __str__(self):
        return "odd"

    def __invert__(self):
        return self

    def __rsub__(self, other):
        return other - 1

    @staticmethod
    def __round__(digits=None):
        return 12

    @property
    def __wrapped_size__(self):
        return self.entered

    def forward(self, x):
        return x * (1 + self.entered)


def test_special_methods_of_ones_own(device):
    odd = Odd()
    g, x = rote.graph(odd), torch.ones(3, device=device)
    with g as inside:
        assert inside is g and odd.entered == 1 and g.__wrapped_size__ == 1
        for _ in range(4):
            assert_same(g(x), odd(x))
    for _ in range(4):
        assert_same(g(x), odd(x))
    assert g == 5 and g != 4 and g[4] == 8 and float(g) == 2.5 and [0, 1, 2, 4][g] == 4
    assert str(g) == "odd" == f"{g}" and ~g is g and 5 - g == 4 and g.__array_priority__ == 7
    with pytest.raises(TypeError):
        hash(g)


def test_a_method_that_its_class_is_given_later():
    class Named(nn.Module):
        def __len__(self):
            return 1

        def forward(self, x):
            return x

    g = rote.graph(Named())
    assert len(g) == 1
    Named.__len__ = lambda self: 2
    assert len(g) == 2


def test_copies_of_a_container(device):
    g = rote.graph(sequential().to(device), warmup=2)
    x = torch.randn(2, 3, device=device)
    for copied in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert len(copied) == 3
        assert_same(copied(x), g(x))
        del copied[1]
        assert len(copied) == 2


@typing.runtime_checkable
class Scaled(typing.Protocol):
    """A protocol with a member that is no method: ``issubclass`` refuses it."""

    scale: float


def test_a_protocol_of_attributes(device):
    class Held:
        pass

    def call(x):
        return x * held.scale if isinstance(held, Scaled) else x + 1

    held: Any = Held()
    g = rote.graph(call, keep=True)
    for number in range(14):
        if number in (5, 11):
            held.scale = float(number)
        if number == 8:
            del held.scale
        x = torch.full((2,), float(number), device=device)
        assert_same(g(x), call(x), f"call {number}")
