"""Programs that look things up by which object they are, and sets that are equal in another order."""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import math
import operator
import random
import types
import weakref

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same


def cached():
    counted = []

    @functools.lru_cache
    def once(x):
        counted.append(0)
        return float(len(counted))

    return once


def behind(known):
    reference = weakref.ref(known)
    return lambda x: 2.0 if reference() is x else 1.0


LOOKS = {
    "dict": lambda known: lambda x, table={known: 2.0}: table.get(x, 1.0),
    "item": lambda known: lambda x, table={known: 2.0}: table[x] + len(table) if x in table else 1.0,
    "set": lambda known: lambda x, table={known}: 2.0 if x in table else 1.0,
    "hash": lambda known: lambda x: 2.0 if hash(x) == hash(known) else 1.0,
    "weak reference": behind,
    "cache": lambda known: cached(),
}


@pytest.mark.parametrize("make", LOOKS.values(), ids=LOOKS)
def test_an_argument_is_looked_up_by_its_identity(device, make):
    known, other = torch.ones(3, device=device), torch.ones(3, device=device)
    plain, graphed = make(known), make(known)
    g = rote.graph(lambda x: x * graphed(x))
    for n in range(10):
        x = known if n % 5 < 3 else other
        assert_same(g(x), x * plain(x))


ALIKE = {
    "in a list": lambda x, held: 1.0 if any(each is x for each in held) else 2.0,
    "a place in a list": lambda x, held: held[int(x.shape[0] - 3)].shape[0],
    "a dict of names": lambda x, held: {"a": held[0]}["a"].shape[0],
}


@pytest.mark.parametrize("use", ALIKE.values(), ids=ALIKE)
def test_what_is_no_look_up_by_identity(device, use):
    held = [torch.ones(3, device=device)]
    g = rote.graph(lambda x: x * use(x, held), keep=True)
    for _ in range(8):
        x = torch.ones(3, device=device)
        assert_same(g(x), x * use(x, held))
    assert g.report().replayed == 6


ORDERS = {
    "list": lambda s: list(s)[-1],
    "for": lambda s: next(each for each in s),
    "unpacked": lambda s: (lambda a, b: a)(*s),
    "text": lambda s: str(s).index("8"),
    "max": lambda s: max(s, key=lambda each: 0),
}


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("use", ORDERS.values(), ids=ORDERS)
def test_equal_sets_in_another_order(device, use, kind):
    first, second = kind([8, 16]), kind([16, 8])
    assert first == second and list(first) != list(second)
    held = [first]
    g = rote.graph(lambda x: x * use(held[0]), keep=True)
    for n in range(10):
        held[0] = first if n < 5 else second
        x = torch.ones(3, device=device)
        assert_same(g(x), x * use(held[0]))


def test_an_equal_set_in_the_same_order(device):
    held = [{1, 2, 3}]
    g = rote.graph(lambda x: x * sum(held[0]), keep=True)
    for _ in range(8):
        held[0] = {1, 2, 3}
        x = torch.ones(3, device=device)
        assert_same(g(x), x * 6)
    assert g.report().replayed >= 6


class One:
    def __radd__(self, other):
        return 2.0

    def __lt__(self, other):
        return True


class Other:
    def __radd__(self, other):
        return 3.0

    def __lt__(self, other):
        return False


OF_WHICH_CLASS = {
    "is": lambda thing: 2.0 if type(thing) is One else 3.0,
    "equal": lambda thing: 2.0 if type(thing) == One else 3.0,  # noqa: E721
    "in": lambda thing: 2.0 if type(thing) in (One, int) else 3.0,
    "name": lambda thing: float(len(type(thing).__name__)),
    "key": lambda thing: {One: 2.0, Other: 3.0}[type(thing)],
    "attribute": lambda thing: 2.0 if thing.__class__ is One else 3.0,
    "instance": lambda thing: 2.0 if isinstance(thing, One) else 3.0,
    "asked twice": lambda thing: 2.0 if type(thing) is type(thing) is One else 3.0,
    "sum": lambda thing: sum([thing]),
    "largest": lambda thing: 1.0 if max(thing, 3.0) is thing else 2.0,
    "mapped": lambda thing: 2.0 if [*map(type, [thing])] == [One] else 3.0,
}


