"""What lies in a value that C looks into, however deep: texts, comparisons, membership, what is handed on."""

from __future__ import annotations

import array
import functools
from collections import Counter, OrderedDict, defaultdict, deque
from types import MappingProxyType, SimpleNamespace

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same


class Own(list):
    pass


def nested(depth, value):
    for _ in range(depth):
        value = [value]
    return value


def innermost(value):
    while type(value[0]) is list:
        value = value[0]
    return value


def viewed():
    table = {"a": 2}
    return [table.items(), table]


def shown():
    table = OrderedDict(a=2)
    return [MappingProxyType(table), table]


def remembered():
    content = bytearray(b"23")
    return [memoryview(content), content]


THINGS = {
    "array": (lambda: [numpy.array([2.0, 3.0])], lambda v: v[0].__setitem__(0, 7.0)),
    "array of objects": (lambda: [numpy.array([[2], 3], dtype=object)], lambda v: v[0][0].append(7)),
    "bytearray": (lambda: [bytearray(b"23")], lambda v: v[0].__setitem__(0, 55)),
    "numbers": (lambda: [array.array("d", [2.0])], lambda v: v[0].__setitem__(0, 7.0)),
    "deque": (lambda: [deque([2, 3])], lambda v: v[0].__setitem__(0, 7)),
    "ordered": (lambda: [OrderedDict(a=2)], lambda v: v[0].update(a=7)),
    "default": (lambda: [defaultdict(int, a=2)], lambda v: v[0].update(a=7)),
    "counter": (lambda: [Counter("aa")], lambda v: v[0].update("a")),
    "set": (lambda: [{2, 3}], lambda v: v[0].add(7)),
    "namespace": (lambda: [SimpleNamespace(a=2)], lambda v: setattr(v[0], "a", 7)),
    "namespaces": (lambda: [SimpleNamespace(a=SimpleNamespace(b=[2]))], lambda v: v[0].a.b.append(7)),
    "dict": (lambda: {"k": [SimpleNamespace(a=2)]}, lambda v: setattr(v["k"][0], "a", 7)),
    "tuple": (lambda: (1, (2, [3])), lambda v: v[1][1].append(7)),
    "exception": (lambda: [ValueError([2])], lambda v: v[0].args[0].append(7)),
    "partial": (lambda: [functools.partial(max, 2)], lambda v: v[0].keywords.update(k=7)),
    "own list": (lambda: [Own([2])], lambda v: v[0].append(7)),
    "view": (viewed, lambda v: v[1].update(a=7)),
    "read-only view": (shown, lambda v: v[1].update(a=7)),
    "memory": (remembered, lambda v: v[1].__setitem__(0, 55)),
    "deep": (lambda: nested(12, 2), lambda v: innermost(v).__setitem__(0, 7)),
}


def number(text):
    return 1 + sum(map(ord, text)) % 97


USES = {
    "text": lambda v, equal: number(f"{v}"),
    "text of a copy": lambda v, equal: number(str(list(v))),
    "text of each": lambda v, equal: number("".join(map(str, v))),
    "text of what holds it": lambda v, equal: number(repr(SimpleNamespace(held=v))),
    "equality": lambda v, equal: 2 if v == equal else 3,
    "membership": lambda v, equal: 2 if equal in [v] else 3,
    "count": lambda v, equal: 2 + [v].count(equal),
}

ALIKE = {"array", "array of objects"}
"""Of which equality has no one answer."""


def compare(graphed, plain, change, device):
    for n in range(9):
        if n == 5:
            change()
        x = torch.ones(3, device=device)
        assert_same(graphed(x), plain(x))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("thing", THINGS)
def test_what_lies_inside_changes(thing, use, device):
    if thing in ALIKE and use in ("equality", "membership", "count"):
        pytest.skip("arrays are not equal or unequal")
    make, change = THINGS[thing]
    value, equal = make(), make()
    f = lambda x: x * USES[use](value, equal)  # noqa: E731
    compare(rote.graph(f, keep=True), f, lambda: change(value), device)


@pytest.mark.parametrize("thing", sorted(set(THINGS) - {"view", "read-only view", "memory"}))
def test_what_lies_inside_an_argument_changes(thing, device):
    make, change = THINGS[thing]
    value = make()
    f = lambda x, v: x * USES["text"](v, None)  # noqa: E731
    g = rote.graph(f, keep=True)
    compare(lambda x: g(x, value), lambda x: f(x, value), lambda: change(value), device)
