"""The quick guard says what the plain guard says, whatever is done to the state."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import gc
import os
import sys
import types
import weakref

import pytest
import torch
from tests.runtime.conditions.reachable import guard_of
from torch import nn

from rote.runtime.conditions import dicts, quick
from rote.runtime.conditions.conditions import Contents, Plain
from rote.runtime.conditions.dicts import RARELY
from rote.runtime.conditions.quick import QuickGuard
from rote.runtime.fingerprint import epoch, held
from rote.runtime.fingerprint.layout import find_layout, find_sets, find_version
from rote.runtime.program.torch_private import swap_tensors
from rote.runtime.pytorch import torch_private as compat
from rote.runtime.pytorch.torch_private import dict_version, numbers_watched_dicts, plain_functions

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import given, settings

MODE = contextvars.ContextVar("mode", default=1)
GLOBAL = 3


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Maker(dict):
    def __getitem__(self, key):
        return [super().__getitem__(key)]


class Halves(list):
    def __iter__(self):
        return iter([object()])


def make_world():
    """A callable with state of every kind, and that state."""

    class Layer(nn.Module):
        scale = 2.0

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3), requires_grad=False)
            self.register_buffer("table", torch.zeros(3))
            self.register_buffer("nothing", None)
            self.register_buffer("wave", torch.ones(2, dtype=torch.complex64))
            self.factor, self.flags, self.sizes = 1.5, [1, 2], {"a": 1, "b": [2]}
            self.kinds, self.ordered = {1, 2}, collections.OrderedDict(x=1, y=2)
            self.alone, self.placed = collections.OrderedDict(x=1), Slotted(torch.ones(2))
            self.names, self.frozen, self.mixed, self.empty = (
                {"a", "b"},
                frozenset({"a"}),
                {1, "a", 2.5},
                set(),
            )
            self.classes = {int, nn.Linear}
            self.slotted, self.plain = Slotted(5), types.SimpleNamespace(deep={"k": 0})
            self.inner = nn.Linear(3, 3)
            self.tables = collections.defaultdict(list, a=1, b=torch.ones(2))
            self.bare = collections.defaultdict(list)
            self.maker, self.halves = Maker(a=1, b=torch.ones(2)), Halves([1, 2])

        def forward(self, x):
            return x * self.scale

    layer, count, loose = Layer(), 70000, torch.ones(4)
    listed, nested = [torch.ones(2), nn.Parameter(torch.zeros(2))], [70000]

    def shift(x, by=70000):
        return x + by

    def fn(x, *, bias=1.0):
        bias = os.environ.get("ROTE_TEST_BIAS", bias)
        return (
            layer(x) * count
            + loose.sum()
            + sum(map(torch.sum, listed))
            + GLOBAL
            + bias
            + MODE.get()
            + shift(nested[0])
        )

    def set_count(value):
        nonlocal count
        count = value

    def set_loose(value):
        nonlocal loose
        loose = value

    return types.SimpleNamespace(fn=fn, layer=layer, Layer=Layer, listed=listed, nested=nested, shift=shift,
                                 set_count=set_count, set_loose=set_loose, loose=lambda: loose)  # fmt: skip


def set_global(value):
    global GLOBAL
    GLOBAL = value


def rebind(tensor, value):
    tensor.data = value


def grow_and_shrink(members):
    length = len(members)
    members.extend([None] * 99)
    del members[length:]


def turn_round(members):
    for key in [*members][:1]:
        members.move_to_end(key)


class Name(str):
    __slots__ = ()


def replace(members, was, now):
    if isinstance(members, set):  # it may have been frozen
        members.discard(was)
        members.add(now)


def write(tensor, value):
    if tensor.untyped_storage().nbytes():
        tensor.add_(value)


def reshape(tensor, shape):
    with torch.no_grad():
        tensor.set_(tensor.untyped_storage(), 0, shape)


class Special(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        pytest.fail(f"to look at a tensor is not to use it: {function}")


CHANGES = {
    "nothing": lambda w: None,
    "attribute": lambda w: setattr(w.layer, "factor", 2.5),
    "attribute back": lambda w: setattr(w.layer, "factor", 1.5),
    "attribute equal": lambda w: setattr(w.layer, "factor", float("1.5")),
    "attribute of another type": lambda w: setattr(w.layer, "factor", 1),
    "new attribute": lambda w: setattr(w.layer, "fresh", 1),
    "attribute gone": lambda w: w.layer.__dict__.pop("fresh", None),
    "flag": lambda w: w.layer.train(not w.layer.training),
    "flag back": lambda w: w.layer.train(True),
    "list item": lambda w: w.layer.flags.__setitem__(0, 4),
    "list item back": lambda w: w.layer.flags.__setitem__(0, 1),
    "list longer": lambda w: w.layer.flags.append(1),
    "list shorter": lambda w: w.layer.flags.pop() if len(w.layer.flags) > 2 else None,
    "dict item": lambda w: w.layer.sizes.update(a=2),
    "dict item back": lambda w: w.layer.sizes.update(a=1),
    "True for 1": lambda w: w.layer.sizes.update(a=True),
    "dict order": lambda w: w.layer.sizes.update(a=w.layer.sizes.pop("a")),
    "table": lambda w: w.layer.tables.update(a=2),
    "table back": lambda w: w.layer.tables.update(a=1),
    "table of others": lambda w: w.layer.tables.update(z=w.layer.tables.pop("a", 1)),
    "tensor in a table": lambda w: w.layer.tables.update(b=torch.ones(2)),
    "maker": lambda w: w.layer.maker.update(a=2),
    "maker back": lambda w: w.layer.maker.update(a=1),
    "maker of others": lambda w: w.layer.maker.update(z=w.layer.maker.pop("a", 1)),
    "tensor in a maker": lambda w: w.layer.maker.update(b=torch.ones(2)),
    "halves": lambda w: w.layer.halves.append(3),
    "halves back": lambda w: w.layer.halves.pop() if len(w.layer.halves) > 2 else None,
    "half": lambda w: w.layer.halves.__setitem__(0, 3),
    "half back": lambda w: w.layer.halves.__setitem__(0, 1),
    "nested list": lambda w: w.layer.sizes["b"].append(3),
    "set": lambda w: w.layer.kinds.add(3),
    "set back": lambda w: w.layer.kinds.discard(3),
    "True for 1 in a set": lambda w: replace(w.layer.kinds, 1, True),
    "1 for True in a set": lambda w: replace(w.layer.kinds, True, 1),
    "names": lambda w: replace(w.layer.names, "c", "c"),
    "names back": lambda w: replace(w.layer.names, "c", "a"),
    "name of another type": lambda w: replace(w.layer.names, "a", Name("a")),
    "name of the same type": lambda w: replace(w.layer.names, "a", "a"),
    "other names": lambda w: setattr(w.layer, "names", {"a", "b"}),
    "frozen names": lambda w: setattr(w.layer, "names", frozenset({"a", "b"})),
    "frozen": lambda w: setattr(w.layer, "frozen", frozenset({"b"})),
    "frozen back": lambda w: setattr(w.layer, "frozen", frozenset({"a"})),
    "frozen, thawed": lambda w: setattr(w.layer, "frozen", {"a"}),
    "mixed": lambda w: replace(w.layer.mixed, 1, True),
    "mixed back": lambda w: replace(w.layer.mixed, True, 1),
    "mixed again": lambda w: w.layer.mixed.add(4),
    "no longer empty": lambda w: w.layer.empty.add("a"),
    "empty once more": lambda w: w.layer.empty.clear(),
    "classes": lambda w: w.layer.classes.add(str),
    "classes back": lambda w: w.layer.classes.discard(str),
    "environment": lambda w: os.environ.update(ROTE_TEST_BIAS="2"),
    "environment back": lambda w: os.environ.pop("ROTE_TEST_BIAS", None),
    "order": lambda w: w.layer.ordered.move_to_end("x"),
    "order back": lambda w: w.layer.ordered.move_to_end("y"),
    "alone other": lambda w: w.layer.alone.update(x=2),
    "alone back": lambda w: w.layer.alone.update(x=1),
    "alone with another": lambda w: w.layer.alone.update(y=1),
    "alone by another key": lambda w: w.layer.alone.update(y=1) or w.layer.alone.pop("x", None),
    "alone turned round": lambda w: turn_round(w.layer.alone),
    "alone gone": lambda w: w.layer.alone.clear(),
    "slot tensor": lambda w: setattr(w.layer.placed, "value", torch.ones(2)),
    "slot tensor data": lambda w: rebind(w.layer.placed.value, torch.ones(2)),
    "slot": lambda w: setattr(w.layer.slotted, "value", 6),
    "slot back": lambda w: setattr(w.layer.slotted, "value", 5),
    "deep": lambda w: w.layer.plain.deep.update(k=1),
    "deep back": lambda w: w.layer.plain.deep.update(k=0),
    "class attribute": lambda w: setattr(w.Layer, "scale", 3.0),
    "class attribute back": lambda w: setattr(w.Layer, "scale", 2.0),
    "method": lambda w: setattr(w.Layer, "extra", lambda self: 1),
    "cell": lambda w: w.set_count(8),
    "cell back": lambda w: w.set_count(70000),
    "cell equal": lambda w: w.set_count(int("70000")),
    "cell nearly equal": lambda w: w.set_count(int("70001")),
    "tensor cell": lambda w: w.set_loose(torch.ones(4)),
    "tensor cell data": lambda w: rebind(w.loose(), torch.ones(4)),
    "global": lambda w: set_global(4),
    "global back": lambda w: set_global(3),
    "other global": lambda w: globals().__setitem__("_unrelated", object()),
    "context variable": lambda w: MODE.set(2),
    "context variable back": lambda w: MODE.set(1),
    "keyword default": lambda w: w.fn.__kwdefaults__.update(bias=2.0),
    "parameter": lambda w: setattr(w.layer, "weight", nn.Parameter(torch.ones(2, 3), requires_grad=False)),
    "parameter memory": lambda w: rebind(w.layer.weight, torch.ones(2, 3)),
    "parameter turned": lambda w: rebind(w.layer.weight, w.layer.weight.data.as_strided((3, 2), (1, 3))),
    "parameter turned back": lambda w: rebind(w.layer.weight, w.layer.weight.data.as_strided((2, 3), (3, 1))),
    "parameter type": lambda w: rebind(w.layer.weight, w.layer.weight.data.view(torch.int32)),
    "parameter flag": lambda w: w.layer.weight.requires_grad_(not w.layer.weight.requires_grad),
    "parameter set to its own memory": lambda w: reshape(w.layer.weight, (3, 2)),
    "parameter set to other memory": lambda w: w.layer.weight.data.set_(torch.ones(2, 3)),
    "parameter given other memory": lambda w: w.layer.weight.set_(torch.ones(2, 3)),
    "parameter turned in place": lambda w: w.layer.weight.as_strided_((3, 2), (1, 3)),
    "parameter turned back in place": lambda w: w.layer.weight.as_strided_((2, 3), (3, 1)),
    "parameter shifted": lambda w: rebind(w.layer.weight, w.layer.weight.data[1:]),
    "parameter moved in its memory": lambda w: w.layer.weight.untyped_storage().resize_(1000),
    "parameter without memory": lambda w: w.layer.weight.untyped_storage().resize_(0),
    "parameter empty": lambda w: rebind(w.layer.weight, torch.empty(0)),
    "parameter negative": lambda w: rebind(w.layer.weight, torch._neg_view(w.layer.weight.data)),
    "parameter exchanged": lambda w: swap_tensors(w.layer.weight, torch.ones(2, 3)),
    "exchanged with another": lambda w: swap_tensors(w.layer.weight, w.layer.inner.weight),
    "parameter of a graph": lambda w: write(w.layer.weight, torch.ones((), requires_grad=True)),
    "parameter with a gradient": lambda w: setattr(w.layer.weight, "grad", torch.ones(w.layer.weight.shape)),
    "wave conjugate": lambda w: rebind(w.layer.wave, w.layer.wave.data.conj()),
    "wave as numbers": lambda w: rebind(w.layer.wave, w.layer.wave.data.view(torch.int64)),
    "loose class": lambda w: setattr(w.loose(), "__class__", Special),
    "loose class back": lambda w: setattr(w.loose(), "__class__", torch.Tensor),
    "tensors by other names": lambda w: w.layer._parameters.update(another=None),
    "parameter in place": lambda w: write(w.layer.weight.data, torch.ones(())),
    "buffer": lambda w: w.layer._buffers.update(table=torch.zeros(3)),
    "buffer made": lambda w: w.layer.register_buffer("more", torch.zeros(1)),
    "empty filled": lambda w: w.layer._parameters.update({}) or w.layer.inner._buffers.update({"b": None}),
    "empty again": lambda w: w.layer.inner._buffers.clear(),
    "hook": lambda w: w.layer.inner.register_forward_hook(print),
    "hooks gone": lambda w: w.layer.inner._forward_hooks.clear(),
    "child": lambda w: w.layer.add_module("inner", nn.Linear(3, 3)),
    "tensor in a list": lambda w: w.listed.__setitem__(0, torch.ones(2)),
    "memory in a list": lambda w: rebind(w.listed[1], torch.zeros(2)),
    "list grown and shrunk": lambda w: grow_and_shrink(w.layer.flags),
    "list with room": lambda w: grow_and_shrink(w.listed),
    "list turned round": lambda w: w.layer.flags.reverse(),
    "list empty": lambda w: w.layer.flags.clear(),
    "list filled": lambda w: w.layer.flags.__setitem__(slice(None), [1, 2]),
    "list item equal": lambda w: w.nested.__setitem__(0, int("70000")),
    "list item nearly equal": lambda w: w.nested.__setitem__(0, int("70001")),
    "default": lambda w: setattr(w.shift, "__defaults__", (3,)),
    "default equal": lambda w: setattr(w.shift, "__defaults__", (int("70000"),)),
    "default gone": lambda w: setattr(w.shift, "__defaults__", None),
    "factory": lambda w: setattr(w.layer.tables, "default_factory", set),
    "factory back": lambda w: setattr(w.layer.tables, "default_factory", list),
    "factory gone": lambda w: setattr(w.layer.bare, "default_factory", None),
    "bare filled": lambda w: w.layer.bare.update({1: 2}),
    "bare again": lambda w: w.layer.bare.clear(),
}  # fmt: skip


NOTICED = (
    "names", "name of another type", "True for 1 in a set", "frozen", "mixed", "mixed again", "classes",
    "no longer empty", "environment", "attribute", "flag", "list item", "slot", "cell", "context variable",
    "list turned round", "list empty", "list item nearly equal", "default", "default gone", "empty filled",
    "hook", "factory", "factory gone", "bare filled", "alone other", "alone with another", "slot tensor",
    "slot tensor data",
)  # fmt: skip


def make_guard(world):
    return guard_of(world.fn)


@pytest.fixture(autouse=True)
def _restored():
    MODE.set(1)  # a variable that was never set is another state
    yield
    set_global(3)
    MODE.set(1)
    os.environ.pop("ROTE_TEST_BIAS", None)


UNCHANGED = ("nothing", "attribute equal", "cell equal", "parameter in place", "other global")

AT_ONCE = {(dicts, "MANY"): 0, (dicts, "SETTLED"): 1}
"""Every dict is watched from the second look on, where PyTorch watches dicts."""

WAYS = {
    "asked": {(quick, "MANY"): 1 << 30},
    "read": {(quick, "MANY"): 0},
    "without versions": {
        (dicts, "dict_version"): lambda: None,
        (quick, "metadata_check"): lambda tensors: None,
        (quick, "MANY"): 1 << 30,
    },
    "read, without versions": {(dicts, "dict_version"): lambda: None, (quick, "MANY"): 0},
    "read, versions asked": {(dicts, "find_version"): lambda: None},
    "asked, versions read": {
        (quick, "MANY"): 1 << 30,
        (dicts, "find_lengths"): dict,
        (held, "find_cell"): lambda: None,
        (held, "find_items"): lambda: None,
        (held, "find_sets"): lambda: None,
        (held, "place_of_slot"): lambda kind, name: None,
        (held, "find_attributes"): dict,
    },
    "read and watched": AT_ONCE,
    "asked and watched": {**AT_ONCE, (quick, "MANY"): 1 << 30, (dicts, "find_version"): lambda: None},
}
"""How tensors and dicts are looked at."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=14), st.booleans(), st.booleans())
def test_the_quick_guard_agrees_with_the_plain_one(way, names, grad, asked):
    set_global(3)
    MODE.set(1)
    os.environ.pop("ROTE_TEST_BIAS", None)
    with pytest.MonkeyPatch.context() as patch, torch.set_grad_enabled(grad):
        for (module, name), value in WAYS[way].items():
            patch.setattr(module, name, value)
        world = make_world()
        plain, checked = make_guard(world), QuickGuard(make_guard(world))
        assert not asked or checked.holds()
        for name in names:
            # no integers require gradients, and what is frozen is not added to
            with contextlib.suppress(RuntimeError, AttributeError, IndexError), plain_functions():
                CHANGES[name](world)
            assert checked.holds() == plain.holds(), name
            assert checked.holds() == plain.holds(), f"the second time after {name}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["asked", "read", "read and watched"])
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_every_change_alone(name, way, monkeypatch):
    for (module, what), value in WAYS[way].items():
        monkeypatch.setattr(module, what, value)
    world = make_world()
    plain, checked = make_guard(world), QuickGuard(make_guard(world))
    for _ in range(5):
        assert checked.holds()
    with plain_functions():
        CHANGES[name](world)
    assert checked.holds() == plain.holds()
    if "back" in name or name in UNCHANGED:
        assert plain.holds()
    if name in NOTICED:
        assert not plain.holds()


