"""Where an argument lies and which tensor it is, asked in each way in which a call may ask."""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict

import pytest
import torch

import rote

LIES = {
    "a method": lambda y, x: y.storage_offset(),
    "a method of the class": lambda y, x: torch.Tensor.storage_offset(y),
    "by name": lambda y, x: operator.methodcaller("storage_offset")(y),
    "mapped": lambda y, x: [*map(torch.Tensor.storage_offset, [y])],
    "its address": lambda y, x: torch.Tensor.data_ptr(y) == x.data_ptr(),
    "the same memory": lambda y, x: y.is_set_to(x),
    "the same memory, turned round": lambda y, x: torch.Tensor.is_set_to(x, y),
    "a view": lambda y, x: torch.Tensor._is_view(y),
    "what it is a view of": lambda y, x: y[1:]._base.shape,
    "what others share": lambda y, x: torch.Tensor.is_shared(y),
    "detached": lambda y, x: y.detach().storage_offset(),
    "a part": lambda y, x: y[1:].storage_offset(),
    "narrowed": lambda y, x: y.narrow(0, 1, 1).storage_offset(),
    "another type": lambda y, x: y.view(torch.uint8).storage_offset(),
    "set": lambda y, x: torch.empty(0).set_(y.cpu()).storage_offset() if y.is_cpu else 0,
}
IS = {
    "a set": lambda y, x: len({x, y}),
    "a set of a list": lambda y, x: len(set([x, y])),
    "a set that is filled": lambda y, x: len({each for each in (x, y)}),
    "a set of two": lambda y, x: len({*[x], *[y]}),
    "a set that is extended": lambda y, x: extended({x}, [y]),
    "a set that is added to": lambda y, x: added({x}, y),
    "a set by its class": lambda y, x: set.add(found := {x}, y) or len(found),
    "sets": lambda y, x: len({x} & {y}),
    "apart": lambda y, x: {x}.isdisjoint([y]),
    "equal sets": lambda y, x: {x} == {y},
    "a frozen set": lambda y, x: len(frozenset((x, y))),
    "tuples": lambda y, x: len({(x,), (y,)}),
    "a dict": lambda y, x: len({x: 1, y: 2}),
    "a dict of pairs": lambda y, x: len(dict([(x, 1), (y, 2)])),
    "a dict of an iterator": lambda y, x: len(dict(zip([x, y], "ab", strict=True))),
    "a dict of keys": lambda y, x: len(dict.fromkeys([x, y])),
    "an ordered dict": lambda y, x: len(OrderedDict([(x, 1), (y, 2)])),
    "counted": lambda y, x: len(Counter([x, y])),
    "merged": lambda y, x: len({x: 1} | {y: 2}),
}


def extended(found, others):
    found.update(others)
    return len(found)


def added(found, other):
    found.add(other)
    return len(found)


@pytest.mark.parametrize("ask", LIES.values(), ids=LIES)
def test_where_an_argument_lies(ask, device):
    base = torch.arange(12.0, device=device)
    known = base[2:5]

    def act(y):
        return y * 2, ask(y, known)

    g = rote.graph(act)
    for n in range(24):
        y = known if n % 8 == 5 else base[1:4].clone() if n % 3 else base[n % 6 :][:3]
        y = torch.ones(3).share_memory_() if y.is_cpu and n == 22 else y
        assert str(g(y)) == str(act(y)), n


@pytest.mark.parametrize("ask", IS.values(), ids=IS)
def test_which_tensor_an_argument_is(ask, device):
    known = torch.ones(3, device=device)

    def act(y):
        return y * 2, ask(y, known)

    g = rote.graph(act, keep=True)
    for n in range(24):
        y = known if n % 8 == 7 else torch.full((3,), float(n), device=device)
        assert str(g(y)) == str(act(y)), n
    assert g.report().replayed >= 12, g.report()
