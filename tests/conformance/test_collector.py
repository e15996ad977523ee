"""What a callable does to Python's collector, and reads of it, is what the plain callable does and reads."""

from __future__ import annotations

import gc
from gc import disable, isenabled

import pytest
import torch

import rote


@pytest.fixture(autouse=True)
def as_before():
    on, threshold, debug = gc.isenabled(), gc.get_threshold(), gc.get_debug()
    yield
    gc.enable() if on else gc.disable()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def off(x):
    gc.disable()
    return x * 2


def off_by_name(x):
    disable()
    return x * 2


def on(x):
    gc.enable()
    return x * 2


def off_and_on(x):
    gc.disable()
    y = x * 2
    gc.enable()
    return y


def off_for_a_while(x):
    was = gc.isenabled()
    gc.disable()
    try:
        return x * 2
    finally:
        if was:
            gc.enable()


def asked(x):
    return x * 2 if isenabled() else x * 3


def threshold_set(x):
    gc.set_threshold(5000, 3, 3)
    return x * 2


def threshold_raised(x):
    first, *others = gc.get_threshold()
    gc.set_threshold(first + 1, *others)
    return x * 2


def flags(x):
    gc.set_debug(gc.DEBUG_UNCOLLECTABLE)
    return x * 2


def collected(x):
    gc.collect()
    return x * 2


def raising(x):
    gc.disable()
    raise ValueError("of the call")


CALLS = [
    off, off_by_name, on, off_and_on, off_for_a_while, asked, threshold_set, threshold_raised, flags,
    collected, raising,
]  # fmt: skip


def played(call, starts_on, x):
    """What the collector's settings and the results are, call by call; the program puts them back once."""
    seen = []

    def begin():
        gc.enable() if starts_on else gc.disable()
        gc.set_threshold(700, 10, 10)
        gc.set_debug(0)

    begin()
    for step in range(14):
        if step in (6, 11):
            begin()
        if step == 9:
            gc.disable() if starts_on else gc.enable()
        try:
            result = call(x).tolist()
        except ValueError as error:
            result = str(error)
        seen.append((result, gc.isenabled(), gc.get_threshold(), gc.get_debug()))
    return seen


@pytest.mark.parametrize("starts_on", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_settings_are_left_as_plain_leaves_them(call, starts_on, device):
    x = torch.ones(3, device=device)
    g = rote.graph(call)
    assert played(g, starts_on, x) == played(call, starts_on, x)
    if call not in (raising, threshold_raised):
        assert g.report().replayed, g.explain()


def test_a_callable_that_asks_nothing_replays_whatever_is_set(device):
    g, x = rote.graph(lambda x: x * 2), torch.ones(3, device=device)
    for step in range(10):
        gc.enable() if step % 2 else gc.disable()
        g(x)
    assert g.report().replayed == 8


def test_the_threshold_that_a_call_asks_for_is_the_programs(device):
    def asked():
        return gc.get_threshold()[0]  # the first call does not know that this will run

    g = rote.graph(lambda x: x * asked(), keep=True)
    for number in range(9):
        gc.set_threshold(700 if number < 6 else 900)
        assert g(torch.ones(3, device=device))[0] == gc.get_threshold()[0] == (700 if number < 6 else 900)
    assert g.report().replayed > 0
