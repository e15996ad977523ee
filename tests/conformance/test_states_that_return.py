"""A state that returns is replayed, though equal objects lie there that were made anew."""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from dataclasses import dataclass

import pytest
import torch

import rote

ROUNDS = 6


@dataclass
class Config:
    mode: str


@dataclass
class Nested:
    inner: Config


STATES = {
    "a list": (lambda mode: [mode], lambda state: state[0]),
    "a longer list": (lambda mode: [1, mode, None], lambda state: state[1]),
    "a list in a list": (lambda mode: [[mode]], lambda state: state[0][0]),
    "a dict": (lambda mode: {"mode": mode}, lambda state: state["mode"]),
    "an ordered dict": (lambda mode: OrderedDict(mode=mode), lambda state: state["mode"]),
    "a deque": (lambda mode: deque([mode]), lambda state: state[0]),
    "a dict in a list": (lambda mode: [{"mode": mode}], lambda state: state[0]["mode"]),
    "a list in a tuple": (lambda mode: (0, [mode]), lambda state: state[1][0]),
    "a namespace": (lambda mode: types.SimpleNamespace(mode=mode), lambda state: state.mode),
    "a dataclass": (Config, lambda state: state.mode),
    "a dataclass in a dataclass": (lambda mode: Nested(Config(mode)), lambda state: state.inner.mode),
}


@pytest.mark.parametrize("held", ["attribute", "global", "cell"])
@pytest.mark.parametrize("state", STATES)
def test_it_is_replayed(device, state, held):
    make, mode_of = STATES[state]
    holder = types.SimpleNamespace(state=None)
    cell, namespace = None, {"STATE": None, "mode_of": mode_of}

    def set_state(new):
        nonlocal cell
        if held == "attribute":
            holder.state = new
        elif held == "cell":
            cell = new
        else:
            namespace["STATE"] = new

    if held == "global":
        exec("def f(x): return x * 2 if mode_of(STATE) == 'double' else x + 1", namespace)
        f = namespace["f"]
    else:

        def f(x):
            state = holder.state if held == "attribute" else cell
            return x * 2 if mode_of(state) == "double" else x + 1

    g = rote.graph(f, keep=True)
    for number in range(ROUNDS):
        for mode in ("double", "add"):
            set_state(make(mode))
            for _ in range(3):
                x = torch.randn(4, device=device)
                before = g.report().replayed
                assert torch.equal(g(x), f(x))
                assert number == 0 or g.report().replayed == before + 1
    assert len(g.report().recordings) == 2
