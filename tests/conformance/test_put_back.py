"""What a call writes and takes away again, or puts back, is as it was: such calls replay."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rote

CALLS = 8


class Slotted:
    """An object without a dict."""

    __slots__ = ("held",)


class Plain:
    """An object with one."""


def class_():
    return type("Made", (), {})


def attribute(owner):
    def fn(x):
        owner.held = 3.0
        y = x * owner.held
        del owner.held
        return y

    return fn


def by_name(owner):
    def fn(x):
        setattr(owner, "held", 3.0)  # noqa: B010
        y = x * getattr(owner, "held")  # noqa: B009
        delattr(owner, "held")
        return y

    return fn


def asked_first(owner):
    def fn(x):
        if not hasattr(owner, "held"):
            owner.held = 3.0
            y = x * owner.held
            del owner.held
            return y
        return x * 3.0

    return fn


def if_it_was_there(owner):
    def fn(x):
        was = getattr(owner, "held", None)
        owner.held = 3.0
        y = x * owner.held
        if was is None:
            del owner.held
        else:
            owner.held = was
        return y

    return fn


@pytest.mark.parametrize("make", [attribute, by_name, asked_first, if_it_was_there])
@pytest.mark.parametrize("kind", [Plain, Slotted, SimpleNamespace, nn.Identity, class_])
def test_an_attribute_for_a_while(device, make, kind):
    owner = kind()
    g = rote.graph(make(owner))
    for n in range(CALLS):
        assert g(torch.full((2,), float(n), device=device)).tolist() == [n * 3.0] * 2
        assert not hasattr(owner, "held")
    assert g.report().replayed == CALLS - 2, g.explain()
    owner.held = 7.0  # a plain call takes it away, or leaves it alone
    assert g(torch.ones(2, device=device)).tolist() == [3.0] * 2
    left = 7.0 if make in (asked_first, if_it_was_there) else None
    assert getattr(owner, "held", None) == left
    g.reset()


def test_a_global_for_a_while(device):
    names = {}
    text = "def fn(x):\n global held\n held = 3.0\n y = x * held\n del held\n return y"
    exec(text, names)
    g = rote.graph(names["fn"])
    for _ in range(CALLS):
        assert g(torch.ones(2, device=device)).tolist() == [3.0] * 2
        assert "held" not in names
    assert g.report().replayed == CALLS - 2, g.explain()
    names["held"] = 7.0
    assert g(torch.ones(2, device=device)).tolist() == [3.0] * 2
    assert "held" not in names
    g.reset()


def test_a_variable_for_a_while(device):
    def make():
        held = 0

        def fn(x):
            nonlocal held
            held = 3.0
            y = x * held
            del held
            return y

        return fn

    fn = make()
    cell = fn.__closure__[0]
    g = rote.graph(fn)
    for _ in range(CALLS):
        assert g(torch.ones(2, device=device)).tolist() == [3.0] * 2
        with pytest.raises(ValueError, match="empty"):
            _ = cell.cell_contents
    assert g.report().replayed >= CALLS - 3, g.explain()
    cell.cell_contents = 7.0
    assert g(torch.ones(2, device=device)).tolist() == [3.0] * 2
    with pytest.raises(ValueError, match="empty"):
        _ = cell.cell_contents
    g.reset()


def test_members_for_a_while(device):
    table, order = {"a": 1.0}, [1.0]

    def fn(x):
        order.append(3.0)
        table["held"] = 3.0
        y = x * table["held"] * order[1]
        order.pop()
        del table["held"]
        return y

    g = rote.graph(fn)
    for _ in range(CALLS):
        assert g(torch.ones(2, device=device)).tolist() == [9.0] * 2
        assert (table, order) == ({"a": 1.0}, [1.0])
    table["held"] = 7.0
    assert g(torch.ones(2, device=device)).tolist() == [9.0] * 2
    assert table == {"a": 1.0}
    order.insert(0, 5.0)
    assert g(torch.ones(2, device=device)).tolist() == [3.0] * 2
    assert order == [5.0, 1.0]
    g.reset()
