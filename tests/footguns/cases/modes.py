"""Modes: what is set around a call, random numbers, streams, threads, exceptions, processes, collection."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from tests.footguns.case import Kind, Wrap, attempt, case, full, ramp
from torch import nn

Items = Iterator[Any]


class BoomError(Exception):
    """Raised by programs."""


@case(Kind.REFUSED)
def grad_modes_in_turn(wrap: Wrap, device: torch.device) -> Items:
    """One callable is used under no_grad, in inference mode and with gradients."""
    m = nn.Linear(3, 3).to(device)
    g = wrap(m)
    for i in range(18):
        with [torch.no_grad, torch.inference_mode, torch.enable_grad][i % 3]():
            y = g(ramp(i, device))
            yield y, y.is_inference()
        if y.requires_grad:
            yield torch.autograd.grad(y.sum(), [m.weight])


@case(Kind.WRONG)
def autocast_in_turn(wrap: Wrap, device: torch.device) -> Items:
    """Autocast is on for some calls."""
    m = nn.Linear(3, 3).to(device).requires_grad_(False)
    g = wrap(m)
    for i in range(16):
        with torch.autocast(device.type, torch.bfloat16, enabled=i % 4 > 1):
            yield g(ramp(i, device))


@case(Kind.WRONG)
def default_type_changed(wrap: Wrap, device: torch.device) -> Items:
    """The default floating-point type is another one for some calls."""
    g = wrap(lambda x: x + torch.zeros(4, device=device))
    try:
        for i in range(16):
            torch.set_default_dtype(torch.float64 if i % 4 > 1 else torch.float32)
            yield g(torch.ones(4, device=device, dtype=torch.float32) * i)
    finally:
        torch.set_default_dtype(torch.float32)


@case(Kind.WRONG)
def default_device_changed(wrap: Wrap, device: torch.device) -> Items:
    """A default device is set around some calls."""
    g = wrap(lambda x: (x * 2, torch.ones(2)))
    for i in range(16):
        with torch.device("meta") if i % 4 > 1 else contextlib.nullcontext():
            y, ones = g(full(i, device))
            yield y, ones.device.type


@case(Kind.WRONG)
def deterministic_algorithms(wrap: Wrap, device: torch.device) -> Items:
    """Deterministic algorithms are asked for in some calls: fresh memory is filled with NaN then."""
    g = wrap(lambda x: torch.empty(4, device=device).isnan().all() & (x > -1))
    try:
        for i in range(16):
            torch.use_deterministic_algorithms(i % 4 > 1)
            y = g(full(i, device))
            if i % 4 > 1:
                yield y
    finally:
        torch.use_deterministic_algorithms(False)


@case(Kind.WRONG)
def several_streams(wrap: Wrap, device: torch.device) -> Items:
    """Calls alternate between two streams, and the results are held."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()] if device.type == "cuda" else [None, None]
    g, held = wrap(lambda x: (x * 2).cumsum(0)), []
    for i in range(12):
        stream = streams[i % 2]
        x = full(i, device)
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            held.append(g(x))
        if stream is not None:
            torch.cuda.current_stream().wait_stream(stream)
        yield held[-1]
    yield held


@case(Kind.WRONG)
def several_threads(wrap: Wrap, device: torch.device) -> Items:
    """Three threads share one graph; each checks its own results."""
    g = wrap(lambda x: x.cumsum(0) * 2)
    g(full(0, device))
    g(full(0, device))
    wrong: list[Any] = []

    def work(first: int) -> None:
        held = [(i, attempt(g, full(i, device))) for i in range(first, first + 20)]
        for i, y in held:
            same = isinstance(y, torch.Tensor) and torch.equal(y, full(i, device).cumsum(0) * 2)
            if not same:
                wrong.append(y if isinstance(y, BaseException) else i)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield wrong[:1]
    for i in range(4):
        yield g(full(i, device))


@case(Kind.RIGHT)
def generator_as_argument(wrap: Wrap, device: torch.device) -> Items:
    """Random numbers come from a generator that is passed in and seeded again."""
    generator = torch.Generator(device).manual_seed(5)
    g = wrap(lambda x, generator: x + torch.randn(4, device=device, generator=generator))
    for i in range(16):
        if i % 6 == 5:
            generator.manual_seed(5)
        yield g(full(i, device), generator)


@case(Kind.RIGHT)
def seeded_again(wrap: Wrap, device: torch.device) -> Items:
    """The same seed before a call gives the same random numbers, and draws outside come in between."""
    g = wrap(lambda x: x + torch.randn(4, device=device))
    for i in range(16):
        if i % 4 == 3:
            torch.manual_seed(7)
        yield g(full(0, device)), torch.rand(2, device=device)


