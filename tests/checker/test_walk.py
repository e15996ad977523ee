"""The walk over reachable Python state, what differs between two walks, and guards."""

from __future__ import annotations

import functools
import threading
import types
from _queue import SimpleQueue
from collections import deque

import numpy
import pytest
import torch
from torch import nn

from rote.checker.compare import differences
from rote.checker.walk import StateWalk
from rote.checker.watched import WatchedCode
from rote.runtime.conditions.guards import Guard
from rote.runtime.objects.marks import Content, TensorMark, mark
from rote.runtime.state.slots import same, show


def walk(root, name="f", executed=None):
    found = executed or WatchedCode()
    found.add_function(root)
    return StateWalk(found).take([(name, root)])


def change(root, act, **kwargs):
    """Texts of what differs after ``act()``."""
    before = walk(root, **kwargs)
    act()
    return [str(found) for found in differences(before, walk(root, **kwargs))]


class Plain:
    shared = 1

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def test_nothing_changes():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert change(model, lambda: model(torch.ones(3, 2))) == []


def test_closures():
    count, table = 1, {"a": [1, 2]}

    def fn():
        return count, table

    def act():
        nonlocal count
        count = 2
        table["a"][1] = 5

    assert sorted(change(fn, act)) == ["f.count was 1 and is 2", "f.table['a'][1] was 2 and is 5"]


def test_defaults_and_attributes_of_functions():
    def fn(x=[1], *, y={"k": 1}):  # noqa: B006
        return x, y

    fn.calls = 3
    assert change(fn, lambda: fn.__defaults__[0].__setitem__(0, 2)) == ["f.__defaults__[0][0] was 1 and is 2"]
    assert change(fn, lambda: fn.__kwdefaults__["y"].update(k=4)) == [
        "f.__kwdefaults__['y']['k'] was 1 and is 4"
    ]
    assert change(fn, lambda: setattr(fn, "calls", 4)) == ["f.calls was 3 and is 4"]


def test_instances():
    box = Plain(a=1, inner=Plain(b="x"), slot=Slotted(2.5))
    assert change(box, lambda: setattr(box, "a", 2)) == ["f.a was 1 and is 2"]
    assert change(box, lambda: setattr(box.inner, "b", "y")) == ["f.inner.b was 'x' and is 'y'"]
    assert change(box, lambda: setattr(box.slot, "value", 3.5)) == ["f.slot.value was 2.5 and is 3.5"]
    texts = change(box, lambda: setattr(box, "fresh", 1))
    assert "f.fresh was absent and is 1" in texts
    assert "f.fresh was 1 and is gone" in change(box, lambda: delattr(box, "fresh"))


def test_class_attributes():
    box = Plain()
    try:
        assert change(box, lambda: setattr(Plain, "shared", 2)) == ["Plain.shared was 1 and is 2"]
    finally:
        Plain.shared = 1


@pytest.mark.parametrize(
    ("value", "act", "text"),
    [
        ([1], lambda v: v.append(2), "f.v[1] was absent and is 2"),
        ([1, 2], lambda v: v.pop(), "f.v[1] was 2 and is gone"),
        ({"a": 1}, lambda v: v.update(b=2), "f.v['b'] was absent and is 2"),
        (deque([1, 2]), lambda v: v.rotate(1), "f.v[0] was 1 and is 2"),
        ({1, 2}, lambda v: v.add(3), "f.v was "),
        ((1, [2]), lambda v: v[1].__setitem__(0, 3), "f.v[1][0] was 2 and is 3"),
        (bytearray(b"a"), lambda v: None, None),
        (numpy.zeros(2), lambda v: v.fill(1), "f.v was "),
        (functools.partial(print, [1]), lambda v: v.args[0].append(2), "f.v.args[0][1] was absent and is 2"),
        (types.SimpleNamespace(a=1), lambda v: setattr(v, "a", 2), "f.v.a was 1 and is 2"),
        (list(range(5000)), lambda v: v.__setitem__(4000, -1), "f.v was "),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers(value, act, text):
    box = Plain(v=value)
    texts = change(box, lambda: act(value))
    assert texts == [] if text is None else any(found.startswith(text) for found in texts), texts


def test_methods_and_partials_lead_on():
    box = Plain(a=1)
    box_method = types.MethodType(lambda self: self.a, box)
    assert change(box_method, lambda: setattr(box, "a", 2)) == ["f.a was 1 and is 2"]
    assert change(functools.partial(box_method, box), lambda: setattr(box, "a", 3))


def test_what_lies_behind_objects_of_the_standard_library():
    kept, local, queue = [], threading.local(), SimpleQueue()
    push, local.count = kept.append, 0

    def fn():
        return push, local, queue

    def act():
        push(1)
        local.count = 1
        queue.put(1)

    assert {
        "f.push.__self__[0] was absent and is 1",
        "f.local.count was 0 and is 1",
        "f.queue.qsize() was 0 and is 1",
    } <= set(change(fn, act))


def test_globals_that_executed_code_mentions():
    executed = WatchedCode()
    executed.add_function(reads_global)
    before = walk(reads_global, executed=executed)
    global LEVEL
    LEVEL = 7
    try:
        (found,) = differences(before, walk(reads_global, executed=executed))
        assert found.name.endswith("test_walk.LEVEL") and (found.was, found.now) == ("3", "7")
    finally:
        LEVEL = 3


LEVEL = 3


def reads_global():
    return LEVEL


def test_python_modules_by_the_names_the_code_mentions():
    module = types.ModuleType("settings_of_a_test")
    module.level, module.unread = 1, 1

    def fn():
        return module.level

    def act():
        module.level, module.unread = 2, 2

    assert change(fn, act) == ["settings_of_a_test.level was 1 and is 2"]


def test_code_called_is_noted():
    executed = WatchedCode()

    def inner():
        return LEVEL

    def outer():
        return inner()

    with executed:
        outer()
    names = {code.co_name for code in executed.globals}
    assert {"inner", "outer"} <= names


def test_tensors_by_identity_and_address():
    model = nn.Linear(2, 2)
    old = model.weight.data_ptr()
    kept = model.weight.data
    (text,) = change(model, lambda: setattr(model.weight, "data", torch.zeros(2, 2)))
    assert text == f"f.weight was a tensor at {old:#x} and is a tensor at {model.weight.data_ptr():#x}"
    assert kept.data_ptr() == old
    assert change(model, lambda: model.weight.data.fill_(3)) == []


def test_names_of_layers():
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(1, 1) for _ in range(4)])
    model.scale = 2
    names = set(walk(model, name="model").names_of_tensors().values())
    assert "model.layers.3.weight" in names and len(names) == 8


