"""Values that are equal and not the same, what C does to state unasked, and tensors that become text."""

from __future__ import annotations

import codecs
import collections
import csv
import decimal
import enum
import inspect
import math
import operator
import random
import types
import typing
from typing import Any

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same


def run(device, make, replayed=3):
    """Play a program plain and graphed: change what it has before the sixth call, compare all of it.

    ``make`` gives the callable, what changes, and what a user can see of the state.
    """
    results = []
    for wrap in (lambda f: f, rote.graph):
        f, change, state = make()
        g = wrap(f)
        found = []
        for n in range(10):
            if n == 5:
                change()
            found.append((g(torch.full((3,), float(n), device=device)), state()))
        results.append(found)
    for plain, graphed in zip(*results, strict=True):
        assert_same(graphed, plain)
    assert g.report().replayed >= replayed


def emptied_and_filled(kind):
    def make():
        held = kind("ab")

        def f(x):
            held.clear()
            held.update("ab")
            return x * len(held)

        return f, lambda: held.update("q"), lambda: sorted(map(repr, held))

    return make


@pytest.mark.parametrize("kind", [collections.Counter, set])
def test_a_container_that_is_emptied_and_filled_as_it_was(device, kind):
    run(device, emptied_and_filled(kind))


def test_a_dict_that_is_emptied_and_filled_with_what_lies_outside(device):
    def make():
        outside = [2]
        held = {"a": outside}

        def f(x):
            held.clear()
            held["a"] = outside
            return x * 2

        return f, lambda: held.update(b=1), lambda: list(held)

    run(device, make)


def test_the_global_generator_that_is_seeded_inside(device):
    def make():
        def f(x):
            random.seed(7)
            return x * random.random()

        return f, lambda: random.seed(1), lambda: random.getstate()[1][:4]

    run(device, make)


KEYS = {
    "zero of another sign": (0.0, -0.0),
    "in a tuple": ((0.0, 1), (-0.0, 1)),
    "of another type, in a tuple": ((1, 2), (True, 2)),
    "complex": (0j, complex(0.0, -0.0)),
    "order of a frozenset": (frozenset([0, 8]), frozenset([8, 0])),
}


def told(key):
    """Something that differs for keys that are equal."""
    if isinstance(key, (tuple, frozenset)):
        return 10 * told(next(iter(key))) + len(key)
    if isinstance(key, complex):
        return math.copysign(2, key.imag)
    return math.copysign(3, key) + isinstance(key, bool) + key


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_equal_keys_of_an_argument(device, keys):
    g = rote.graph(lambda x, held: x * told(next(iter(held))))
    for n in range(12):
        x = torch.full((3,), float(n), device=device)
        key = keys[n % 4 == 3]
        assert_same(g(x, {key: 1}), x * told(key))
    assert g.report().replayed


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("kind", [set, dict.fromkeys])
def test_equal_members_of_state(device, kind, keys):
    def make():
        held = kind([keys[0]])

        def change():
            held.clear()
            held.update(kind([keys[1]]))

        return lambda x: x * sum(map(told, held)), change, lambda: None

    run(device, make)


