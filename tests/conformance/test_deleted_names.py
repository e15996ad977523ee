"""Names that a call deletes and sets again, and functions of C that do what a statement does.

A name that is set again lies behind all others.
"""

from __future__ import annotations

import operator
from types import ModuleType

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 14


class Home:
    """Has names, as an object, a class and a module have."""


def again(home, x):
    del home.first
    home.first = 2.0
    return x * home.first


def again_by_a_function(home, x):
    object.__delattr__(home, "first") if type(home) is Home else delattr(home, "first")
    setattr(home, *("first", 2.0))
    return x * home.first


def a_result(home, x):
    if hasattr(home, "kept"):
        del home.kept
    home.kept = x * 2
    return home.kept


def two(home, x):
    home.one, home.two = x * 2, x * 3
    del home.one
    home.one = x * 4
    return home.two


def one_goes(home, x):
    if hasattr(home, "third"):
        del home.third
        vars(home).pop("fourth", None) if type(home) is Home else None
    return x * 3


MADE = {
    "instance": Home,
    "layer": torch.nn.Module,
    "class": lambda: type("Kind", (), {}),
    "module": lambda: ModuleType("home"),
}


def said(home):
    return [(name, value) for name, value in vars(home).items() if name[:1] != "_"]


def played(make, does, wrap, device):
    home = MADE[make]()
    home.first, home.second = 2.0, 3.0
    graphed, found = wrap(lambda x: does(home, x)), []
    for number in range(CALLS):
        if number == 6:
            home.third = 4.0
        if number == 9:
            del home.second
            home.second = 3.0
        if number % 2:
            home.third, home.fourth = 4.0, 5.0
        if does is two:
            vars(home).pop("two", None) if make != "class" else None
        result = graphed(torch.full((3,), float(number), device=device))
        found.append([result.clone(), *said(home)])
    return found


@pytest.mark.parametrize("does", [again, again_by_a_function, a_result, two, one_goes])
@pytest.mark.parametrize("make", MADE)
def test_order(make, does, device):
    graphed = []

    def wrap(function):
        graphed.append(rote.graph(function, keep=True))
        return graphed[-1]

    plain = played(make, does, lambda function: function, device)
    assert_same(played(make, does, wrap, device), plain)
    graphed[0].reset()


def test_a_name_that_comes_last_anyway_is_replayed(device):
    home = Home()
    home.second = 3.0

    def call(x):
        if hasattr(home, "kept"):
            del home.kept
        home.kept = x * home.second
        return x + 1

    g = rote.graph(call, keep=True)
    for number in range(CALLS):
        g(torch.full((3,), float(number), device=device))
        assert list(vars(home)) == ["second", "kept"]
        assert torch.equal(home.kept, torch.full((3,), number * 3.0, device=device))
    assert g.report().replayed > CALLS / 2
    g.reset()


@pytest.mark.parametrize("held", [{"k": 2.0}, [2.0]], ids=["dict", "list"])
def test_stored_by_a_function(held, device):
    key = next(iter(held)) if type(held) is dict else 0

    def call(x):
        operator.setitem(held, key, x * 2)
        return held[key]

    g = rote.graph(call, keep=True)
    for number in range(CALLS):
        if number == 8:
            held[key] = 5.0
        result = g(torch.full((3,), float(number), device=device))
        assert result is held[key]
        assert torch.equal(result, torch.full((3,), number * 2.0, device=device))
    assert g.report().replayed > CALLS / 2
    g.reset()


@pytest.mark.parametrize(
    "change",
    [
        lambda held, y: operator.iadd(held, [y]),
        lambda held, y: operator.iconcat(held, [y]),
        lambda held, y: operator.setitem(held, slice(0, 1), [y]),
        lambda held, y: operator.imul(held, 2),
        lambda held, y: operator.delitem(held, slice(1, None)),
    ],
)
def test_changed_by_a_function(change, device):
    def driven(wrap):
        held, found = [torch.ones(3, device=device)], []

        def call(x):
            change(held, x * 2)
            return held[-1] + x

        graphed = wrap(call)
        for number in range(CALLS):
            if len(held) > 2:
                del held[1:]
            result = graphed(torch.full((3,), float(number), device=device))
            found.append([result.clone(), *[each.clone() for each in held]])
        return found

    assert_same(driven(lambda call: rote.graph(call, keep=True)), driven(lambda call: call))
