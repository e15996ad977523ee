"""Frames of the call are its own; by whom it is called is not known to a recording."""

from __future__ import annotations

import inspect
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import rote

HELD = {"scale": 2.0}
FACTOR = 3.0


def variable_of_the_caller():
    return sys._getframe(1).f_locals["scale"]


def of_a_local(x):
    scale = HELD["scale"]
    return x * variable_of_the_caller() + 0 * scale


def of_a_global(x):
    return x * sys._getframe().f_globals["FACTOR"] * HELD["scale"]


def of_a_global_by_the_caller(x):
    def asks():
        return inspect.currentframe().f_back.f_globals["FACTOR"]  # pyright: ignore

    return x * asks() * HELD["scale"]


def of_names(x):
    frame = sys._getframe()
    return x * len(f"{frame.f_code.co_name}") * (frame.f_lineno > 0) * HELD["scale"]


def of_a_traceback(x):
    try:
        raise ValueError(HELD["scale"])
    except ValueError as error:
        return x * error.__traceback__.tb_frame.f_locals["error"].args[0]  # pyright: ignore


def of_a_generator(x):
    def numbers():
        kept = HELD["scale"]
        yield kept

    made = numbers()
    next(made)
    return x * made.gi_frame.f_locals["kept"]


@pytest.mark.parametrize("program", [
    of_a_local, of_a_global, of_a_global_by_the_caller, of_names, of_a_traceback, of_a_generator,
])  # fmt: skip
def test_frames_of_the_call(device, program, monkeypatch):
    g = rote.graph(program)
    x = torch.ones(3, device=device)
    for count in range(9):
        monkeypatch.setitem(HELD, "scale", 2.0 if count < 4 else 5.0)
        if count == 6:
            monkeypatch.setattr(sys.modules[__name__], "FACTOR", 7.0)
        torch.testing.assert_close(g(x), program(x), rtol=0, atol=0)
        if count == 3:
            assert g.report().replayed == 2


def by_counting(x):
    count = 1
    while "scale" not in sys._getframe(count).f_locals:
        count += 1
    return x * sys._getframe(count).f_locals["scale"]


def by_a_function(x):
    def upwards(frame):
        return frame if "scale" in frame.f_locals else upwards(frame.f_back)

    return x * upwards(sys._getframe()).f_locals["scale"]


def by_name(x):
    frame = inspect.currentframe()
    while "scale" not in getattr(frame, "f_locals"):  # noqa: B009
        frame = getattr(frame, "f_back")  # noqa: B009
    return x * frame.f_locals["scale"]  # pyright: ignore


def by_a_loop(x):
    frame = sys._getframe()
    while "scale" not in frame.f_locals:
        frame = frame.f_back
    return x * frame.f_locals["scale"]


def by_a_look_at_the_stack(x):
    return x * inspect.stack(context=0)[1].frame.f_locals.get("scale", 1.0)


@pytest.mark.parametrize("program", [by_counting, by_a_function, by_name, by_a_loop, by_a_look_at_the_stack])
def test_frames_around_the_call(device, program):
    g = rote.graph(program)

    def play():
        for scale in (2.0, 2.0, 2.0, 2.0, 5.0, 5.0):
            found = g(torch.ones(3, device=device))
            assert found.sum().item() in (3 * scale, 3.0)

    with ThreadPoolExecutor(1) as thread:  # with few frames around: inspect looks for the source of each
        thread.submit(play).result()
    assert g.report().replayed == 0
    if program is not by_a_look_at_the_stack:
        assert any("looks at the frames around it" in each.message for each in g.report().reasons)


def counting():
    kept = 1
    while True:
        yield kept
        kept += 1
        yield kept


@types.coroutine
def waiting():
    yield from counting()


async def awaiting():
    await waiting()


class Kept:
    """A generator, a coroutine, and a frame, each of which waits."""

    def __init__(self):
        self.generator, self.coroutine = counting(), awaiting()
        self.move()
        self.frame = self.generator.gi_frame

    def move(self):
        next(self.generator)
        self.coroutine.send(None)


OF_OTHERS = {
    "variables": lambda kept: kept.generator.gi_frame.f_locals["kept"],
    "variables by inspect": lambda kept: inspect.getgeneratorlocals(kept.generator)["kept"],
    "line": lambda kept: kept.generator.gi_frame.f_lineno,
    "instruction": lambda kept: kept.generator.gi_frame.f_lasti,
    "a coroutine's": lambda kept: kept.coroutine.cr_await.gi_yieldfrom.gi_frame.f_locals["kept"],
    "a frame that is kept": lambda kept: kept.frame.f_locals["kept"],
    "by a name": lambda kept: getattr(kept.frame, "f_locals")["kept"],  # noqa: B009
    "by a descriptor": lambda kept: types.FrameType.f_lineno.__get__(kept.frame),
    "as text": lambda kept: sum(repr(kept.frame).encode()),
}


@pytest.mark.parametrize("ask", OF_OTHERS.values(), ids=OF_OTHERS)
def test_frames_that_are_not_of_the_call(device, ask):
    kept = Kept()
    f = lambda x: x * ask(kept)  # noqa: E731
    g = rote.graph(f)
    x = torch.ones(3, device=device)
    for count in range(9):
        if count == 5:
            kept.move()
        torch.testing.assert_close(g(x), f(x), rtol=0, atol=0)
    kept.coroutine.close()


def test_what_a_frame_outside_always_says(device):
    kept = Kept()
    g = rote.graph(lambda x: x * len(kept.frame.f_code.co_name))
    for _ in range(6):
        assert g(torch.ones(3, device=device)).sum().item() == 24
    assert g.report().replayed >= 3, g.explain()
    kept.coroutine.close()