LOOKS = {
    "dict": lambda held, key: dict.fromkeys(held, 2).get(key, 3),
    "list": lambda held, key: 2 + (key in held),
    "tuple as a key": lambda held, key: {(held[0], 1): 2}.get((key, 1), 3),
    "comparison": lambda held, key: 2 + (held == [key]),
    "count": lambda held, key: 2 + held.count(key),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_nan_is_looked_for_by_which_object_it_is(device, look):
    def make():
        nan = float("nan")
        held, key = [nan], [nan]
        return lambda x: x * look(held, key[0]), lambda: key.__setitem__(0, float("nan")), lambda: None

    run(device, make, replayed=0)


def record():
    array = numpy.zeros(2, dtype=[("w", "f4"), ("k", "i4")])
    one = array[0]
    return lambda x: x + float(one["w"]), lambda: array["w"].fill(5), lambda: None


def names_of_fields():
    array = numpy.zeros(2, dtype=[("w", "f4"), ("k", "f4")])
    array["w"] = 3

    def change():
        array.dtype.names = ("k", "w")

    return lambda x: x + float(array["w"].sum()), change, lambda: None


def handler_of_errors():
    codecs.register_error("of the test", lambda error: ("???", error.end))

    def change():
        codecs.register_error("of the test", lambda error: ("", error.end))

    return lambda x: x * len(b"a\xff".decode("ascii", "of the test")), change, lambda: None


@pytest.mark.parametrize("make", [record, names_of_fields, handler_of_errors])
def test_what_c_keeps(device, make):
    run(device, make)


def test_rows_are_written_to_an_object(device):
    class Target:
        size = 0

        def write(self, text):
            self.size += len(text)

    def make():
        target = Target()
        writer = csv.writer(target)

        def f(x):
            writer.writerow([1, 2])
            return x * 2

        return f, lambda: None, lambda: target.size

    run(device, make, replayed=0)


def test_flags_of_decimal_numbers(device):
    def make():
        decimal.getcontext().clear_flags()
        flags = decimal.getcontext().flags
        seen = lambda: bool(flags[decimal.Inexact])  # noqa: E731
        return lambda x: x * float(decimal.Decimal(1) / 3), decimal.getcontext().clear_flags, seen

    run(device, make)


class Fields(typing.NamedTuple):
    held: Any
    other: int = 0


def call_of(k):
    """A function that reads a list of its own."""
    return lambda: k[0]


def of_objects(value):
    array = numpy.empty(1, dtype=object)
    array[0] = value
    return array


HOLDS = {
    "field": (lambda k: Fields(k), lambda held: held.held[0]),
    "field of a field": (lambda k: Fields(Fields({"a": k})), lambda held: held.held.held["a"][0]),
    "field by its name": (Fields, lambda held: getattr(held, held._fields[0])[0]),
    "field by attrgetter": (Fields, lambda held: operator.attrgetter("held")(held)[0]),
    "own object": (lambda k: Fields(types.SimpleNamespace(k=k)), lambda held: held.held.k[0]),
    "closure in a field": (lambda k: Fields(call_of(k)), lambda held: held.held()),
    "closure in a field in a dict": (lambda k: {int: Fields(call_of(k))}, lambda held: held[int].held()),
    "closure in an array": (lambda k: of_objects(call_of(k)), lambda held: held[0]()),
    "keys of a sort": (
        lambda k: [Fields(k, 0), Fields([9], 1)],
        lambda held: sorted(held, key=operator.attrgetter("other"))[0].held[0],
    ),
}


@pytest.mark.parametrize(("hold", "look"), HOLDS.values(), ids=HOLDS)
def test_what_lies_in_what_c_hands_out(device, hold, look):
    def make():
        k = [2]
        held = hold(k)
        return lambda x: x * look(held), lambda: k.__setitem__(0, 5), lambda: None

    run(device, make)


TEXTS = {
    "str": str,
    "repr": repr,
    "format": "{}".format,
    "f-string": lambda w: f"{w}",
    "percent": lambda w: "%s" % w,  # noqa: UP031
    "list": lambda w: str([w]),
    "map": lambda w: ",".join(map(str, w)),
    "one number": lambda w: f"{w[0]}",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_text_of_a_tensor_is_read(device, text):
    def make():
        held = torch.ones(2, device=device)
        return lambda x: x * len(text(held)), lambda: held.fill_(1000.5), lambda: None

    run(device, make)


def test_the_text_of_a_result_is_read(device):
    g = rote.graph(lambda x: x * len(str(x * 2)))
    for n in range(10):
        x = torch.full((2,), 10.5 ** (n // 5), device=device)
        assert_same(g(x), x * len(str(x * 2)))
    assert g.report().replayed >= 3


def test_a_parameter_as_text(device):
    weight = torch.nn.Parameter(torch.ones(2, device=device))
    g = rote.graph(torch.no_grad()(lambda x: x * len(f"{weight}")))
    for n in range(8):
        if n == 4:
            weight.data.fill_(1000.5)
        x = torch.ones(2, device=device)
        assert_same(g(x), x * len(f"{weight}"))
    assert "RT104" in {found.code for found in g.report().reasons}


def test_a_tensor_that_is_only_printed(device, capsys):
    def f(x):
        y = x * 2
        print("y", y)
        return y

    g = rote.graph(f)
    for n in range(8):
        g(torch.full((2,), float(n), device=device))
    assert g.report().replayed >= 3 or device.type == "cuda"  # where it is a read
    assert "tensor([0., 0." in capsys.readouterr().out


def test_a_tensor_that_is_printed_and_used_as_text(device, capsys):
    def f(x):
        y = x * 2
        size = 0
        for use in (print, repr):
            size += len(use(y) or "")
        return y * size

    g = rote.graph(f)
    for n in range(8):
        x = torch.full((2,), 10.0**n, device=device)
        assert_same(g(x), f(x))


def test_a_node_of_a_history_keeps_something(device):
    def make():
        held = torch.ones(3, device=device, requires_grad=True) * 2
        held.grad_fn.metadata["k"] = k = [2]
        return lambda x: x * held.grad_fn.metadata["k"][0], lambda: k.__setitem__(0, 5), lambda: None

    run(device, make, replayed=0)


def test_whether_an_array_can_be_written(device):
    def make():
        array = numpy.zeros(3)

        def f(x):
            array.setflags(write=True)
            return x * 2

        return f, lambda: array.setflags(write=False), lambda: array.flags.writeable

    run(device, make)


class Stores:
    """Sets the attribute, and leaves it to the object to hand it out."""

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, value, new):
        vars(value)[self.name] = new


def test_a_descriptor_that_only_stores(device):
    class Owner:
        held = Stores()

    def make():
        owner = Owner()
        owner.held = {"k": [2]}
        return lambda x: x * owner.held["k"][0], lambda: owner.held.update(k=[5]), lambda: None

    run(device, make)


ADDED = {
    "length": lambda t: 1 + len(t.__dict__),
    "vars": lambda t: 1 + sum(vars(t).values()),
    "membership": lambda t: 1 + ("k" in vars(t)),
    "static": lambda t: inspect.getattr_static(t, "k", 2),
}


@pytest.mark.parametrize("look", ADDED.values(), ids=ADDED)
def test_all_attributes_of_a_tensor(device, look):
    def make():
        first, held = torch.ones(2, 3, device=device)
        return lambda x: x * look(first) * look(held), lambda: setattr(held, "k", 5), lambda: None

    run(device, make)
    g = rote.graph(lambda x: x * look(x))
    for n in range(10):
        x = torch.ones(3, device=device)
        if n > 5:
            x.k = n
        assert_same(g(x), x * look(x))
    assert g.report().replayed


def chain():
    """Three classes of which each one asks the one above; the lowest one's object, and the others."""

    class Top:
        k = 1

        @property
        def shown(self):
            return 2

        @classmethod
        def made(cls):
            return 3

        def go(self):
            return 4

        def __len__(self):
            return 5

    class Middle(Top):
        k = 2

        @classmethod
        def made(cls):
            return super().made() + 1

        def go(self):
            return super().go() + 1

        def __len__(self):
            return super().__len__() + super().k

    class Low(Middle):
        shown = property(lambda self: super().shown + 1)

        @classmethod
        def made(cls):
            return super().made() + 1

        def go(self):
            return super().go() + 1

        def __len__(self):
            return super().__len__() + super().k

    Middle.shown = property(lambda self: super(Middle, self).shown + 1)
    return Low(), Middle, Top


CHAINS = {
    "method": (lambda low: low.go(), "go", lambda self: 9),
    "class method": (lambda low: low.made(), "made", classmethod(lambda cls: 9)),
    "property": (lambda low: low.shown, "shown", property(lambda self: 9)),
    "special method": (len, "__len__", lambda self: 9),
    "attribute": (len, "k", 9),
}


@pytest.mark.parametrize("place", [1, 2], ids=["middle", "top"])
@pytest.mark.parametrize(("look", "name", "new"), CHAINS.values(), ids=CHAINS)
def test_each_class_of_a_chain_asks_the_one_above(device, look, name, new, place):
    def make():
        low, *above = chain()
        return lambda x: x * look(low), lambda: setattr(above[place - 1], name, new), lambda: None

    run(device, make)


def test_members_of_an_enum_are_iterated(device):
    class Kind(enum.IntEnum):
        A = 1
        B = 2

    def make():
        held = [Kind.A]
        return lambda x: x * held[0] + sum(Kind) + len(list(Kind)), lambda: held.append(Kind.B), lambda: None

    run(device, make)


class Marked:
    def first(self):
        return 1

    def second(self):
        return 2


def test_attributes_of_methods(device):
    """Each is read of the function behind a method that the call has bound."""

    def make():
        Marked.first.mark, Marked.second.mark = 2, 3
        held = Marked()
        change = lambda: setattr(Marked.second, "mark", 9)  # noqa: E731
        return lambda x: x * held.first.mark + held.second.mark, change, lambda: None

    run(device, make)


def test_attributes_behind_aliases(device):
    def make():
        kinds = [type("One", (), {"k": 2}), type("Two", (), {"k": 3})]

        def f(x):
            for kind in kinds:
                x = x * types.GenericAlias(kind, (int,)).k
            return x

        return f, lambda: setattr(kinds[1], "k", 9), lambda: None

    run(device, make)


def in_inference_mode(tensor):
    with torch.inference_mode():
        return tensor.clone()


LIES = {
    "inference": (lambda x: x.is_inference(), in_inference_mode),
    "inference, by the function": (torch.is_inference, in_inference_mode),
    "shared": (lambda x: x.is_shared(), lambda x: x.share_memory_()),
    "shared storage": (lambda x: x.untyped_storage().is_shared(), lambda x: x.share_memory_()),
}


@pytest.mark.parametrize(("look", "other"), LIES.values(), ids=LIES)
def test_how_an_argument_lies(device, look, other):
    g = rote.graph(lambda x: (x * 2, look(x)))
    for n in range(10):
        x = torch.full((3,), float(n), device=device)
        x = other(x) if n % 3 == 2 else x
        assert_same(g(x), (x * 2, look(x)))