def test_numbers_that_stay_when_an_attribute_is_set():
    """As those of Python 3.13.0 do."""
    assert not compat._notices_attributes(lambda attributes: len(attributes))
    assert compat._notices_attributes(lambda attributes: hash(tuple(attributes.items())))


@pytest.mark.skipif(dict_version() is None, reason="this PyTorch does not number the states of dicts")
def test_sets_and_the_environment_are_not_marked_anew():
    checked = QuickGuard(make_guard(make_world()))
    assert checked.holds()
    slots = [entry for each in checked._left if type(each) is Contents for entry in each.entries]
    marked = {entry.key for entry in slots} | {entry.kind for entry in slots}
    assert marked.isdisjoint({"names", "kinds", "frozen", "classes", "bulk"}) and "mixed" in marked
    compared = {entry.key for each in checked._left if type(each) is Plain for entry in each.entries}
    assert compared.isdisjoint({"names", "kinds", "classes", "frozen"}) or find_sets() is None


@pytest.mark.parametrize("many", [1 << 30, 0])
def test_a_frozen_set_is_thawed_before_anything_is_asked(many, monkeypatch):
    """The slots were sorted while it was frozen; an equal set in its place is another: it has no hash."""
    monkeypatch.setattr(quick, "MANY", many)
    world = make_world()
    plain, checked = make_guard(world), QuickGuard(make_guard(world))
    world.layer.frozen = {"a"}
    assert not plain.holds() and not checked.holds()
    world.layer.frozen = frozenset({"a"})
    assert plain.holds() and checked.holds()