@case(Kind.RIGHT)
def dropout(wrap: Wrap, device: torch.device) -> Items:
    """Dropout has another mask at every call, the one that the plain program has."""
    g = wrap(lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.2))
    for _ in range(14):
        yield g(torch.ones(8, device=device))


@case(Kind.WRONG, replays=False)
def seeded_inside(wrap: Wrap, device: torch.device) -> Items:
    """The callable seeds, so that its noise is the same at every call; the caller's draws follow from it."""

    def fn(x):
        torch.manual_seed(3)  # RT208 wrong
        return x + torch.randn(4, device=device)

    g = wrap(fn)
    for i in range(10):
        yield g(full(i, device)), torch.rand(2, device=device)


@case(Kind.WRONG)
def exception_at_every_stage(wrap: Wrap, device: torch.device) -> Items:
    """The callable raises after writing to a buffer: at the first call, the second, and a late one."""
    total = torch.zeros(4, device=device)

    def fn(x, fail):
        total.add_(x)
        if fail:
            raise BoomError("no luck")
        return total * 2

    for stage in (0, 1, 2, 3, 7):
        g = wrap(fn)
        for i in range(10):
            yield attempt(g, full(i, device), i == stage), total


@case(Kind.WRONG)
def exception_from_outside_at_every_stage(wrap: Wrap, device: torch.device) -> Items:
    """The same arguments, and a hook raises once: nothing tells the calls apart before."""
    m, failing = nn.Linear(3, 3).to(device).requires_grad_(False), [False]
    total = torch.zeros(3, 3, device=device)

    def hook(module, args):
        total.add_(1)
        if failing[0]:
            raise BoomError("no luck")

    m.register_forward_pre_hook(hook)
    for stage in (0, 1, 2, 3, 7):
        g = wrap(lambda x: m(x) + m(x + 1) + total[0])
        for i in range(10):
            failing[0] = i == stage
            yield attempt(g, ramp(i, device)), total


@case(Kind.WRONG)
def operation_raises(wrap: Wrap, device: torch.device) -> Items:
    """An operation fails for one call's shapes, after an argument was written to."""

    def fn(x, y):
        x.add_(1)
        return x @ y

    g = wrap(fn)
    for i in range(14):
        x = ramp(i, device, 2, 3)
        yield attempt(g, x, ramp(0, device, 4 if i % 7 == 5 else 3, 2)), x


@case(Kind.WRONG)
def keyboard_interrupt(wrap: Wrap, device: torch.device) -> Items:
    """Ctrl-C arrives in the middle of a call: the first, the second, the third."""
    pressed = [False]

    def fn(x):
        y = x * 2
        if pressed[0]:
            raise KeyboardInterrupt
        return y + torch.randn(4, device=device)

    for stage in range(3):
        g = wrap(fn)
        for i in range(10):
            pressed[0] = i == stage
            yield attempt(g, full(i, device))


@case(Kind.REFUSED)
def error_caught_inside(wrap: Wrap, device: torch.device) -> Items:
    """The callable tries a shape that does not fit, catches the error and goes another way."""

    def fn(x):
        try:
            return x.view(5) * 2  # RT209
        except RuntimeError:
            return x.sum() * 3

    g = wrap(fn)
    for i in range(20):
        yield g(full(i, device, size=5 if i % 4 > 1 else 4))


