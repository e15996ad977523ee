"""Every reason names what holds or writes something, at the line that does it, not at the caller's."""

from __future__ import annotations

import collections
import contextvars
import functools
import inspect
import itertools
import logging
import os
import syslog
import time
import types
from unittest import mock

import numpy
import pytest
import torch
from torch import nn

import rote

CALLS = 20
TOTAL = 0
SEEN = set()
KEPT = []
VAR = contextvars.ContextVar("VAR", default=0)


class Net(nn.Module):
    made = 0

    def __init__(self, device):
        super().__init__()
        self.inner = nn.Linear(3, 3, device=device)
        self.n, self.hist, self.table, self.last = 0, [], {}, None
        self.waiting, self.count = collections.deque(range(99)), itertools.count(0, 2)


class Setting:
    def __init__(self):
        self._value = 0

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, new):
        self._value = new  # here


class Sink:
    def __init__(self):
        self.items = []

    def __call__(self, item):
        self.items.insert(0, item)  # here


def attribute(net):
    def fn(x):
        net.n += 1j  # here
        return x * 2

    return fn


def attribute_by_name(net):
    def fn(x):
        setattr(net, "n", net.n + 1j)  # here  # noqa: B010
        return x * 2

    return fn


def namespace(net):
    def fn(x):
        vars(net).update(n=net.n + 1j)  # here
        return x * 2

    return fn


def a_global(net):
    def fn(x):
        global TOTAL
        TOTAL += 1j  # here
        return x * 2

    return fn


def variable(net):
    times = 0

    def fn(x):
        nonlocal times
        times += 1j  # here
        return x * 2

    return fn


def helper(net):
    def note(value):
        net.hist.insert(0, value)  # here

    def fn(x):
        for n in range(2):
            note(n)
        return x * 2

    return fn


def tensor_in_a_list(net):
    def fn(x):
        y = x * 2
        net.hist.insert(0, y)  # here
        return y

    return fn


def item(net):
    def fn(x):
        net.table["k"] = net.table.get("k", 0) + 1j  # here
        return x * 2

    return fn


def a_set(net):
    def fn(x):
        SEEN.add(len(SEEN))  # here
        return x * 2

    return fn


def a_queue(net):
    def fn(x):
        return x * net.waiting.popleft()  # here

    return fn


def iterator(net):
    def fn(x):
        return x * next(net.count)  # here

    return fn


def generator(net):
    steps = (n for n in range(99))

    def fn(x):
        return x * next(steps)  # here

    return fn


def hook_that_counts(net):
    def keep(module, given, result):
        module.calls = getattr(module, "calls", 0) + 1j  # here

    net.inner.register_forward_hook(keep)
    return lambda x: net.inner(x)


def a_class(net):
    def fn(x):
        Net.made += 1j  # here
        return x * 2

    return fn


def a_property(net):
    setting = Setting()

    def fn(x):
        setting.value = setting.value + 1j
        return x * 2

    return fn


def sink(net):
    found = Sink()

    def fn(x):
        found(tuple(x.shape))
        return x * 2

    return fn


def context_variable(net):
    def fn(x):
        VAR.set(VAR.get() + 1)  # here
        return x * 2

    return fn


def a_mock(net):
    called = mock.Mock()

    def fn(x):
        called(1)  # here
        return x * 2

    return fn


def a_default(net):
    def fn(x, seen=[]):  # noqa: B006
        seen.insert(0, 1)  # here
        return x * 2

    return fn


def array(net):
    held = numpy.zeros(3)

    def fn(x):
        held.fill(held[0] + 1)  # here
        return x * 2

    return fn


def replaced_tensor(net):
    kind = type("Kept", (), {"last": 0})

    def fn(x):
        kind.last = kind.last + x  # here
        return kind.last * 1

    return fn


def cache(net):
    numbers = iter(range(99))

    @functools.lru_cache
    def table(n):
        return float(n)

    def fn(x):
        return x * table(next(numbers))  # here

    return fn


def drawn_by_numpy(net):
    def fn(x):
        y = x + 1
        return y * numpy.random.dirichlet((1, 1))[0].item()  # here

    return fn


def seeded(net):
    def fn(x):
        torch.manual_seed(0)  # here
        return torch.rand_like(x)

    return fn


def mode(net):
    others = {torch.float32: torch.float64, torch.float64: torch.float32}

    def fn(x):
        y = x * 2
        torch.set_default_dtype(others[torch.get_default_dtype()])  # here
        return y

    return fn


def clock(net):
    def now():
        return time.clock_gettime(0)  # here

    return lambda x: x * now()


def environment(net):
    def fn(x):
        return x * os.getpid()  # here

    return fn


def unknown(net):
    def fn(x):
        return x * syslog.LOG_UPTO(1)  # here: a page of the docs declares others pure, for the process

    return fn


def file(net):
    def fn(x):
        with open(os.devnull) as opened:  # here
            return x * len(opened.read())

    return fn