def test_a_tensor_that_dies_is_noticed():
    world = make_world()
    checked = QuickGuard(make_guard(world))
    assert checked.holds()
    world.listed.pop(0)
    assert not checked.holds()


def test_a_cell_is_not_known_by_the_address_of_what_is_gone():
    """An equal number takes the place of the one under guard, and lies where the next one will lie."""
    world = make_world()
    checked = QuickGuard(make_guard(world))
    assert checked.holds()
    for _ in range(50):
        world.set_count(int("70000"))
        assert checked.holds() and checked.holds()
        world.set_count(int("70001"))
        assert not checked.holds()


def test_what_is_read_is_not_looked_at(monkeypatch):
    """Closures, modules, tensors in one or the other: nothing of it is asked in Python."""
    count, loose, layer = 3, torch.ones(2), nn.Linear(2, 2)
    guard = guard_of(lambda x: layer(x) * count + loose)
    checked = QuickGuard(guard)
    assert checked.holds()
    if find_layout() is None or find_version() is None:
        pytest.skip("words are not read here")
    assert checked._is_read
    monkeypatch.setattr(guard, "holds", lambda: pytest.fail("the plain guard was asked"))
    assert checked.holds()


def test_what_holds_is_not_asked_twice(monkeypatch):
    world = make_world()
    guard = make_guard(world)
    checked = QuickGuard(guard)
    for _ in range(RARELY + 3):  # a namespace that goes on changing is looked into slot by slot
        CHANGES["other global"](world)
        assert checked.holds()
    monkeypatch.setattr(guard, "holds", lambda: pytest.fail("the plain guard was asked"))
    CHANGES["other global"](world)
    if dict_version() is not None:
        assert checked.holds()