@pytest.mark.parametrize("ask", OF_WHICH_CLASS.values(), ids=OF_WHICH_CLASS)
def test_of_which_class_an_object_is(device, ask):
    thing = One()

    def fn(x):
        return x * ask(thing)

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for number in range(15):
        thing.__class__ = Other if 5 <= number < 10 else One
        assert_same(g(x), fn(x))
    assert g.report().replayed >= 8, g.explain()


def test_zeros_in_a_set(device):
    """They are equal, and their signs may differ."""
    held = {0.0}

    def fn(x):
        return x * math.copysign(1, next(iter(held)))

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for number in range(15):
        held.clear()
        held.add(-0.0 if 5 <= number < 10 else 0.0)
        assert_same(g(x), fn(x))
    assert g.report().replayed


def test_which_tuple_an_argument_is(device, reason):
    """No key says which arguments are one tuple, and a recorded call has others."""
    one = (torch.ones(2, device=device),)
    g = rote.graph(lambda x, a, b: x * (2 if a is b else 3) + a[0])
    for number in range(12):
        other = one if number % 3 else (torch.ones(2, device=device),)
        expected = 3.0 if number % 3 else 4.0
        assert g(torch.ones(2, device=device), one, other).tolist() == [expected] * 2
    assert (
        reason(g, "RT218").message == "the call asks whether two tuple are one object; write == instead of is"
    )


def test_which_tuple_lies_in_a_slot_that_is_carried(device):
    class Holder:
        pass

    holder = Holder()
    holder.other = None
    g = rote.graph(lambda x: x * (2 if holder.now is holder.other else 3) + holder.now[0])
    for number in range(40):
        holder.now = (torch.ones(2, device=device), 1.0)
        holder.other = holder.now if number % 7 == 6 or number == 0 else holder.other
        expected = 3.0 if holder.now is holder.other else 4.0
        assert g(torch.ones(2, device=device)).tolist() == [expected] * 2, number


class Views:
    """Tensors outside that look at the memory of others outside."""

    def __init__(self, device):
        self.whole = torch.arange(8.0, device=device)
        self.part = self.whole[:4]
        self.parts = {"end": self.whole[4:]}
        self.layer = torch.nn.Linear(4, 4, device=device)
        with torch.no_grad():
            self.layer.weight.fill_(0.5)
            self.layer.bias.fill_(1.0)
        self.turned = self.layer.weight.detach().t()

    def all(self):
        return [self.whole, self.part, self.parts["end"], self.turned, self.layer.weight]


def bound_anew(state):
    state.part = state.whole[2:6]
    return state.part


