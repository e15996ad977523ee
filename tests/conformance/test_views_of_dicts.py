"""Read-only views of dicts: the namespace of a class, which is new each time, and views that are kept."""

from __future__ import annotations

import inspect
import operator
from collections import OrderedDict
from copy import copy
from types import MappingProxyType, SimpleNamespace
from typing import Protocol, runtime_checkable

import pytest
import torch

import rote
from rote.testing import assert_same

OTHER = {"a": 1, "k": 2}

QUESTIONS = {
    "membership": lambda view: 2 if "k" in view else 3,
    "no membership": lambda view: 2 if "k" not in view else 3,
    "member": lambda view: view["k"] if len(view) > 1000 else view["a"],
    "get": lambda view: view.get("k", 5),
    "attribute get": lambda view: getattr(view, "get")("k", 5),  # noqa: B009
    "operator": lambda view: 1 + operator.contains(view, "k"),
    "keys": lambda view: 1 + ("k" in view.keys()),  # noqa: SIM118
    "keys by name": lambda view: 1 + view.keys().__contains__("k"),
    "keys in C": lambda view: 1 + sum(map(view.keys().__contains__, ["k"])),
    "keys of another class": lambda view: 1 + ("k" in OrderedDict(view).keys()),  # noqa: SIM118
    "items": lambda view: 1 + (("k", 2) in view.items()),
    "values": lambda view: 1 + sum(each for each in view.values() if type(each) is int),
    "iteration": lambda view: 1 + sum(name in ("a", "k") for name in view),
    "comprehension": lambda view: len({name: 0 for name in view if name in ("a", "k")}),
    "length": len,
    "truth": lambda view: 2 if view else 3,
    "unpacked": lambda view: len([*view]),
    "merged": lambda view: len({**view}),
    "arguments": lambda view: len(dict(**view)),
    "dict": lambda view: dict(view).get("k", 5),
    "list": lambda view: list(view).count("k") + 1,
    "sorted": lambda view: sorted(view).count("k") + 1,
    "copy": lambda view: view.copy().get("k", 5),
    "or": lambda view: (view | {"z": 1}).get("k", 5),
    "equal": lambda view: 1 + (view == OTHER),
    "text": lambda view: 1 + ("'k'" in str(view)),
    "format": lambda view: 1 + ("'k'" in f"{view}"),
    "pattern": lambda view: _matched(view),
    "reversed": lambda view: 1 + ("k" in list(reversed(view))),
    "view of a view": lambda view: MappingProxyType(view).get("k", 5),
}


def _matched(view):
    match view:
        case {"k": _}:
            return 2
        case _:
            return 3


def compare(f, change, device):
    g = rote.graph(f, keep=True)
    for n in range(10):
        if n == 5:
            change()
        x = torch.ones(3, device=device)
        assert_same(g(x), f(x))
    return g.report()


def with_a_class(question):
    class Thing:
        a = 1

    return lambda x: x * question(Thing.__dict__), lambda: setattr(Thing, "k", 2)


def with_a_view(question):
    table = {"a": 1}
    view = MappingProxyType(table)
    return lambda x: x * question(view), lambda: table.update(k=2)


def with_a_new_view(question):
    table = {"a": 1}
    return lambda x: x * question(MappingProxyType(table)), lambda: table.update(k=2)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("made", [with_a_class, with_a_view, with_a_new_view])
def test_a_member_appears(made, question, device):
    compare(*made(question), device)


@pytest.mark.parametrize("made", [with_a_class, with_a_view, with_a_new_view])
def test_a_member_that_is_not_asked_for_changes_nothing(made, device):
    f, change = made(lambda view: view["a"])
    report = compare(f, change, device)
    assert report.replayed >= 7, report


class Held:
    def __init__(self, table):
        self.keys = table.keys()


@pytest.mark.parametrize("asks", [lambda keys: "k" in keys, lambda keys: keys.__contains__("k")])
def test_keys_that_are_kept(asks, device):
    table = {"a": object(), "b": torch.ones(1)}
    held = Held(table)

    def change():
        table["k"] = table.pop("b")

    report = compare(lambda x: x * (1 + asks(held.keys)), change, device)
    assert report.replayed >= 5, report


@pytest.mark.parametrize("asks", [lambda keys: "k" in keys, lambda keys: keys.__contains__("k")])
def test_keys_of_an_object_that_each_call_is_given(asks, device):
    def step(given):
        return given.table["x"] * (2 if asks(given.table.keys()) else 3)

    def made(number):
        table = {"x": torch.ones(1, device=device) * number, "inner": SimpleNamespace(table={"y": 1})}
        return SimpleNamespace(table={**table, "k": 1} if number in (6, 9, 10) else table)

    g = rote.graph(step, keep=True)
    for number in range(14):
        assert_same(g(made(number)), step(made(number)))
    assert g.report().replayed >= 7, g.explain()


@runtime_checkable
class Closes(Protocol):
    def close(self) -> None: ...


STATIC = {
    "structure": lambda value: isinstance(value, Closes),
    "static": lambda value: inspect.getattr_static(value, "close", None) is not None,
    "bases": lambda value: any("close" in each.__dict__ for each in type(value).__mro__),
    "getter": lambda value: "close" in type.__dict__["__dict__"].__get__(type(value)),
    "vars": lambda value: "close" in vars(type(value)),
    "copied": lambda value: "close" in copy(dict(vars(type(value)))),
}


@pytest.mark.parametrize("asks", STATIC.values(), ids=STATIC)
def test_a_method_appears_on_a_class(asks, device):
    class Thing:
        pass

    value = Thing()
    compare(lambda x: x * (1 + asks(value)), lambda: setattr(Thing, "close", lambda self: None), device)
