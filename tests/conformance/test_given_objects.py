"""Objects among the arguments, a new one in each call: opened by what calls read of them."""

from __future__ import annotations

import argparse
import collections
import copy
import dataclasses
import types
import weakref
from typing import Any

import pytest
import torch

import rote
from rote.testing import assert_same


class Box:
    kind = "box"
    bias = 1.0

    def __init__(self, **given: Any):
        for name, value in given.items():
            setattr(self, name, value)

    @property
    def double(self):
        return self.x * 2

    def scaled(self):
        return self.x * self.scale


class Sub(Box):
    bias = 3.0


class Slots:
    __slots__ = ("inner", "note", "scale", "x", "y")
    kind, bias = "slots", 2.0

    def __init__(self, **given: Any):
        for name, value in given.items():
            setattr(self, name, value)

    double, scaled = Box.double, Box.scaled


class Half(Slots):
    """Slots, and a dict as well."""


class Lazy(Box):
    def __getattr__(self, name):
        if name == "made":
            return self.x + 1
        raise AttributeError(name)


class Checked(Box):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


@dataclasses.dataclass
class Extra:
    x: torch.Tensor
    scale: float

    kind, bias, double, scaled = "extra", 5.0, Box.double, Box.scaled


def extra(**given: Any):
    made = Extra(given.pop("x"), given.pop("scale"))
    vars(made).update(given)
    return made


class Spaced(types.SimpleNamespace):
    kind, bias, double, scaled = "spaced", 4.0, Box.double, Box.scaled


KINDS = [Box, Sub, Slots, Half, Lazy, Checked, extra, Spaced]
PLAIN = [types.SimpleNamespace, argparse.Namespace]


def state_of(value: Any) -> Any:
    """All that an object holds, in order."""
    if isinstance(value, (Box, Extra, types.SimpleNamespace, argparse.Namespace, collections.UserDict)):
        return [type(value).__name__, *((name, state_of(each)) for name, each in vars(value).items())]
    if isinstance(value, Slots):
        names = [*Slots.__slots__, *getattr(value, "__dict__", ())]
        return [(name, state_of(getattr(value, name, None))) for name in names]
    if isinstance(value, dict):
        return {key: state_of(each) for key, each in value.items()}
    return [state_of(each) for each in value] if isinstance(value, (list, tuple)) else value


def play(function: Any, make: Any, calls: int = 9, **options: Any) -> Any:
    """Calls with fresh arguments, graphed beside plain ones; returns the graphed callable."""
    g = rote.graph(function, **options)
    for number in range(calls):
        ours, theirs = make(number), make(number)
        wanted, got = function(*theirs), g(*ours)
        assert_same(state_of(got), state_of(wanted))
        assert_same(state_of(ours), state_of(theirs))
        for mine, other in zip(ours, theirs, strict=True):
            assert (got is mine) == (wanted is other)
    return g


def tensor(number: int, device: Any) -> torch.Tensor:
    return torch.full((3,), float(number), device=device)


# ---------------------------------------------------------------------- what is read


def a_tensor(b):
    return b.x + 1


def a_number(b):
    return b.x * b.scale


def by_name(b):
    return getattr(b, "x") * getattr(b, "gone", 2.0)  # noqa: B009


def what_is_there(b):
    return b.x * (2 if hasattr(b, "y") else 3)


def a_class_attribute(b):
    return b.x * type(b).bias + b.bias


def a_property(b):
    return b.double


def a_method(b):
    return b.scaled()


def which_class(b):
    return b.x * (2 if isinstance(b, Sub) else 3) * (5 if type(b) is Slots else 7)


def a_matched_class(b):
    match b:
        case Sub(scale=2.0):
            return b.x * 11
        case _:
            return b.x * 13


def whether_it_is_none(b):
    return b.x if b is not None and b else torch.zeros(3)


def kept_inside(b):
    return next(each.x for each in [b]) + 1


def a_copy(b):
    return copy.copy(b).x * 2


