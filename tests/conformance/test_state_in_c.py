"""State that C keeps for the process, the thread or an object: it is asked again, or the call is eager."""

from __future__ import annotations

import contextvars
import csv
import functools
import gc
import sys
import threading
import weakref
from abc import ABC

import pytest
import torch

import rote
from rote.testing import assert_same


class Thing:
    def __init__(self):
        self.k = 2
        self.members = [2]

    def twice(self):
        return 2 * self.k

    def __len__(self):
        return self.k


def compare(f, change, device, around=lambda call, x: call(x)):
    g = rote.graph(f, keep=True)
    for n in range(9):
        if n == 5:
            change()
        x = torch.ones(3, device=device)
        assert_same(around(g, x), around(f, x))
    return g.report()


PROXIES = {
    "attribute": lambda thing: weakref.proxy(thing).k,
    "method": lambda thing: weakref.proxy(thing).twice(),
    "length": lambda thing: len(weakref.proxy(thing)),
    "member": lambda thing: weakref.proxy(thing).members[0],
    "handed on": lambda thing: getattr(weakref.proxy(thing), "k"),  # noqa: B009
}


def grown(thing):
    thing.k, thing.members[0] = 7, 7


@pytest.mark.parametrize("ask", PROXIES.values(), ids=PROXIES)
def test_a_weak_proxy_that_the_call_makes(ask, device):
    thing = Thing()
    compare(lambda x: x * ask(thing), lambda: grown(thing), device)


@pytest.mark.parametrize(
    "ask",
    [lambda proxy: proxy.k, lambda proxy: proxy.twice(), len, lambda proxy: proxy.members[0]],
    ids=["attribute", "method", "length", "member"],
)
def test_a_weak_proxy_that_is_kept(ask, device):
    thing = Thing()
    proxy = weakref.proxy(thing)
    compare(lambda x: x * ask(proxy), lambda: grown(thing), device)


VARIABLE = contextvars.ContextVar("variable", default=2)

CONTEXTS = {
    "get": lambda context: context.get(VARIABLE, 3),
    "membership": lambda context: 2 if VARIABLE in context else 3,
    "item": lambda context: 2 + context[VARIABLE],
    "run": lambda context: context.run(VARIABLE.get),
    "items": lambda context: dict(context.items()).get(VARIABLE, 3),
    "copy": lambda context: context.copy().get(VARIABLE, 3),
}


@pytest.mark.parametrize("ask", CONTEXTS.values(), ids=CONTEXTS)
def test_a_context_that_the_call_copies(ask, device):
    before = VARIABLE.set(2)
    try:
        compare(lambda x: x * ask(contextvars.copy_context()), lambda: VARIABLE.set(7), device)
    finally:
        VARIABLE.reset(before)


@pytest.mark.parametrize("ask", CONTEXTS.values(), ids=CONTEXTS)
def test_a_context_that_is_kept(ask, device):
    context = contextvars.copy_context()
    context.run(VARIABLE.set, 2)
    compare(lambda x: x * ask(context), lambda: context.run(VARIABLE.set, 7), device)


def test_weak_references_are_counted(device):
    thing, kept = Thing(), []
    change = lambda: kept.append(weakref.ref(thing, lambda dead: None))  # noqa: E731
    compare(lambda x: x * weakref.getweakrefcount(thing), change, device)
    compare(lambda x: x * len(weakref.getweakrefs(thing)), change, device)


def test_a_lock_is_held(device):
    lock = threading.RLock()
    try:
        compare(lambda x: x * (1 + lock._is_owned()), lock.acquire, device)
    finally:
        lock.release()


def test_a_class_is_registered_with_an_abstract_one(device):
    class Shape(ABC):  # noqa: B024
        pass

    class Square:
        pass

    @functools.singledispatch
    def area(shape):
        return 2

    area.register(Shape, lambda shape: 3)
    square = Square()
    compare(lambda x: x * area(square), lambda: Shape.register(Square), device)


def test_the_caller_handles_an_exception(device):
    busy = []

    def around(call, x):
        if not busy:
            return call(x)
        try:
            raise ValueError
        except ValueError:
            return call(x)

    asks = lambda x: x * (2 if sys.exc_info()[0] is None else 3)  # noqa: E731
    report = compare(asks, lambda: busy.append(1), device, around)
    assert report.replayed >= 2, report


def test_dialects_are_registered(device):
    asks = lambda x: x * len(csv.list_dialects())  # noqa: E731
    try:
        compare(asks, lambda: csv.register_dialect("semicolons", delimiter=";"), device)
    finally:
        csv.unregister_dialect("semicolons")


def test_collections_are_due(device):
    before = gc.get_threshold()
    asks = lambda x: x * gc.get_threshold()[0]  # noqa: E731
    try:
        report = compare(asks, lambda: gc.set_threshold(before[0] + 1), device)
    finally:
        gc.set_threshold(*before)
    assert report.replayed >= 2, report


@pytest.mark.parametrize("name", ["LineType", "ZInterp"])
def test_a_class_of_pybind11_is_made_by_every_call(name, device):
    kind = getattr(pytest.importorskip("contourpy._contourpy"), name)

    def call(x):
        return x * (2 if kind(number) == kind(number) else 3)

    number, declared = (101, False) if name == "LineType" else (1, True)
    if declared:
        rote.pure(kind)
    g, x = rote.graph(call), torch.ones(3, device=device)
    for _ in range(6):
        assert_same(g(x), x * 2)
    assert bool(g.report().replayed) == declared, g.explain()
    assert (f"contourpy._contourpy.{name}" in str(g.explain())) != declared
