"""Backwards written in Python find the context that their own forward left, and nothing of another pass."""

from __future__ import annotations

import collections
import enum
import itertools
import types

import numpy
import pytest
import torch

import rote

CALLS = 10


class Settings:
    def __init__(self):
        self.scale, self.count = 2.0, 0


class Mode(enum.IntEnum):
    ONE, TWO = 1, 2


def function_of(forward, backward, new_style=False):
    """A function that doubles, with what it puts on its context and what its backward does."""
    if new_style:

        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                forward(ctx, inputs[0])

    else:

        class Doubled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                forward(ctx, x)
                return x * 2

    Doubled.backward = staticmethod(backward)
    return Doubled


def passes(call, device, tweak=lambda number: None, times=1):
    """Results and gradients of many calls with a backward outside of each."""
    found = []
    for number in range(CALLS):
        tweak(number)
        x = (torch.arange(3.0, device=device) + number).requires_grad_()
        y = call(x)
        for again in reversed(range(times)):
            y.sum().backward(retain_graph=again > 0)
        found.append((y.detach().tolist(), x.grad.tolist()))
    return found


def both(build, device, tweak=lambda state, number: None, times=1):
    """Compare plain and graphed calls; ``build`` gives the callable and the state that is changed."""
    function, state = build()
    wanted = passes(function, device, lambda number: tweak(state, number), times)
    function, state = build()
    graphed = rote.graph(function)
    assert passes(graphed, device, lambda number: tweak(state, number), times) == wanted
    return graphed


def counted(ctx, g):
    ctx.n += 1
    return g * ctx.n


def cleared(ctx, g):
    k, ctx.n = ctx.n, None
    return g * (k + 2)


def deleted(ctx, g):
    k = ctx.n
    del ctx.n
    return g * (k + 2)


def added(ctx, g):
    first = not hasattr(ctx, "seen")
    ctx.seen = True
    return g * (2 if first else 5)


def replaced(ctx, g):
    ctx.n = g * (ctx.n + 1)
    return ctx.n


def appended(ctx, g):
    ctx.n.append(1)
    return g * len(ctx.n)


def put(ctx, g):
    ctx.n["k"] = ctx.n.get("k", 0) + 1
    return g * ctx.n["k"]


def joined(ctx, g):
    ctx.n.add(len(ctx.n))
    return g * len(ctx.n)


def inside(ctx, g):
    ctx.n.k += 1
    return g * ctx.n.k


def summed(ctx, g):
    ctx.n += 1
    return g * float(ctx.n[0])


def moved(ctx, g):
    return g * next(ctx.n)


def called(ctx, g):
    return g * ctx.n()


def counter():
    count = 0

    def step():
        nonlocal count
        count += 1
        return count

    return step


WRITES = [
    (lambda: 0, counted),
    (lambda: 0, cleared),
    (lambda: 0, deleted),
    (lambda: 0, added),
    (lambda: 0, replaced),
    (list, appended),
    (collections.deque, appended),
    (dict, put),
    (collections.Counter, put),
    (set, joined),
    (lambda: types.SimpleNamespace(k=0), inside),
    (lambda: numpy.zeros(2), summed),
    (itertools.count, moved),
    (lambda: iter([1.0, 2.0, 3.0]), moved),
    (counter, called),
]


@pytest.mark.parametrize("new_style", [False, True])
@pytest.mark.parametrize(("made", "backward"), WRITES, ids=[each[1].__name__ for each in WRITES])
def test_each_backward_finds_the_context_that_its_forward_left(device, reason, made, backward, new_style):
    def build():
        function = function_of(lambda ctx, x: setattr(ctx, "n", made()), backward, new_style)
        return (lambda x: function.apply(x)), None

    graphed = both(build, device)
    assert graphed.report().replayed == 0
    assert "the ctx of function_of" in reason(graphed, "RT201").message


def test_the_reason_names_the_line_of_the_backward(device, where, reason):
    function = function_of(lambda ctx, x: setattr(ctx, "n", 0), counted)
    graphed = rote.graph(lambda x: function.apply(x))
    passes(graphed, device)
    found = reason(graphed, "RT201")
    assert found.message.startswith(
        "its backward changes the ctx of function_of.<locals>.Doubled.n, which was 0"
    )
    assert found.where == where(counted, "ctx.n += 1")


@pytest.mark.parametrize("backward", [counted, added])
def test_a_second_pass_over_one_result_goes_on_where_the_first_ended(device, backward):
    def build():
        function = function_of(lambda ctx, x: setattr(ctx, "n", 0), backward)
        return (lambda x: function.apply(x)), None

    both(build, device, times=2)


def test_an_inner_function_that_writes(device):
    def build():
        inner = function_of(lambda ctx, x: setattr(ctx, "n", 0), counted)
        outer = function_of(lambda ctx, x: None, lambda ctx, g: g * 3)
        return (lambda x: outer.apply(inner.apply(x).exp())), None

    assert both(build, device).report().replayed == 0


def test_a_context_with_what_nobody_looks_into(device, reason):
    def build():
        def forward(ctx, x):
            ctx.lines = iter("123".splitlines, None)

        function = function_of(forward, lambda ctx, g: g * len(next(ctx.lines)))
        return (lambda x: function.apply(x)), None

    graphed = both(build, device)
    assert "out of sight" in reason(graphed, "RT201").message


def reads(ctx, g):
    _, t = ctx.saved_tensors
    t = t + ctx.buffer
    return g * t * ctx.k * len(ctx.shape) * ctx.mode if ctx.needs_input_grad[0] else None


@pytest.mark.parametrize("new_style", [False, True])
def test_a_backward_that_only_reads_is_replayed(device, new_style):
    def forward(ctx, x):
        ctx.k, ctx.shape, ctx.mode, ctx.names = 3.0, x.shape, Mode.TWO, ["a", {"b": 1}]
        ctx.dtype, ctx.buffer = x.dtype, torch.ones_like(x)
        ctx.save_for_backward(x, x.detach().exp())

    def build():
        function = function_of(forward, reads, new_style)
        return (lambda x: function.apply(x)), None

    report = both(build, device).report()
    assert report.replayed == CALLS - 2 and report.backwards_replayed >= CALLS - 4


def test_a_backward_that_works_in_the_memory_of_its_context(device):
    """That memory is written anew by each forward, in replays too."""

    def forward(ctx, x):
        ctx.t, ctx.c = x.detach().clone(), torch.zeros(3, device=x.device)

    def backward(ctx, g):
        ctx.t.add_(1)
        ctx.c.add_(ctx.t)
        return g * ctx.c

    def build():
        function = function_of(forward, backward)
        return (lambda x: function.apply(x)), None

    assert both(build, device).report().replayed == CALLS - 2


def test_what_outlives_the_call_keeps_what_a_backward_writes(device):
    """The state is not the context's alone, so the forward replays and only the walk runs plainly."""

    def build():
        settings = Settings()

        def forward(ctx, x):
            ctx.settings = settings

        def backward(ctx, g):
            ctx.settings.count += 1
            return g * ctx.settings.count

        function = function_of(forward, backward)
        return (lambda x: function.apply(x) * settings.scale), None

    report = both(build, device).report()
    assert report.replayed == CALLS - 2 and report.backwards_replayed == 0