PROGRAMS = [
    (attribute, "RT201", "net.n was "),
    (attribute_by_name, "RT201", "net.n was "),
    (namespace, "RT201", "net.n was "),
    (a_global, "RT201", "TOTAL was "),
    (variable, "RT201", ".times was "),
    (helper, "RT201", "net.hist (length) was "),
    (tensor_in_a_list, "RT201", "net.hist"),
    (item, "RT201", "net.table['k'] was "),
    (a_set, "RT201", "SEEN was a set of 18"),
    (a_queue, "RT201", "net.waiting (length) was "),
    (iterator, "RT201", "net.count was count("),
    (generator, "RT201", ".steps was a generator at line "),
    (hook_that_counts, "RT201", "net.inner.calls was "),
    (a_class, "RT201", "Net.made was "),
    (a_property, "RT201", ".setting._value was "),
    (sink, "RT201", ".found.items"),
    (context_variable, "RT201", "VAR.get() was "),
    (a_mock, "RT201", ".called._mock_call"),
    (a_default, "RT201", ".__defaults__[0] (length) was "),
    (array, "RT201", ".held was an array float64[3] and is not what it was"),
    (replaced_tensor, "RT201", "kind.last was a tensor at "),
    (cache, "RT201", ".numbers was "),
    (drawn_by_numpy, "RT204", "the call drew from numpy.random"),
    (seeded, "RT208", "the call sets PyTorch's random state"),
    (mode, "RT210", "default dtype was "),
    (clock, "RT218", "the call calls time.clock_gettime, which reads the clock"),
    (environment, "RT218", "the call calls posix.getpid, which reads the environment"),
    (unknown, "RT218", "the call calls syslog.LOG_UPTO, of which nothing is known"),
    (file, "RT218", "io.open, which reads or writes what is outside"),
]  # fmt: skip
IN = {a_property: Setting, sink: Sink}


def marked(program):
    """The line with the mark."""
    lines, start = inspect.getsourcelines(IN.get(program, program))
    (found,) = [number for number, line in enumerate(lines, start) if "# here" in line]
    return f"tests/conformance/test_reason_lines.py:{found}"


@pytest.mark.parametrize(
    ("program", "code", "words"), PROGRAMS, ids=[program.__name__ for program, *_ in PROGRAMS]
)
def test_the_line_and_the_words(device, caplog, program, code, words):
    g, usual = rote.graph(program(Net(device))), torch.get_default_dtype()
    with caplog.at_level(logging.WARNING, "rote"):
        for _ in range(CALLS):
            g(torch.ones(3, device=device))
    torch.set_default_dtype(usual)
    top, *others = g.report().reasons
    assert (top.code, top.where) == (code, marked(program)), g.explain()
    assert words in top.message and top.remedy, g.explain()
    assert top.count >= CALLS and not top.warm_up
    caller = test_the_line_and_the_words.__code__
    lines = range(caller.co_firstlineno, caller.co_firstlineno + 30)
    loops = {f"tests/conformance/test_reason_lines.py:{line}" for line in lines}
    assert not {why.where for why in others if why.count > 2} & loops, g.explain()
    told = [each for each in caplog.records if each.name == "rote"]
    assert len(told) == (2 if program is mode else 1)  # once for each key
    for record in told:
        assert record.levelname == "WARNING" and "runs eagerly for (args[0]: float" in record.getMessage()
        assert f"{code} at {marked(program)}: " in record.getMessage()


def test_what_settles_is_marked_as_warm_up_and_comes_last(device, where, caplog):
    table = {}

    def fn(x, k):
        if "k" not in table:
            table["k"] = 2.0
        return x * table["k"] * k.n

    setting = types.SimpleNamespace(n=1)
    g, x = rote.graph(lambda x: fn(x, setting)), torch.ones(3, device=device)
    with caplog.at_level(logging.WARNING, "rote"):
        for n in range(8):
            setting.n = 1 + n // 6
            g(x)
    first, last = g.report().reasons
    assert (first.code, first.warm_up, last.code, last.warm_up) == ("RT302", False, "RT201", True), (
        g.explain()
    )
    assert last.where == where(fn, 'table["k"] = 2.0')
    assert f"RT201 at {last.where}, 1 calls in the warm-up: " in g.explain() and not caplog.records


def test_the_log_tells_once_that_values_do_not_come_again(device, caplog):
    g = rote.graph(lambda x: x / float(repr(x.sum().item())))
    with caplog.at_level(logging.WARNING, "rote"):
        for n in range(200):
            g(torch.ones(3, device=device) + n)
    (record,) = [each for each in caplog.records if each.name == "rote"]
    assert "RT304" in record.getMessage()


def test_what_is_not_noted_any_more_is_no_reason(device):
    """Behind the first reason no operation is noted, so nobody knows where a gradient came from."""
    first, second = nn.Linear(3, 3).to(device), nn.Linear(3, 3).to(device)
    optimizers = [torch.optim.Adam(each.parameters(), foreach=False) for each in (first, second)]

    def step(x):
        for layer, optimizer in zip((first, second), optimizers, strict=True):
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()

    g = rote.graph(step)
    for _ in range(CALLS):
        g(torch.ones(2, 3, device=device))
    codes = {found.code for found in g.report().reasons}
    assert "RT411" in codes and "RT205" not in codes, g.explain()
