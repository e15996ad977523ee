"""What classes and functions say of themselves decides nothing: their state is looked into all the same."""

from __future__ import annotations

import collections
import dataclasses
import functools
import logging

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rote
from rote.testing import assert_same


class Raises:
    def __get__(self, instance, owner=None):
        raise RuntimeError("asked")


class Answers(type):
    """A metaclass with a name of its own for the module."""

    @property
    def __module__(cls):
        return 5


SAID = [
    ("__module__", None), ("__module__", 7), ("__module__", property(lambda self: 3)),
    ("__module__", Raises()), ("__module__", ""), ("__module__", "torch.nn.functional"),
    ("__module__", "builtins"), ("__module__", "numpy"),
    ("__module__", "functools"), ("__module__", "rote.api"), ("__module__", "no.such.place"),
    ("__qualname__", "a.b"), ("__qualname__", "partial"), ("__name__", "torch"), ("__name__", "dict"), None,
]  # fmt: skip


def named(said, base=object, **body):
    if said is None:
        return Answers("Odd", (base,), body)
    made = type("Odd", (base,), body)
    setattr(made, *said)
    return made


@pytest.fixture(autouse=True)
def declaration():
    """Somebody has declared something, so each callable is compared with it."""
    rote.pure(declared)


def declared():
    pass


def differ(call, change, *args, replays=3):
    """Play a call, change something, and play on."""
    g = rote.graph(call)
    for _ in range(2):
        for _ in range(5):
            assert_same(g(*args), call(*args))
        change()
    assert_same(g(*args), call(*args))
    assert g.report().replayed >= replays, g.explain()


@pytest.fixture
def x(device):
    return torch.randn(3, device=device)


def bump(owner, name):
    return lambda: setattr(owner, name, getattr(owner, name) + 1)


@pytest.mark.parametrize("said", SAID)
def test_an_argument(said, x):
    o = named(said)()
    o.v = 2.0
    differ(lambda x, o: x * o.v, bump(o, "v"), x, o)


@pytest.mark.parametrize("said", SAID)
def test_a_closure(said, x):
    o = named(said, k=3.0)()
    o.v = 2.0
    differ(lambda x: x * o.v * o.k, bump(o, "v"), x)


@pytest.mark.parametrize("said", SAID)
def test_a_class(said, x):
    kind = named(said, k=3.0)
    differ(lambda x: x * kind.k, bump(kind, "k"), x)
    differ(lambda x, kind: x * kind.k, bump(kind, "k"), x, kind)


@pytest.mark.parametrize("said", SAID[:-1])
def test_a_module(said, x):
    kind = named(said, nn.Module, forward=lambda self, x: x * self.s)
    m = kind()
    m.s = 2.0
    differ(m, bump(m, "s"), x)
    differ(nn.Sequential(m), bump(m, "s"), x)


@pytest.mark.parametrize("said", SAID)
def test_a_callable_object(said, x):
    o = named(said, __call__=lambda self, x: x * self.v)()
    o.v = 2.0
    differ(o, bump(o, "v"), x)


@pytest.mark.parametrize("said", SAID[:-1])
def test_other_classes(said, x):
    data = dataclasses.make_dataclass("Data", [("t", torch.Tensor)])
    error, table = type("Wrong", (Exception,), {}), type("Table", (dict,), {})
    pair = collections.namedtuple("pair", "a b")
    for kind in (data, error, table, pair):
        setattr(kind, *said)

    def call(x, d, t, p):
        try:
            raise error("of the call")
        except error:
            return data(x * d.t), t["k"] * p.b

    g, args = rote.graph(call), (x, data(x), table(k=x), pair(x, x + 1))
    for _ in range(5):
        assert_same(vars(g(*args)[0]), vars(call(*args)[0]))
        assert_same(g(*args)[1], call(*args)[1])


def test_a_function_with_the_names_of_another(x):
    state = {"k": 2.0}

    @functools.wraps(F.relu)
    def scaled(x):
        return F.relu(x) * state["k"]

    for name in (None, "torch", 7):
        scaled.__module__ = name
        differ(scaled, lambda: state.update(k=state["k"] + 1), x)
        differ(lambda x: scaled(x) + 1, lambda: state.update(k=state["k"] + 1), x)


def test_a_function_decorated_by_a_library(x):
    state = {"k": 2.0}

    def scaled(x):
        return x * state["k"]

    for name in (__name__, None, "torch"):
        scaled.__module__ = name
        differ(torch.no_grad()(scaled), lambda: state.update(k=state["k"] + 1), x)
        g, call = rote.graph(torch.no_grad()(scaled)), scaled
        for _ in range(4):
            assert_same(g(x), call(x))


def test_classes_of_libraries_are_not_looked_into(x):
    """Names that lead to them are believed, so what they keep for themselves disturbs nobody."""
    logger = logging.getLogger(__name__)

    def call(x, logger=logger):
        logger.debug("called")
        return x * 2

    g = rote.graph(call)
    for n in range(6):
        g(x)
        logger.name = f"{__name__}.{n}"
    assert g.report().replayed >= 3, g.explain()