def test_cycles_end():
    a, b = Plain(), Plain()
    a.other, b.other, a.me = b, a, [a]
    a.me.append(a.me)
    assert change(a, lambda: None) == []


def test_uninitialised_parameters():
    model = nn.LazyLinear(3)
    assert change(model, lambda: None) == []


def test_marks():
    x = torch.ones(2)
    assert mark(x) == TensorMark(id(x), x.data_ptr(), False)
    assert mark({1}) == mark({1}) != mark({True}) and mark({1}) != mark(frozenset({1})) and mark(3) == 3
    large = numpy.zeros(1 << 15)
    assert mark(large) == mark(large) and len(mark(large).value[-1]) < large.nbytes / 2  # a sample
    assert mark(large) != mark(large.copy())


@pytest.mark.parametrize(
    ("was", "now", "equal"),
    [
        (1, 1, True), (1, True, False), (1, 1.0, False), (float("nan"), float("nan"), True), ("a", "a", True),
        ([], [], False), (Content(1), Content(1), True), (Content(1), 1, False), (None, None, True),
        (1.5, 1.5, True), (10**30, 10**30, True), (torch.Size([1]), torch.Size([1]), True),
        (b"a", b"b", False), (0.0, -0.0, False),
    ],
)  # fmt: skip
def test_same(was, now, equal):
    assert same(was, now) is equal


def test_show():
    assert show(1.5) == "1.5" and show("a" * 80) == "'" + "a" * 56 + "..."
    assert show(TensorMark(1, 255, False)) == "a tensor at 0xff"
    assert show(Content(frozenset({1}))) == "{1}"
    assert show(mark(set(range(99)))) == "a set of 99"
    assert show(mark(numpy.zeros((2, 3)))) == "an array float64[2, 3]"
    assert show(Plain()).startswith("a Plain (id 0x")


# --- guards ---------------------------------------------------------------------------------------------


def guard(root, tensors=()):
    externals = {t.untyped_storage()._cdata: t for t in tensors}
    return Guard(walk(root), externals, parameters={}, gradients=[], readers={}, arrays=set())


def test_a_guard_holds_and_fails():
    box = Plain(a=1000, b=[1.5], t=torch.ones(2))
    found = guard(box, [box.t])
    assert found.holds() and found.explain() == [] and found.entries
    box.a = int("1000")  # another object, equal
    assert found.holds()
    box.a = 1001
    assert not found.holds()
    (text,) = map(str, found.explain())
    assert text == "f.a was 1000 and is 1001"
    box.a = 1000
    assert found.holds()
    box.b.append(2)
    assert not found.holds()
    assert "f.b (length) was 1 and is 2" in [str(d) for d in found.explain()]


def test_a_guard_on_tensors():
    box = Plain(t=torch.ones(2))
    found = guard(box, [box.t])
    old, kept = box.t.data_ptr(), box.t
    box.t = torch.zeros(2)
    assert not found.holds()
    (difference,) = found.explain()
    assert difference.moved
    assert str(difference) == f"f.t was the tensor at {old:#x} and is another one at {box.t.data_ptr():#x}"
    box.t = kept
    assert found.holds()
    data = kept.data
    kept.data = torch.zeros(2)
    assert [str(d) for d in found.explain()] == [
        f"f.t was at address {old:#x} and is at {kept.data_ptr():#x}"
    ]
    kept.data = data
    kept.requires_grad_()
    assert not found.holds()
    assert [str(d) for d in found.explain()] == ["f.t was requires_grad=False and is True"]


def test_a_guard_keeps_no_tensor_alive():
    box = Plain(t=torch.ones(2))
    found = guard(box, [box.t])
    box.t = None
    assert found.tensors.dead and not found.holds()


def test_a_guard_on_what_is_gone():
    box = Plain(d={"a": 1})
    found = guard(box)
    del box.d["a"]
    assert not found.holds()
    assert "f.d['a'] was 1 and is gone" in [str(d) for d in found.explain()]


def test_an_object_that_answers_everything_with_a_number_is_not_asked_for_its_class():
    class Odd:
        def __getattribute__(self, name):
            return 0

    box = Plain(odd=Odd(), a=1)
    found = guard(box)
    box.a = 2
    assert not found.holds()