READS = [
    a_tensor, a_number, by_name, what_is_there, a_class_attribute, a_property, a_method, which_class,
    a_matched_class, whether_it_is_none, kept_inside,
]  # fmt: skip


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", KINDS)
def test_reads(device, kind, read):
    g = play(read, lambda number: (kind(x=tensor(number, device), scale=2.0, note=number),))
    assert g.report().replayed >= 4, g.explain()


@pytest.mark.parametrize("kind", PLAIN)
def test_reads_of_namespaces(device, kind):
    for read in (a_tensor, a_number, by_name, what_is_there, which_class, kept_inside):
        g = play(read, lambda number: (kind(x=tensor(number, device), scale=2.0, note=number),))
        assert g.report().replayed >= 4, g.explain()


def all_of_it(b):
    return sum(value for value in vars(b).values() if isinstance(value, torch.Tensor)) * len(vars(b))


def in_order(b):
    return next(iter(vars(b).values())) * 2


@pytest.mark.parametrize("kind", [Box, Checked, types.SimpleNamespace, argparse.Namespace])
@pytest.mark.parametrize("read", [all_of_it, in_order, a_copy])
def test_reads_of_all(device, kind, read):
    g = play(read, lambda number: (kind(x=tensor(number, device), y=tensor(3, device), scale=2.0),))
    assert g.report().replayed >= 4, g.explain()
    ours = kind(y=tensor(3, device), x=tensor(1, device), scale=2.0)
    assert_same(g(ours), read(ours))
    vars(ours)["more"] = tensor(5, device)
    assert_same(g(ours), read(ours))