@case(Kind.RIGHT)
def fork_after_use(wrap: Wrap, device: torch.device) -> Items:
    """A process forked from the one that recorded calls the graph: right on the host, an error with CUDA."""
    g = wrap(lambda x: x * 2 + 1)
    for i in range(8):
        yield g(full(i, device))
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(30)  # a child that hangs ends here
        found = attempt(lambda: str(g(full(9, device)).tolist()))
        os.write(writer, (found if isinstance(found, str) else "an error").encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        yield pipe.read()
    os.waitpid(child, 0)
    yield g(full(8, device))


@case(Kind.WRONG)
def collection_at_awkward_moments(wrap: Wrap, device: torch.device) -> Items:
    """Garbage with tensors in cycles is collected in the middle of every call."""

    def fn(x):
        y = x * 2
        cycle = [y + 1]
        cycle.append(cycle)
        del cycle
        gc.collect(0)
        return y.exp()

    g, held = wrap(fn), []
    for i in range(10):
        held.append(g(full(i / 8, device)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def wrapper_deleted_while_results_live(wrap: Wrap, device: torch.device) -> Items:
    """The graph goes away, its results and their views stay, and other graphs take its memory."""
    g, held = wrap(lambda x: (x * 2).view(2, 2)), []
    for i in range(10):
        held.append(g(full(i, device))[0])
        yield held[-1]
    del g
    gc.collect()
    other = wrap(lambda x: x.exp() + 100)
    for i in range(8):
        yield other(full(i / 8, device))
    yield held


@case(Kind.WRONG)
def wrapped_again_and_again(wrap: Wrap, device: torch.device) -> Items:
    """Every epoch wraps the same function anew, and keeps the results of all epochs."""
    held = []
    for epoch in range(4):
        g = wrap(lambda x: x * 2)
        for i in range(8):
            held.append(g(full(10 * epoch + i, device)))
            yield held[-1]
    yield held


@case(Kind.WRONG, replays=False)
def grad_mode_left_changed(wrap: Wrap, device: torch.device) -> Items:
    """The callable switches gradients off and leaves them off."""

    def fn(x):
        torch.set_grad_enabled(False)  # RT210
        return x * 2

    g = wrap(fn)
    try:
        for i in range(10):
            yield g(full(i, device)), torch.is_grad_enabled()
            torch.set_grad_enabled(True)
    finally:
        torch.set_grad_enabled(True)


@case(Kind.WRONG)
def thread_local_changed(wrap: Wrap, device: torch.device) -> Items:
    """A setting is kept in a thread-local, as libraries do for contexts."""
    local = threading.local()
    local.scale = 1.0
    g = wrap(lambda x: x * local.scale)
    for i in range(18):
        local.scale = 1.0 + (i // 6)
        yield g(full(i, device))


@case(Kind.REFUSED)
def mapped_over_a_batch(wrap: Wrap, device: torch.device) -> Items:
    """The graph is called under ``torch.vmap`` now and then."""
    g = wrap(lambda x: x * x.sum())
    for i in range(14):
        yield g(full(i, device)), torch.vmap(g)(ramp(i, device)) if i % 5 == 4 else None


@case(Kind.WRONG)
def generator_in_an_attribute(wrap: Wrap, device: torch.device) -> Items:
    """Random numbers come from a generator outside that is seeded again and then replaced."""
    o = types.SimpleNamespace(generator=torch.Generator(device).manual_seed(1))
    g = wrap(lambda x: x + torch.rand(4, device=device, generator=o.generator))
    for i in range(22):
        if i == 6:
            o.generator.manual_seed(1)
        if i == 12:
            o.generator = torch.Generator(device).manual_seed(9)
        yield g(full(i, device)), torch.rand(1, device=device)


@case(Kind.RIGHT)
def modes_inside(wrap: Wrap, device: torch.device) -> Items:
    """The callable switches gradients off and autocast on by itself; a weight changes in place."""
    m = nn.Linear(3, 3).to(device)

    def fn(x):
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            return m(x)

    g = wrap(fn)
    for i in range(12):
        if i == 6:
            m.weight.data.mul_(2)
        yield g(ramp(i, device))


@case(Kind.RIGHT)
def transforms_inside(wrap: Wrap, device: torch.device) -> Items:
    """``torch.func.grad`` and ``vmap`` are used in the callable."""

    def fn(x):
        slope = torch.func.grad(lambda v: v.pow(3).sum())(x)
        return slope.clone(), torch.func.vmap(lambda v: v * v.sum())(x[:, None])

    g = wrap(fn)
    for i in range(10):
        yield g(full(i, device))


@case(Kind.WRONG, replays=False)
def generator_function(wrap: Wrap, device: torch.device) -> Items:
    """The callable is a generator function: its body runs when the caller asks for values."""

    def fn(x):
        for n in range(3):
            yield x * n

    g = wrap(fn)
    for i in range(10):
        yield list(g(full(i, device)))  # RT501


@case(Kind.WRONG, replays=None)
def side_stream_inside(wrap: Wrap, device: torch.device) -> Items:
    """Half of the work is done on a stream of its own, forked from the current one and joined again."""
    stream = torch.cuda.Stream() if device.type == "cuda" else None

    def fn(x):
        if stream is None:
            return x * 2 + x.exp()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            half = x.exp()
        y = x * 2
        torch.cuda.current_stream().wait_stream(stream)
        return y + half

    g, held = wrap(fn), []
    for i in range(12):
        held.append(g(full(i / 4, device)))
        yield held[-1]
    yield held
