"""What a traced call changes outside of itself, slot by slot."""

from __future__ import annotations

import functools
import os
import threading
import types
from collections import deque
from contextvars import ContextVar

import numpy
import pytest

from rote.checker.session import TracedCalls
from rote.runtime.state import show

LEVEL = 3
MODE: ContextVar[int] = ContextVar("mode", default=1)


class Plain:
    shared = 1

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def changed(act):
    """Texts of what a call changes, and the lines that do."""
    traced = TracedCalls(act)
    with traced.call([]):
        act()
    return [
        (f"{each.name} was {show(each.was)} and is {show(each.now)}", each.site.text if each.site else "")
        for each in traced.changes
    ]


def texts(act):
    return [text for text, _ in changed(act)]


def test_closures_and_globals():
    count, table = 1, {"a": [1, 2]}

    def act():
        nonlocal count
        global LEVEL
        count = 2
        table["a"][1] = 5
        LEVEL = 7

    try:
        assert changed(act) == [
            ("count was 1 and is 2", "count = 2"),
            ("table['a'][1] was 2 and is 5", 'table["a"][1] = 5'),
            ("LEVEL was 3 and is 7", "LEVEL = 7"),
        ]
    finally:
        globals()["LEVEL"] = 3


def test_attributes_and_slots():
    box = Plain(a=1, inner=Plain(b="x"), slot=Slotted(2.5))

    def act():
        box.a = 2
        box.inner.b = "y"
        box.slot.value = 3.5
        Plain.shared = 2

    try:
        assert texts(act) == [
            "box.a was 1 and is 2",
            "box.inner.b was 'x' and is 'y'",
            "box.slot.value was 2.5 and is 3.5",
            "Plain.shared was 1 and is 2",
        ]
    finally:
        Plain.shared = 1


@pytest.mark.parametrize(
    ("value", "act", "text"),
    [
        ([1], lambda v: v.append(2), "v[1] was "),
        ([1, 2], lambda v: v.pop(), "v[1] was 2"),
        ({"a": 1}, lambda v: v.update(b=2), "v['b'] was "),
        (deque([1, 2]), lambda v: v.rotate(1), "v[0] was 1 and is 2"),
        ({1, 2}, lambda v: v.add(3), "v was "),
        ((1, [2]), lambda v: v[1].__setitem__(0, 3), "v[1][0] was 2 and is 3"),
        (bytearray(b"a"), lambda v: v.append(1), "v was "),
        (numpy.zeros(2), lambda v: v.__setitem__(0, 1), "v was "),
        (functools.partial(print, [1]), lambda v: v.args[0].append(2), "v.args[0][1] was "),
        (types.SimpleNamespace(a=1), lambda v: setattr(v, "a", 2), "v.a was 1 and is 2"),
        (list(range(5000)), lambda v: v.__setitem__(4000, -1), "v[4000] was 4000 and is -1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_containers(value, act, text):
    box = Plain(v=value)
    (found,) = [each for each in texts(lambda: act(box.v)) if each.startswith("box.v")][:1]
    assert found.startswith(f"box.{text}"), found


def test_what_lies_behind_objects_of_the_standard_library():
    kept, local, array = [], threading.local(), numpy.zeros(2)
    push, local.count = kept.append, 0

    def act():
        push(1)
        local.count = 1
        MODE.set(MODE.get() + 1)
        os.environ["ROTE_TEST_TRACED"] = "1"
        array.fill(1)

    try:
        names = {text.partition(" was ")[0] for text in texts(act)}
    finally:
        MODE.set(1)
        os.environ.pop("ROTE_TEST_TRACED", None)
    assert names == {
        "push.__self__[0]",
        "local.count",
        "MODE.get()",
        "array",
        "os.environ._data[b'ROTE_TEST_TRACED']",
    }


def test_what_is_as_it_was():
    seen, table = [], {"a": 1}

    def act():
        seen.append(1)
        table["a"] = 2
        seen.pop()
        table["a"] = 1

    assert texts(act) == []