def test_a_dict_that_is_watched_has_a_new_number_after_a_change():
    version = dict_version()
    if version is None:
        pytest.skip("this PyTorch does not number the states of dicts")
    found = {"a": 1}
    first = version(found)
    assert version(found) == first
    found["a"] = 2
    assert version(found) != first
    assert numbers_watched_dicts() == (sys.version_info >= (3, 12))  # before, all dicts share the numbers


@pytest.mark.skipif(not numbers_watched_dicts(), reason="dicts are not watched")
def test_dicts_that_keep_still_are_watched(monkeypatch):
    """Then nothing of them is read; and if others have ended the epoch, they are read and found the same."""
    monkeypatch.setattr(dicts, "MANY", 0)
    world = make_world()
    guard = make_guard(world)
    checked = QuickGuard(guard)
    for _ in range(dicts.SETTLED + 3):
        assert checked.holds()
    monkeypatch.setattr(guard, "holds", lambda: pytest.fail("the plain guard was asked"))
    found, seen = checked._dicts, checked._dicts._seen
    assert seen is not None and len(seen.changing[1]) > 5
    found._seen = seen._replace(changing=(pytest.fail, *seen.changing[1:]))
    assert checked.holds()
    found._seen = seen
    other = {"a": 1}
    dict_version()(other)
    other["a"] = 2
    assert checked.holds()
    found._seen = seen._replace(changing=(pytest.fail, *seen.changing[1:]))
    assert checked.holds()
    found._seen = seen
    monkeypatch.undo()
    world.layer.inner.register_forward_hook(print)
    assert not checked.holds()