@pytest.mark.parametrize("kind", KINDS)
def test_other_values(device, kind):
    """Numbers, shapes, presence and classes that come in turn."""

    def made(number):
        given = {"x": torch.full((3 + number // 24,), float(number), device=device)}
        given |= {"scale": (2.0, 3.0)[number % 2]} | ({"y": 1.0} if number % 3 == 0 else {})
        return (kind(**given),)

    g = play(lambda b: b.x * b.scale * (2 if hasattr(b, "y") else 3), made, 48)
    assert g.report().replayed >= 20, g.explain()


def test_other_classes_of_the_same_fields(device):
    kinds = (Box, Sub, Lazy)
    g = play(a_class_attribute, lambda number: (kinds[number % 3](x=tensor(number, device)),), 15)
    assert g.report().replayed >= 5, g.explain()


def test_a_class_attribute_that_changes(device):
    class Own(Box):
        bias = 3.0

    g = rote.graph(a_class_attribute)
    for bias in (3.0, 3.0, 3.0, 3.0, 3.0, 7.0, 7.0, 7.0):
        Own.bias = bias
        b = Own(x=tensor(1, device))
        assert_same(g(b), a_class_attribute(b))
    assert g.report().replayed >= 2, g.explain()
    Box.bias, was = 9.0, Box.bias
    try:
        del Own.bias
        assert_same(g(b), a_class_attribute(b))
    finally:
        Box.bias = was
    Own.scaled = lambda self: self.x
    assert_same(g(b), a_class_attribute(b))


def test_a_method_that_changes(device):
    class Own(Box):
        pass

    g = rote.graph(a_method)
    for _ in range(5):
        assert_same(g(Own(x=tensor(1, device), scale=2.0)), tensor(2, device))
    Own.scaled = lambda self: self.x * 5
    assert_same(g(Own(x=tensor(1, device), scale=2.0)), tensor(5, device))


# ---------------------------------------------------------------------- where it lies


def nest(kind: Any, number: int, device: Any) -> Any:
    return kind(x=tensor(number, device), scale=2.0, note=number)


NESTS = [
    (lambda b: b[0].x * b[1]["k"].scale, lambda b: [b, {"k": b}]),
    (lambda b: b["a"].inner.x + b["a"].scale, lambda b: {"a": Box(inner=b, scale=2.0)}),
    (lambda b: b.inner.inner.x * b.inner.scale, lambda b: Box(inner=Sub(inner=b, scale=3.0))),
    (lambda b: b.inner[0].x * b.inner[1]["y"], lambda b: Box(inner=[b, {"y": b.x}])),
    (lambda b: b.inner.x + b.inner.inner.x, lambda b: Box(inner=Sub(x=b.x, inner=b))),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read, put", NESTS)
def test_nested(device, kind, read, put):
    g = play(read, lambda number: (put(nest(kind, number, device)),), 12)
    assert g.report().replayed >= 4, g.explain()


def test_one_object_twice(device):
    def read(a, b):
        a.scale = a.scale + 1
        return a.x * b.scale

    def made(number):
        a, b = nest(Box, number, device), nest(Box, 1, device)
        return (a, a) if number % 2 else (a, b)

    g = play(read, made, 20)
    assert g.report().replayed >= 6, g.explain()


def test_an_object_that_contains_itself(device):
    def made(number):
        b = nest(Box, number, device)
        b.inner = b
        return (b,)

    g = rote.graph(lambda b: b.inner.inner.x * 2)
    for number in range(8):
        assert_same(g(*made(number)), tensor(number, device) * 2)


def test_keywords(device):
    g = rote.graph(lambda *, b: b.x * b.scale)
    for number in range(8):
        assert_same(g(b=nest(Box, number, device)), tensor(number, device) * 2)
    assert g.report().replayed >= 4, g.explain()


def test_gradients(device):
    def step(b):
        return (b.x * b.scale).sum()

    g = rote.graph(step)
    for number in range(8):
        x, y = (tensor(number, device).requires_grad_() for _ in range(2))
        g(Box(x=x, scale=2.0)).backward()
        step(Box(x=y, scale=2.0)).backward()
        assert_same(x.grad, y.grad)
    assert g.report().replayed >= 4, g.explain()


# ---------------------------------------------------------------------- mappings


def mapped(m):
    return m["x"] * m["scale"]


def gotten(m):
    return m.get("x") * m.get("gone", 2.0)


def spread(m):
    return (lambda x, scale: x * scale)(**m)


def of_items(m):
    return sum(value for _, value in m.items()) + len(m)


def of_keys(m):
    return m["x"] * (2 if "y" in m else 3) * len(list(m.keys()))


def into_a_dict(m):
    return dict(m)["x"] * 2


def encoding(given):
    return pytest.importorskip("transformers").BatchEncoding(given)


@pytest.mark.parametrize("kind", [collections.UserDict, encoding])
@pytest.mark.parametrize("read", [mapped, gotten, spread, of_items, of_keys, into_a_dict])
def test_mappings(device, kind, read):
    g = play(read, lambda number: (kind({"x": tensor(number, device), "scale": 2.0}),))
    assert g.report().replayed >= 4, g.explain()


@pytest.mark.parametrize("read", [lambda b: b.x * 2, lambda b: b.keys(), lambda b: b.to(torch.float64)["x"]])
def test_encodings(device, read):
    play(read, lambda number: (encoding({"x": tensor(number, device)}),))


# ---------------------------------------------------------------------- what is written


def an_attribute(b):
    b.y = b.x * 2


def and_returned(b):
    b.y = b.x * 2
    return b.y


def a_constant(b):
    b.y, b.note = 7, "seen"
    return b.x + 1


def counted(b):
    b.note = b.note + 1
    return b.x + b.note


def replaced(b):
    b.x = b.x * 2
    return b.x + 1


def swapped(b):
    b.x, b.y = b.y, b.x
    return b.x - b.y


def deleted(b):
    del b.y
    return b.x * (2 if hasattr(b, "y") else 3)


def in_place(b):
    b.x.add_(1)
    return b.x * b.scale


def set_to_what_it_is(b):
    b.scale = 2.0
    return b.x * 2


WRITES = [an_attribute, and_returned, a_constant, counted, replaced, swapped, deleted, in_place,
          set_to_what_it_is]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", [*KINDS, *PLAIN])
def test_writes(device, kind, write):
    def made(number):
        return (kind(x=tensor(number, device), y=tensor(2, device), scale=2.0, note=1),)

    g = play(write, made, 10)
    assert g.report().replayed >= 4, g.explain()
    b, other = made(3)[0], made(3)[0]
    b.scale = other.scale = 5.0
    assert_same(g(b), write(other))
    assert_same(state_of(b), state_of(other))


def item_written(d):
    d["y"] = d["x"] * 2
    return d["y"] + 1


def item_deleted(d):
    del d["z"]
    return d["x"] * 2


def updated(d):
    d.update(y=d["x"] + 1, n=3)
    return d["y"]


def popped(d):
    return d.pop("x") + 1


def defaulted(d):
    return d.setdefault("y", d["x"] * 3)


def cleared(d):
    x = d["x"]
    d.clear()
    d["out"] = x + 1


@pytest.mark.parametrize("write", [item_written, item_deleted, updated, popped, defaulted, cleared])
@pytest.mark.parametrize("kind", [dict, collections.UserDict])
def test_writes_to_mappings(device, kind, write):
    g = play(write, lambda number: (kind({"x": tensor(number, device), "z": 1}),))
    assert g.report().replayed >= 4, g.explain()


def appended(values):
    values.append(values[0] * 2)
    return values[-1] + 1


def set_in_a_list(values):
    values[0] = values[0] + 1
    values.pop()


def reordered(values):
    values.reverse()
    return values[0] + 1


@pytest.mark.parametrize("write", [appended, set_in_a_list, reordered])
def test_writes_to_lists(device, write):
    g = play(write, lambda number: ([tensor(number, device), 3, tensor(1, device)],))
    assert g.report().replayed >= 4, g.explain()


def test_a_write_on_a_way_that_is_new(device):
    def flagged(d):
        if d["x"].sum() > 0:
            d["flag"], d["y"] = 1, d["x"] + 1
            d["rows"] = [d["y"] * 2]
        return d["x"] * 2

    play(flagged, lambda number: ({"x": tensor((-1, 1)[number > 5], device)},), 14)


def test_a_write_on_a_way_that_is_new_of_an_object(device):
    def flagged(b):
        if b.x.sum() > 0:
            b.flag, b.y = 1, b.x + 1
            del b.note
        return b.x * 2

    values = (-1, -1, -1, -1, -1, 1, 1, 1, 1, -1, 1)
    g = play(flagged, lambda number: (Box(x=tensor(values[number], device), note=3),), len(values))
    assert g.report().replayed >= 4, g.explain()


# ---------------------------------------------------------------------- which object it is


class Keeper:
    def __init__(self):
        self.last, self.table, self.all = None, {}, []
        self.own = None

    def keeps(self, b):
        self.last = b
        return b.x * 2

    def appends(self, b):
        self.all.append(b)
        return b.x * 2

    def looks_up(self, b):
        return b.x * (2 if b in self.all else 3)

    def by_hash(self, b):
        self.table[b] = 1
        return b.x * 2

    def compares(self, b):
        return b.x * (2 if b is self.own else 3)

    def compares_equal(self, b):
        return b.x * (2 if b == self.own else 3)

    def by_id(self, b):
        return b.x * (2 if id(b) == id(self.own) else 3)

    def weakly(self, b):
        self.last = weakref.ref(b)
        return b.x * 2

    def both(self, b):
        b.scale = 5.0
        return b.x * self.own.scale

    def named(self, b):
        return b.x * (2 if repr(b) == repr(self.own) else 3)


USES = ["keeps", "appends", "looks_up", "by_hash", "compares", "compares_equal", "by_id", "weakly", "both",
        "named"]  # fmt: skip


@pytest.mark.parametrize("kind", [Box, Sub, Checked, argparse.Namespace])
@pytest.mark.parametrize("use", USES)
def test_which_object_it_is(device, kind, use):
    """Never silently different, whichever of the two lies where."""
    keepers = []
    for graphed in (False, True):
        keeper = Keeper()
        calls = []
        call = getattr(keeper, use)
        g = rote.graph(call) if graphed else call
        keeper.own = make_one(kind, device)
        for number in range(12):
            b = keeper.own if number in (7, 10) else make_one(kind, device)
            keeper.all = [keeper.own]
            try:
                calls.append(g(b))
            except (TypeError, RuntimeError) as error:
                calls.append(type(error).__name__)
            last = keeper.last() if isinstance(keeper.last, weakref.ref) else keeper.last
            calls.append([last is b, any(each is b for each in keeper.all), len(keeper.all)])
            calls.append(state_of(b))
        keepers.append(calls)
    assert_same(keepers[1], keepers[0])


def make_one(kind: Any, device: Any) -> Any:
    return kind(x=tensor(1, device), scale=2.0)


@pytest.mark.parametrize("kind", [dict, list])
def test_which_container_it_is(device, kind):
    class Held:
        own = None

        def call(self, d):
            first = d["x"] if isinstance(d, dict) else d[0]
            return first * (2 if d is self.own else 3)

    held = Held()
    held.own = {"x": tensor(1, device)} if kind is dict else [tensor(1, device)]
    g = rote.graph(held.call)
    for number in range(8):
        d = held.own if number == 6 else kind(held.own)
        assert_same(g(d), held.call(d))


def test_a_container_that_is_state(device):
    class Held:
        def __init__(self):
            self.own = {"x": tensor(1, device), "n": 1.0}

        def call(self, d):
            d["n"] = 5.0
            return d["x"] * self.own["n"]

    ours, theirs = Held(), Held()
    g = rote.graph(ours.call)
    for number in range(10):
        fresh = [{"x": tensor(1, device), "n": 1.0} for _ in range(2)]
        mine, other = (ours.own, theirs.own) if number == 7 else fresh
        assert_same(g(mine), theirs.call(other))
        assert_same(ours.own["n"], theirs.own["n"])


# ---------------------------------------------------------------------- what is returned


def itself(b):
    b.y = b.x * 2
    return b


def in_a_tuple(b):
    return b, b.x + 1


def in_a_dict(b):
    return {"b": b, "n": [b.x]}


def one_inside(b):
    return b.inner


@pytest.mark.parametrize("give", [itself, in_a_tuple, in_a_dict, one_inside])
@pytest.mark.parametrize("kind", [*KINDS, *PLAIN])
def test_results_that_are_arguments(device, kind, give):
    def made(number):
        return (kind(x=tensor(number, device), scale=2.0, inner=Box(x=tensor(1, device))),)

    g = play(give, made, 12)
    assert g.report().replayed >= 4, g.explain()


def test_a_dict_that_is_returned(device):
    def give(d):
        d["y"] = d["x"] * 2
        return d

    g = play(give, lambda number: ({"x": tensor(number, device)},))
    assert g.report().replayed >= 4, g.explain()
    d = {"x": tensor(1, device)}
    assert g(d) is d


@pytest.mark.parametrize("verify", [1, 2])
@pytest.mark.parametrize("write", [an_attribute, counted, swapped, deleted, itself])
@pytest.mark.parametrize("kind", [Box, Slots, types.SimpleNamespace])
def test_writes_are_verified(device, kind, write, verify):
    def made(number):
        return (kind(x=tensor(number, device), y=tensor(2, device), scale=2.0, note=1),)

    g = play(write, made, 10, verify=verify)
    assert g.report().verified, g.explain()


@pytest.mark.parametrize("write", [item_written, updated, popped, cleared])
def test_writes_to_dicts_are_verified(device, write):
    g = play(write, lambda number: ({"x": tensor(number, device), "z": 1},), 10, verify=1)
    assert g.report().verified, g.explain()


def test_an_argument_is_kept_outside(device):
    class Held:
        last = None

        def call(self, b):
            self.last = b
            return b.x * 2

    held = Held()
    g = rote.graph(held.call)
    for number in range(8):
        b = Box(x=tensor(number, device))
        assert_same(g(b), tensor(number, device) * 2)
        assert held.last is b
        assert_same(held.last.x, tensor(number, device))


# ---------------------------------------------------------------------- objects that are made


@pytest.mark.parametrize("kind", [*KINDS, *PLAIN])
def test_results_that_are_made(device, kind):
    def give(x):
        made = kind(x=x * 2, scale=2.0, inner=Box(x=x, y=[x + 1]))
        made.note = "seen"
        return made, {"k": made.x}

    g = play(give, lambda number: (tensor(number, device),))
    if kind is not Spaced:  # of whose constructor nothing is known
        assert g.report().replayed >= 4, g.explain()


def test_a_made_object_that_is_kept(device):
    """One object in two places stays one."""
    kept = []

    def give(x):
        made = Box(x=x * 2)
        kept.append(made)
        return made, made

    g = rote.graph(give)
    for number in range(6):
        first, second = g(tensor(number, device))
        assert first is second is kept[-1]
        assert_same(first.x, tensor(number, device) * 2)


def test_a_made_object_with_gradients(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    g = rote.graph(lambda x: Box(loss=(x * weight).sum(), note=1))
    for number in range(6):
        weight.grad = None
        g(tensor(number, device)).loss.backward()
        assert_same(weight.grad, tensor(number, device))
    assert g.report().replayed >= 3, g.explain()


def test_an_object_from_outside_is_no_made_one(device):
    kept = Box(x=tensor(1, device))

    def give(x):
        return x * 2, kept

    g = rote.graph(give)
    for number in range(6):
        assert g(tensor(number, device))[1] is kept


# ---------------------------------------------------------------------- views of dicts

VIEWS = [
    (lambda v: sum(v), lambda d: d.values()),
    (lambda v: next(iter(v)) * len(v), lambda d: d.values()),
    (lambda v: sum(value * len(key) for key, value in v), lambda d: d.items()),
    (lambda v: dict(v)["x"] * 2, lambda d: d.items()),
    (lambda v: torch.ones(3) * (2 if "x" in v else 3) * len([*v]), lambda d: d.keys()),
    (lambda v: v[0] * len(v[1]), lambda d: (d["x"], d.keys())),
]


@pytest.mark.parametrize("read, view", VIEWS)
def test_views(device, read, view):
    g = rote.graph(read)
    for number in range(10):
        d = {"x": tensor(number, device), "yy": tensor(2, device)}
        assert_same(g(view(d)), read(view(d)))
    assert g.report().replayed >= 7, g.explain()
    for other in ({"yy": tensor(1, device), "x": tensor(3, device)}, {"x": tensor(4, device)}):
        assert_same(g(view(other)), read(view(other)))


def test_a_view_that_is_returned(device):
    g = rote.graph(lambda v: (v, sum(v)))
    for number in range(6):
        d = {"x": tensor(number, device)}
        view, total = g(given := d.values())
        assert view is given
        assert_same(total, tensor(number, device))


def test_an_argument_that_is_kept_in_another_whose_attributes_are_counted(device):
    """The call that runs on copies of the arguments gives back what it kept of them."""

    def call(x, y, cfg):
        scaled = x * cfg.gain
        cfg.kept = y
        y = cfg.kept
        return y, scaled, y * len(vars(cfg))

    cfg, y = types.SimpleNamespace(gain=2), torch.ones(2, device=device)
    weight = torch.ones(2, device=device, requires_grad=True)
    g = rote.graph(lambda x, y, cfg: (*call(x, y, cfg), weight))
    for n in range(6):
        result = g(torch.full((2,), float(n), device=device), y, cfg)
        assert result[0] is y and cfg.kept is y
        assert_same(result[1:3], (torch.full_like(y, 2.0 * n), y * 2))
