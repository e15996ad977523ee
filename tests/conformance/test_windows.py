"""Windows of the last numbers: they fill, and then every call moves what is in them."""

from __future__ import annotations

import itertools
import types
from collections import deque

import numpy as np
import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 44
SIZE = 6
LAST = 8


def by_length(window, number):
    window.append(number)


def by_extending(window, number):
    window.extend([number])


def from_the_left(window, number):
    window.appendleft(number)


def by_hand(window, number):
    window.append(number)
    if len(window) > SIZE:
        window.popleft()


PUTS = [by_length, by_extending, from_the_left, by_hand]
LOOKS = {
    "sum": lambda window: sum(window) / len(window),
    "mean": np.mean,
    "list": lambda window: max(list(window)),
    "tensor": lambda window: torch.tensor(list(window)).mean().item(),
    "newest": lambda window: window[-1] - window[0],
    "nothing": lambda window: None,
    "full": lambda window: sum(window) if len(window) == SIZE else 0.0,
}


def play(wrap, put, look, filled, emptied, device):
    """A call that keeps numbers and looks at the last of them; what it gives and leaves."""
    state = types.SimpleNamespace(
        window=deque([float(n) for n in range(filled)], None if put is by_hand else SIZE), factor=2.0
    )

    def step(x):
        number = (x * state.factor).sum().item()
        put(state.window, number)
        return look(state.window)

    graphed = wrap(step)
    for number in range(CALLS):
        if emptied and number % emptied == 0:
            state.window.clear()
        found = graphed(torch.full((2,), number * 0.37, device=device))
        yield found, list(state.window), state.window.maxlen


def compared(put, look, filled, emptied, device):
    """How many of the last calls replayed; all of them are what plain ones are."""
    graphs, replayed = [], []

    def graph(fn):
        graphs.append(rote.graph(fn, keep=True))
        return graphs[-1]

    pairs = zip(
        play(graph, put, look, filled, emptied, device),
        play(lambda fn: fn, put, look, filled, emptied, device),
        strict=True,
    )
    for ours, theirs in pairs:
        assert_same(ours, theirs)
        replayed.append(graphs[0].report().replayed)
    return replayed[-1] - replayed[-1 - LAST]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "put, look, filled",
    [*itertools.product(PUTS, LOOKS.values(), [0, 3, SIZE])],
    ids=[
        f"{put.__name__}-{look}-{filled}"
        for put, look, filled in itertools.product(PUTS, LOOKS, [0, 3, SIZE])
    ],
)
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_a_window_that_is_full_replays(device, put, look, filled):
    replayed = compared(put, look, filled, 0, device)
    assert replayed == LAST or put is from_the_left or (put is by_hand and filled < SIZE)


@pytest.mark.parametrize("emptied", [4, 9, 25])
@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("look", [LOOKS["sum"], LOOKS["nothing"]], ids=["sum", "nothing"])
def test_a_window_that_is_emptied(device, put, look, emptied):
    compared(put, look, 0, emptied, device)


def test_calls_wait_for_windows_that_are_short(device, reason):
    """A long one fills in thousands of calls, and is not waited for; a call says so."""
    window = deque(maxlen=1000)

    def step(x):
        window.append(x.sum().item())
        return sum(window)

    g = rote.graph(step)
    for number in range(30):
        x = torch.full((2,), float(number), device=device)
        before = sum(window)
        assert g(x) == before + x.sum().item()
    assert g.report().replayed == 0 and reason(g, "RT201").message.startswith("test_calls_wait")
