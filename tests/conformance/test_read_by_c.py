"""What C reads on the way: methods of members, a module's ``__getattr__``, large sets that are arguments."""

from __future__ import annotations

import types
import weakref

import pytest
import torch

import rote
from rote.testing import assert_same


def run(device, f, change, replayed=True, **state):
    """Call, change and call again; what is plain is computed beside it."""
    g = rote.graph(lambda x, *more: x * f(*more), keep=True)
    more = tuple(state.values())
    for n in range(10):
        if n == 5:
            change()
        x = torch.ones(3, device=device)
        assert_same(g(x, *more), x * f(*more))
    assert not replayed or g.report().replayed >= 3


LARGE = {
    "length": len,
    "membership": lambda s: 1 + (5001 in s),
    "sum": sum,
    "largest": max,
}


@pytest.mark.parametrize("use", LARGE.values(), ids=LARGE)
def test_a_large_set_that_is_an_argument(device, use):
    held = set(range(5000))
    run(device, use, lambda: held.add(5001), held=held)


@pytest.mark.parametrize(
    "use",
    [lambda m: getattr(m, "k", 4), lambda m: 1 + hasattr(m, "k"), lambda m: m.k if hasattr(m, "k") else 3],
    ids=["default", "whether", "guarded"],
)
def test_a_module_gets_a_getattr(device, use):
    module = types.ModuleType("config")
    run(device, lambda: use(module), lambda: setattr(module, "__getattr__", lambda name: 7))


class Member:
    k = 1

    def __init__(self, value):
        self.value = value

    def __str__(self):
        return "s"

    def __repr__(self):
        return "r"

    def __lt__(self, other):
        return self.value < other.value

    def __eq__(self, other):
        return self.value == getattr(other, "value", other)

    def __hash__(self):
        return 3

    def __bool__(self):
        return False

    def __radd__(self, other):
        return other + self.value


METHODS = {
    "formatted": ("__str__", lambda self: "sss", lambda held: len("%s" % held[0])),  # noqa: UP031
    "formatted, in a tuple": ("__repr__", lambda self: "rrr", lambda held: len("%r" % (held[0],))),  # noqa: UP031
    "text of a dict": ("__repr__", lambda self: "rrr", lambda held: len(str({1: held[0]}))),
    "sorted": ("__lt__", lambda self, other: self.value > other.value, lambda held: sorted(held)[0].value),
    "any": ("__bool__", lambda self: True, lambda held: 1 + any(held)),
    "sum": ("__radd__", lambda self, other: other + 10, sum),
    "place": ("__eq__", lambda self, other: True, lambda held: held.count(9) + 1),
    "set": ("__hash__", lambda self: id(self), lambda held: len(set([held[0], held[0].value]))),
    "compared": ("__eq__", lambda self, other: True, lambda held: 1 + (held == [5, 6])),
    "found": ("__eq__", lambda self, other: True, lambda held: 1 + (9 in held)),
    "hash": ("__hash__", lambda self: 5, lambda held: hash(held[0])),
}


@pytest.mark.parametrize(("name", "other", "use"), METHODS.values(), ids=METHODS)
def test_a_method_that_c_calls_is_replaced(device, name, other, use):
    kind = type("Member", (Member,), {"__module__": __name__})
    held = [kind(1), kind(2)]
    run(device, lambda: use(held), lambda: setattr(kind, name, other))


def test_a_bound_method_is_mapped(device):
    table = {"k": 1, "j": 2}
    run(device, lambda: sum(map(table.get, ["k", "j"])), lambda: table.update(k=5))


def test_arguments_of_an_exception(device):
    error = ValueError("a", 1)
    run(device, lambda: len(str(error)), lambda: setattr(error, "args", ("b", 22, 3)))


def test_a_function_that_only_c_calls_reads_its_closure(device):
    state = {"k": 1.0}

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * state["k"]

        @staticmethod
        def backward(ctx, grad):
            return grad

    run(device, lambda: float(Scale.apply(torch.ones(1))), lambda: state.update(k=2.5))


def test_what_is_weakly_held_dies_as_without_a_recording(device):
    kept = [Member(1)]
    found = weakref.ref(kept[0])
    run(device, lambda: 5 if found() is None else found().k, kept.clear)


@pytest.mark.parametrize("other", [frozenset({1, 2}), {2, 1}], ids=["frozen", "same"])
def test_a_set_is_replaced_by_an_equal_one_of_another_type(device, other):
    held = [{1, 2}]

    def change():
        held[0] = other

    run(device, lambda: 1 + isinstance(held[0], frozenset), change)
    assert isinstance(held[0], type(other))
