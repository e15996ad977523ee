"""Classes of named tuples and dataclasses that get other names, fields and methods between calls."""

from __future__ import annotations

import types
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 12
CHANGES = {
    "fewer names": lambda kind, other: setattr(kind, "_fields", ("a",)),
    "no names": lambda kind, other: setattr(kind, "_fields", ()),
    "other names": lambda kind, other: setattr(kind, "_fields", ("b", "a")),
    "names that are none": lambda kind, other: setattr(kind, "_fields", 7),
    "length": lambda kind, other: setattr(kind, "__len__", lambda self: 1),
    "iteration": lambda kind, other: setattr(kind, "__iter__", lambda self: iter((other,))),
    "member": lambda kind, other: setattr(kind, "__getitem__", lambda self, place: other),
    "attribute": lambda kind, other: setattr(kind, "a", property(lambda self: other)),
}
NAMED = {
    "attribute": lambda pair: pair.a * 2,
    "member": lambda pair: pair[0] * 2,
    "length": lambda pair: tuple.__getitem__(pair, 0) * len(pair),
    "taken apart": lambda pair: [each * 2 for each in pair],
    "names": lambda pair: (tuple.__getitem__(pair, 0) * 2, str(pair._fields)),
    "the same": lambda pair: pair,
}
FIELDS = {
    "property": lambda kind, other: setattr(kind, "a", property(lambda self: other)),
    "every attribute": lambda kind, other: setattr(
        kind,
        "__getattribute__",
        lambda self, name: other if name == "a" else object.__getattribute__(self, name),
    ),
    "fewer fields": lambda kind, other: kind.__dataclass_fields__.pop("b"),
}
OF_DATA = {
    "attribute": lambda pair: pair.a * 2,
    "table": lambda pair: pair.__dict__["a"] * len(pair.__dict__),
    "the same": lambda pair: pair,
}


def played(new, read, change, device, wrap):
    kind: Any = new()
    graphed, found = wrap(read), []
    ones = torch.ones(3, device=device)
    pairs = [kind(torch.full((3,), float(number), device=device), ones) for number in range(CALLS)]
    for number, given in enumerate(pairs):
        if number == 6:
            change(kind, torch.full((3,), 7.0, device=device))
        try:
            result = graphed(given)
        except (TypeError, ValueError, AttributeError) as error:
            result = f"{type(error).__name__}: {error}"
        if result is given:
            result = "what was given"
        left = (
            [*tuple.__iter__(given)]
            if isinstance(given, tuple)
            else dict(object.__getattribute__(given, "__dict__"))
        )
        found.append((result, left))
    return found


def is_the_same(new, read, change, device):
    found = played(new, read, change, device, rote.graph)
    assert_same(found, played(new, read, change, device, lambda call: call))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("read", NAMED)
@pytest.mark.parametrize("change", CHANGES)
def test_a_named_tuple_that_is_given(read, change, device):
    is_the_same(lambda: namedtuple("Pair", "a b"), NAMED[read], CHANGES[change], device)


@pytest.mark.parametrize("read", OF_DATA)
@pytest.mark.parametrize("change", FIELDS)
def test_a_dataclass_that_is_given(read, change, device):
    def new():
        @dataclass
        class Pair:
            a: Any
            b: Any

        return Pair

    is_the_same(new, OF_DATA[read], FIELDS[change], device)


@pytest.mark.parametrize("change", CHANGES)
def test_a_named_tuple_in_state(change, device):
    def run(wrap):
        kind: Any = namedtuple("Pair", "a b")
        pair = kind(2.0, 3.0)

        def call(x):
            return x * pair.b, [*pair._fields] if isinstance(pair._fields, tuple) else pair._fields

        graphed, found = wrap(call), []
        for number in range(CALLS):
            if number == 6:
                CHANGES[change](kind, 7.0)
            found.append(graphed(torch.full((3,), float(number), device=device)))
        return found

    assert_same(run(rote.graph), run(lambda call: call))


@pytest.mark.parametrize(
    "has", [{"factor": 2.0}, {"__getattr__": lambda name: 2.0}, {}], ids=["itself", "by a function", "not"]
)
@pytest.mark.parametrize(
    "names",
    [
        {"factor": 8.0},
        {"factor": property(lambda self: 9.0)},
        {
            "__getattribute__": lambda self, name: (
                4.0 if name == "factor" else object.__getattribute__(self, name)
            )
        },
    ],
    ids=["an attribute", "a property", "a method that gives it"],
)
def test_a_module_that_is_given_another_class(has, names, device):
    module = types.ModuleType("module")
    vars(module).update(has)
    g, x = rote.graph(lambda x: x * getattr(module, "factor", 3.0)), torch.ones(3, device=device)
    for _ in range(6):
        assert g(x).tolist() == [getattr(module, "factor", 3.0)] * 3
    module.__class__ = type("Other", (types.ModuleType,), names)
    for _ in range(4):
        assert g(x).tolist() == [getattr(module, "factor", 3.0)] * 3
    assert g.report().replayed >= 4, g.explain()


def test_a_class_without_a_module(device):
    names = {"held": []}
    exec("def made(): return type('Made', (), {'gain': 2.0})", names)

    def act(x):
        return x * names["held"][-1].gain * len(names["held"])

    g = rote.graph(act)
    for n in range(16):
        if n % 8 == 0:
            names["held"].append(names["made"]()())
        assert "__module__" not in vars(type(names["held"][-1]))
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), act(x))
    assert g.report().replayed >= 4, g.report()