RETURNED = {
    "it was read": lambda state, x: (state.part * x, state.part),
    "its base was read": lambda state, x: (state.whole.sum() * x, state.part),
    "its base was written": lambda state, x: (state.whole.add_(1).sum() * x, state.parts["end"]),
    "one like it is made": lambda state, x: (state.part * x, state.whole[:4]),
    "one like it is bound": lambda state, x: (state.part * x, bound_anew(state)),
    "of a parameter": lambda state, x: (state.layer(x), state.turned),
    "two of them": lambda state, x: (state.whole.sum() * x, [state.part, state.part, state.parts["end"]]),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("moves", [False, True], ids=["", "moved between calls"])
@pytest.mark.parametrize("name", RETURNED)
def test_which_tensor_a_result_from_outside_is(device, name, moves):
    states = Views(device), Views(device)
    plain, g = RETURNED[name], rote.graph(lambda x: RETURNED[name](states[1], x))
    for n in range(12):
        x = torch.full((4,), float(n), device=device)
        if moves and n % 4 == 3:
            for state in states:
                state.part = state.whole[4:] if n % 8 == 3 else state.whole[:4]
        with torch.no_grad():
            expected, found = plain(states[0], x), g(x)
        for one, other in zip(_flat(expected), _flat(found), strict=True):
            assert_same(other, one)
            assert [one is each for each in states[0].all()] == [other is each for each in states[1].all()]
    assert moves or g.report().replayed >= 8, g.explain()


def _flat(value):
    if isinstance(value, (list, tuple)):
        return [part for each in value for part in _flat(each)]
    return [value]


def _views():
    held = types.SimpleNamespace(memory=torch.ones(8), kept=[])
    held.view = held.memory[:4]
    return held


@pytest.mark.parametrize("seed", range(12))
def test_an_argument_in_place_is_the_tensor_of_state_or_another(seed):
    """What is bound, and what is returned, may be that very tensor, or another one over the same memory."""
    draw = random.Random(seed)
    steps = [(draw.random() < 0.4, draw.random() < 0.5) for _ in range(14)]

    def played(wrap):
        held = _views()
        held.kept.append(held.view)

        def call(x):
            if x.sum() > 6:
                held.kept[0] = held.view
            return held.kept[0] + x, held.kept[0]

        g = wrap(call)
        for anew, more in steps:
            if anew:
                held.view = held.memory.as_strided((4,), (2,))
            found = g(torch.arange(4.0) + more)[1]
            yield held.kept[0] is held.view, found is held.kept[0], found is held.view

    assert list(played(lambda call: rote.graph(call, keep=True))) == list(played(lambda call: call))


@pytest.mark.parametrize("first", [0, 1])
def test_an_argument_is_the_tensor_of_state_or_another(first):
    held = _views()

    def call(x):
        held.memory.add_(1)
        held.last = x
        return x + 1, held.view

    g = rote.graph(call, keep=True)
    for number in range(24):
        x = held.view if (number // 6 + first) % 2 else held.memory[:4]
        assert g(x)[1] is held.view and held.last is x
    assert g.report().replayed


def nothing() -> None:
    """Makes bound methods and partial functions."""


class Holder:
    def method(self) -> int:
        return 1


HOLDER, NUMBERS = Holder(), [1, 2]
REPLACED = {
    "size": lambda: torch.Size([2, 4]),
    "device": lambda: torch.device("cpu", 0),
    "bytes": lambda: bytes([1, 2]),
    "text": lambda: "".join(["a", "b"]),
    "float": lambda: float("2.5"),
    "range": lambda: range(5),
    "slice": lambda: slice(0, 5),
    "tuple": lambda: tuple([1, 2]),
    "number of numpy": lambda: numpy.float64(2.5),
    "array": lambda: numpy.arange(3),
    "frozen set": lambda: frozenset([1, 2]),
    "set": lambda: {1, 2},
    "bytearray": lambda: bytearray(b"ab"),
    "deque": lambda: collections.deque([1]),
    "list": lambda: [1, 2],
    "dict": lambda: {"a": 1},
    "decimal": lambda: decimal.Decimal("1.5"),
    "date": lambda: datetime.datetime(2026, 1, 2),
    "no number": lambda: float("nan"),
    "partial": lambda: functools.partial(nothing),
    "bound method": lambda: HOLDER.method,
    "method of C": lambda: NUMBERS.count,
    "function of C": lambda: len,
    "class of ones own": Holder,
}
ASKED = {
    "is": lambda held: 2.0 if held.one is held.other else 1.0,
    "is not": lambda held: 2.0 if held.one is not held.other else 1.0,
    "among others": lambda held: float(sum([1 for each in (None, held.other) if each is held.one])),
    "a function of C": lambda held: 1.0 + operator.is_(held.one, held.other),
}


@pytest.mark.parametrize("at_first", ["one", "two"])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("make", REPLACED.values(), ids=REPLACED)
def test_whether_two_slots_hold_one_object(device, make, ask, at_first):
    """Equal ones lie there in each call: the same one in both, then two of them, or the other way round."""
    held = types.SimpleNamespace()
    g = rote.graph(lambda x: x * ask(held))
    for number in range(14):
        held.one = make()
        held.other = held.one if (number < 8) == (at_first == "one") else make()
        x = torch.ones(2, device=device)
        assert_same(g(x), x * ask(held), f"call {number}")


@pytest.mark.parametrize("many", [False, True])
def test_an_equal_slice_in_its_place(device, many):
    held = types.SimpleNamespace()

    def call(x):
        return (
            sum([x[each] for each in held.them]) * len(held.steps) if many else x[held.them] * held.steps[1]
        )

    g = rote.graph(call)
    for number in range(14):
        first = slice(0, 3) if number < 10 else slice(1, 4)
        held.them, held.steps = [first, slice(3, 6)] if many else first, range(2, 5)
        x = torch.randn(8, device=device)
        assert_same(g(x), call(x), f"call {number}")
    assert g.report().replayed >= 8


@pytest.mark.parametrize("make", REPLACED.values(), ids=REPLACED)
def test_whether_two_arguments_are_one_object(device, make):
    """Also where one of them lies in a slot."""
    held = types.SimpleNamespace()

    def call(x, one, other):
        return x * (2.0 if one is other else 1.0) * (3.0 if one is held.one else 1.0)

    g = rote.graph(call)
    for number in range(18):
        first, second = make(), make()
        held.one = first if number < 12 else second
        x = torch.ones(2, device=device)
        other = first if number < 6 else second
        assert_same(g(x, first, other), call(x, first, other), f"call {number}")


NO_NUMBERS = {
    "float": lambda: float("nan"),
    "complex": lambda: complex("nan"),
    "numpy": lambda: numpy.float64("nan"),
    "numpy of 32 bits": lambda: numpy.float32("nan"),
    "decimal": lambda: decimal.Decimal("nan"),
}
FOUND = {
    "among others": lambda one, other: 2.0 if one in [other] else 1.0,
    "equal lists": lambda one, other: 2.0 if [one] == [other] else 1.0,
    "equal tuples": lambda one, other: 2.0 if (1, one) != (1, other) else 1.0,
    "counted": lambda one, other: 1.0 + [other, other].count(one),
    "a key": lambda one, other: {other: 2.0}.get(one, 1.0),
    "a set": lambda one, other: float(len({one, other})),
    "equal dicts": lambda one, other: 2.0 if {"a": one} == {"a": other} else 1.0,
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("find", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("make", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_equals_nothing_is_found_by_which_object_it_is(device, make, find, given):
    held = types.SimpleNamespace()
    g = rote.graph((lambda x, *both: x * find(*both)) if given else lambda x: x * find(held.one, held.other))
    for number in range(14):
        held.one = make()
        held.other = held.one if number < 8 else make()
        x = torch.ones(2, device=device)
        both = (held.one, held.other) if given else ()
        assert_same(g(x, *both), x * find(held.one, held.other), f"call {number}")


class ByAddress:
    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


class Bound:
    def method(self):
        pass


KINDS = {
    "object": lambda device: types.SimpleNamespace(),
    "hashed by its id": lambda device: ByAddress(),
    "module": lambda device: torch.nn.Linear(2, 2, device=device),
    "parameter": lambda device: torch.nn.Parameter(torch.ones(2, device=device)),
    "tensor": lambda device: torch.ones(2, device=device),
    "function": lambda device: types.FunctionType(behind.__code__, globals()),
    "class": lambda device: type("Made", (), {}),
    "list": lambda device: [1],
    "dict": lambda device: {"a": 1},
    "set": lambda device: {1},
    "array": lambda device: numpy.ones(2),
    "bound method": lambda device: Bound().method,
    "tuple": lambda device: (1, [2]),
    "text": lambda device: "".join(["a", "b"]),
    "number": lambda device: float("2.5"),
}
KEPT = [*KINDS][:9]
"""Of these a replay finds the very objects."""


class Things:
    def __init__(self, kind, device):
        self.make = functools.partial(KINDS[kind], device)
        self.both = [self.make(), self.make()]
        self.table = {id(self.both[0]): 3.0}

    def change(self, how):
        if how == 1:
            self.both.reverse()
        elif how == 2:
            self.both[0] = self.make()
        elif how == 3:
            self.both[1] = self.both[0]


ASKED = {
    "known before": lambda s: s.table.get(id(s.both[0]), 1.0),
    "how many": lambda s: float(len({id(each) for each in s.both})),
    "a table of them": lambda s: {id(each): n + 2.0 for n, each in enumerate(s.both)}[id(s.both[0])],
    "compared": lambda s: 2.0 if id(s.both[0]) == id(s.both[1]) else 3.0,
    "the number": lambda s: float(id(s.both[0]) % 4096),
    "left": lambda s: setattr(s, "last", id(s.both[0])) or 2.0,
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_objects(device, kind, ask):
    things = Things(kind, device)
    g = rote.graph(lambda x: x * ask(things))
    x = torch.ones(2, device=device)
    for _ in range(10):
        assert_same(g(x), x * ask(things))
    assert kind not in KEPT or g.report().replayed, g.explain()
    chosen = random.Random(kind)
    for _ in range(24):
        things.change(chosen.choice([0, 0, 1, 2, 3]))
        assert_same(g(x), x * ask(things))
        if hasattr(things, "last"):
            found = things.last
            ask(things)
            assert found == things.last


@pytest.mark.parametrize("whose", ["argument", "result"])
def test_numbers_of_what_is_another_in_each_call(device, whose):
    known = torch.ones(2, device=device)
    table = {id(known): 2.0}

    def fn(x):
        y = x * 2
        return y * table.get(id(x if whose == "argument" else y), 1.0)

    g = rote.graph(fn)
    for n in range(12):
        x = known if n % 4 == 3 else torch.ones(2, device=device)
        assert_same(g(x), fn(x))
