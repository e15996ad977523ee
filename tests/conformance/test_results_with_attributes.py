"""Values in results and arguments that have attributes beside what they are."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 9
PLAIN = {
    kind.__name__: type(f"Own{kind.__name__}", (kind,), {}) for kind in (int, float, str, bytes, complex)
}


def told(value):
    return sorted(vars(value).items())


@pytest.mark.parametrize("kind", PLAIN)
def test_a_value_of_a_class_of_ones_own_is_another_one_in_each_call(kind, device):
    def call(x):
        return x * 2, PLAIN[kind]()

    g = rote.graph(call, keep=True)
    for number in range(CALLS):
        result, value = g(torch.full((3,), float(number), device=device))
        assert torch.equal(result, torch.full((3,), number * 2.0, device=device))
        assert type(value) is PLAIN[kind]
        assert not told(value)
        value.note = number
    g.reset()


def test_one_that_lies_outside_replays(device):
    held = PLAIN["float"](2.0)
    g = rote.graph(lambda x: (x * 2, held), keep=True)
    for number in range(CALLS):
        assert g(torch.full((3,), float(number), device=device))[1] is held
    assert g.report().replayed > CALLS / 2
    g.reset()


@pytest.mark.parametrize("kept", [False, True], ids=["result", "kept"])
def test_an_ordered_dict_keeps_its_attributes(kept, device):
    home = SimpleNamespace(last=None)

    def call(x):
        made = OrderedDict(a=x * 2)
        made.version = [x * 3]
        home.last = made if kept else None
        return x if kept else [made, made]

    g = rote.graph(call, keep=True)
    for number in range(CALLS):
        x = torch.full((3,), float(number), device=device)
        result = g(x)
        made = home.last if kept else result[0]
        assert kept or result[1] is made
        assert_same([dict(made), vars(made)], [{"a": x * 2}, {"version": [x * 3]}])
        made.note = number
    assert g.report().replayed > CALLS / 2
    g.reset()


def test_the_state_of_a_module_has_its_versions(device):
    layer = torch.nn.Linear(3, 3).to(device)
    g = rote.graph(lambda x: (layer.state_dict(), layer(x)), keep=True)
    with torch.no_grad():
        for _ in range(CALLS):
            state, _ = g(torch.ones(3, device=device))
            assert state._metadata == layer.state_dict()._metadata
    assert g.report().replayed > CALLS / 2
    g.reset()


@pytest.mark.parametrize(
    "read",
    [
        lambda given: getattr(given, "version", None),
        lambda given: hasattr(given, "version"),
        lambda given: vars(given).get("version"),
    ],
)
def test_an_ordered_dict_is_asked_for_an_attribute(read, device):
    g = rote.graph(lambda given, x: (given["a"] * x, read(given)), keep=True)
    for number in range(CALLS):
        given = OrderedDict(a=torch.full((3,), float(number), device=device))
        if number > 3:
            given.version = number // 3
        assert g(given, torch.ones(3, device=device))[1] == read(given)
    assert "RT218" in {reason.code for reason in g.report().reasons}
    g.reset()


def test_an_ordered_dict_that_is_not_asked_replays(device):
    g = rote.graph(lambda given, x: sum(given.values()) * x, keep=True)
    for number in range(CALLS):
        given = OrderedDict(a=torch.full((3,), float(number), device=device))
        given.version = number
        g(given, torch.ones(3, device=device))
    assert g.report().replayed > CALLS / 2
    g.reset()