@pytest.mark.skipif(find_version() is None, reason="dicts have no versions")
def test_who_watches_a_dict_is_no_change_of_it(monkeypatch):
    """In Python 3.12 that stands in the word of its version."""
    world = make_world()
    checked = QuickGuard(make_guard(world))
    assert checked.holds()
    for each in (world.layer.__dict__, world.layer.sizes, world.layer.inner.__dict__):
        dict_version()(each)
    assert checked.holds() and checked.holds()
    assert not checked._dicts._busy
    monkeypatch.setattr(checked._guard, "holds", lambda: pytest.fail("the plain guard was asked"))
    assert checked.holds()


def test_it_goes_without_a_collection():
    world = make_world()
    checked = QuickGuard(make_guard(world))
    assert checked.holds()
    gone = weakref.ref(checked)
    gc.disable()
    try:
        del checked
        assert gone() is None
    finally:
        gc.enable()


def numbering(monkeypatch):
    """Number the changes of watched dicts as Python 3.12 does, with dicts that tell of their changes."""
    numbers, counter = {}, [0]

    def version(found):
        if not found:  # seen once and gone again
            counter[0] += 1
            return counter[0] - 1
        if id(found) not in numbers:
            changed(found)
        return numbers[id(found)]

    def changed(found):
        numbers[id(found)] = counter[0]
        counter[0] += 1

    monkeypatch.setattr(epoch, "dict_version", lambda: version)
    monkeypatch.setattr(epoch, "numbers_watched_dicts", lambda: True)
    return version, changed


def test_an_epoch_ends_with_the_first_change(monkeypatch):
    version, changed = numbering(monkeypatch)
    read = epoch.Epoch().reader()
    watched = {"a": 1}
    version(watched)
    first = read()
    assert read() == read() == first
    changed(watched)
    second = read()
    assert second != first and read() == second
    another = {"b": 1}
    version(another)  # one more is watched
    assert read() != second


def test_without_numbers_there_is_no_epoch(monkeypatch):
    monkeypatch.setattr(epoch, "numbers_watched_dicts", lambda: False)
    assert epoch.Epoch().reader() is None


def test_late_readers_only_make_epochs_end(monkeypatch):
    """A reader that is overtaken by another one between its two steps."""
    version, changed = numbering(monkeypatch)
    clock = epoch.Epoch()
    read = clock.reader()
    watched = {"a": 1}
    version(watched)
    read()
    before = clock._next
    known = read()
    changed(watched)
    clock._next = before  # written late
    assert read() != known
    known = read()
    changed(watched)
    assert read() != known
