"""What is noted of a call: what it reads and writes outside of itself, and nothing that it made."""

from __future__ import annotations

import functools
import math
import resource
import select
import threading
import time
from collections import OrderedDict, deque, namedtuple
from typing import NamedTuple

import pytest
import torch

from rote.runtime.objects.marks import Content
from rote.runtime.reads.handlers import notes
from rote.runtime.reads.watch import WATCH
from rote.runtime.state.reads import Read

from .noting import noted, values

SCALE, COUNT = 2, 0
TABLE = {"one": 1, "two": 2}


class Base:
    top = 1


class Thing(Base):
    kind = "thing"

    def __init__(self):
        self.a, self.unread = 1, 2
        self.inner = {"k": [1, 2]}

    @property
    def twice(self):
        return self.a * 2

    def method(self):
        return self.a


class Slotted:
    __slots__ = ("s",)

    def __init__(self):
        self.s = 3


class Lazy:
    def __getattr__(self, name):
        return SCALE


def effects(found):
    return [str(each) for each in found.effects]


def closure():
    outside = 5

    def inner():
        return outside

    return inner


def defaults(x=7, *, k=8):
    return x + k


@pytest.mark.parametrize(("function", "args", "name", "value"), [
    (lambda x: x.a, (Thing(),), "args[0].a", 1),
    (lambda x: x.kind, (Thing(),), "Thing.kind", "thing"),
    (lambda x: x.kind, (Thing(),), "args[0].kind", False),
    (lambda x: x.top, (Thing(),), "Base.top", 1),
    (lambda x: x.twice, (Thing(),), "args[0].a", 1),
    (lambda x: x.method(), (Thing(),), "args[0].a", 1),
    (lambda x: x.method(), (Thing(),), "Thing.method", Thing.method),
    (lambda x: x.s, (Slotted(),), "args[0].s", 3),
    (lambda x: x.any, (Lazy(),), "SCALE", SCALE),
    (lambda x: getattr(x, "a"), (Thing(),), "args[0].a", 1),  # noqa: B009
    (lambda x: hasattr(x, "nope"), (Thing(),), "args[0].nope", False),
    (lambda x: getattr(x, "nope", 1), (Thing(),), "args[0].nope", False),
    (lambda x: x.inner["k"][1], (Thing(),), "args[0].inner['k'][1]", 2),
    (lambda: Base.top, (), "Base.top", 1),
    (lambda: math.pi, (), "math.pi", math.pi),
    (lambda: SCALE, (), "SCALE", SCALE),
    (lambda: len, (), "len", len),
    (closure(), (), "outside", 5),
    (defaults, (), "__defaults__", (7,)),
    (defaults, (), "__kwdefaults__['k']", 8),
    (lambda x: x["k"], ({"k": 1, "j": 2},), "args[0]['k']", 1),
    (lambda x: x.get("k"), ({"k": 1, "j": 2},), "args[0]['k']", 1),
    (lambda x: x.get("z"), ({"k": 1},), "args[0]['z']", False),
    (lambda x: "z" in x, ({"k": 1},), "args[0]['z']", False),
    (lambda x: x[-1], ([1, 2, 3],), "args[0] (length)", 3),
    (lambda x: x[1], ([1, 2, 3],), "args[0][1]", 2),
    (lambda x: len(x), ([1, 2, 3],), "args[0] (length)", 3),
    (lambda x: 1 if x else 2, ([1, 2, 3],), "args[0] (length)", 3),
    (lambda x: not x, ({},), "args[0] (length)", 0),
    (lambda x: [*x], ({"k": 1, "j": 2},), "args[0] (order)", ("k", "j")),
    (lambda x: [each for each in x], ({"k": 1, "j": 2},), "args[0] (order)", ("k", "j")),  # noqa: C416
    (lambda x: dict(**x), ({"k": 1, "j": 2},), "args[0]['j']", 2),
    (lambda x: sum(x), ([1, 2],), "args[0][1]", 2),
    (lambda x: 3 in x, ({1, 2},), "args[0]", (1, 2)),
    (lambda x: isinstance(x, Base), (thing := Thing(),), "args[0] (its class)", Thing),
    (lambda x: f"{x}", ([1, 2],), "args[0][1]", 2),
    (lambda x: x == [1], ([1],), "args[0][0]", 1),
])  # fmt: skip
def test_a_read(function, args, name, value):
    found = noted(function, *args)
    read = [each.value for each in found.reads if each.name == name]
    assert value in [each.value if isinstance(each, Content) else each for each in read], values(found)
    assert not found.effects and not found.unseen


def test_what_is_not_read_is_not_noted():
    keys = {read.key for read in noted(lambda x: x.a, Thing()).reads}
    assert "a" in keys and not keys & {"unread", "inner", "kind", "twice", "method"}
    assert not any("two" in read.name for read in noted(lambda: TABLE["one"]).reads)


def test_a_value_is_noted_once():
    found = noted(lambda x: (x.a, x.a, x.a), Thing())
    assert len({read.address for read in found.reads}) == len(found.reads)


def assign(x):
    x.a = 9


def remove(x):
    del x.a


def append(x):
    x.append(1)


def insert(x):
    x["n"] = 1


def exchange(x):
    x.pop()
    x.append(7)


def turn(x):
    x["a"] = x.pop("a")


def trade(x):
    x.remove(5)
    x.add(7)


def pop(x):
    x.pop()


def count():
    global COUNT
    COUNT += 1


def in_closure():
    n = 0

    def inner():
        nonlocal n
        n += 1

    return inner


@pytest.mark.parametrize(("function", "args", "text"), [
    (assign, lambda: (Thing(),), "args[0].a was 1 and is 9"),
    (remove, lambda: (Thing(),), "args[0].a was 1 and is not there"),
    (append, lambda: ([5],), "args[0] (length) was 1 and is 2"),
    (pop, lambda: (deque([5]),), "args[0] (length) was 1 and is 0"),
    (pop, lambda: ({1},), "args[0] (length) was 1 and is 0"),
    (insert, lambda: ({},), "args[0]['n'] was not there and is 1"),
    (insert, lambda: (OrderedDict(),), "args[0]['n'] was not there and is 1"),
    (in_closure(), lambda: (), "n was 0 and is 1"),
    (exchange, lambda: ([1, 5],), "args[0][1] was 5 and is 7"),
    (exchange, lambda: (deque([1, 5]),), "args[0][1] was 5 and is 7"),
    (turn, lambda: ({"a": 1, "b": 2},), "args[0] (order) was 'a' and is 'b'"),
    (trade, lambda: ({5},), "args[0] was {5} and is {7}"),
])  # fmt: skip
def test_a_write(function, args, text):
    found = noted(function, *args())
    assert effects(found) == [text]
    assert found.effects[0].site.file == __file__


def test_a_write_of_a_global():
    was = COUNT
    assert effects(noted(count)) == [f"COUNT was {was} and is {was + 1}"]


def test_what_is_written_first_is_not_read():
    def function(x):
        x.a = 5
        return x.a

    found = noted(function, Thing())
    assert "args[0].a" not in values(found)
    assert effects(found) == ["args[0].a was 1 and is 5"]


def test_what_is_written_back_is_a_condition():
    def function(x):
        was, x.a = x.a, 7
        x.a = was

    found = noted(function, Thing())
    assert not found.effects
    assert values(found)["args[0].a"] == 1


def test_what_the_call_made_is_no_read():
    def function():
        made, items = Thing(), [1]
        made.a = 4
        made.inner["k"].append(3)
        items.append(made.method())
        return sum(items) + len(made.inner) + {"x": 1}["x"]

    found = noted(function)
    assert not found.effects and not found.unseen
    assert not [read for read in found.reads if read.key in ("a", "k", "x", 0) and read.kind != "defined"]


def test_what_is_found_in_what_the_call_made_counts():
    shared = [1, 2]

    def function():
        made = Thing()
        made.inner = shared
        return made.inner[1]

    assert values(noted(function))["shared[1]"] == 2


def test_what_is_stored_in_what_the_call_made_is_no_effect():
    def function():
        made = [Thing()]
        made[0].a = SCALE
        made.append(None)

    assert not noted(function).effects


def test_tensors_are_no_objects_that_are_held():
    found = noted(lambda x: (x * 2).relu() + x.shape[0], torch.ones(3))
    assert not found.effects and not found.unseen
    assert not [read for read in found.reads if isinstance(read.container, torch.Tensor)]


@pytest.mark.parametrize(("function", "text"), [
    (lambda: time.time(), "calls time.time, which reads the clock"),
    (lambda: select.select([], [], [], 0), "which reads or writes what is outside of the program"),
    (lambda: resource.getrusage(0), "calls resource.getrusage, of which nothing is known"),
])  # fmt: skip
def test_what_is_not_known(function, text):
    (unseen,) = [each for each in noted(function).unseen if text in each.text]
    assert unseen.site.file == __file__


def test_a_coroutine_is_not_followed():
    async def coroutine():
        await other()

    async def other():
        pass

    def function():
        coroutine().close()

    (unseen,) = noted(function).unseen
    assert "cannot be followed: GET_AWAITABLE" in unseen.text


def test_code_that_runs_is_noted_as_somebody_wrote_it():
    def helper():
        return SCALE

    def function():
        return helper()

    codes = {read.value for read in noted(function).reads if read.key == "__code__"}
    assert codes == {helper.__code__, function.__code__}


class Layers:
    """As ``nn.ModuleList``: no builtin container, and code of its own for what is asked of one."""

    def __init__(self):
        self.items, self.asked = [1, 2, 3], []

    def __iter__(self):
        self.asked.append("iter")
        return iter(self.items)

    def __getitem__(self, key):
        self.asked.append("item")
        return self.items[key]

    def keys(self):
        self.asked.append("keys")
        return ["a"]


class Table(Layers):
    def __getitem__(self, key):
        self.asked.append("item")
        return self.items[0]


class Plain:
    def __init__(self, x):
        self.x = x


class Own(list):
    def __iter__(self):
        return iter([SCALE, SCALE])


@pytest.mark.parametrize(("function", "make", "asked"), [
    (lambda x: x[0:2], Layers, ["item"]),
    (lambda x: x[:], Layers, ["item"]),
    (lambda x: defaults(*x[:1]), Layers, ["item"]),
    (lambda x: [*x], Layers, ["iter"]),
    (lambda x: (lambda *args: args)(*x), Layers, ["iter"]),
    (lambda x: {**x}, Table, ["keys", "item"]),
    (lambda x: (lambda **kwargs: kwargs)(**x), Table, ["keys", "item"]),
])  # fmt: skip
def test_an_object_with_methods_is_asked_as_often_as_it_would_be(function, make, asked):
    plain, followed = make(), make()
    function(plain)
    found = noted(function, followed)
    assert plain.asked == followed.asked == asked
    assert not [
        read for read in found.reads if read.container is followed and read.kind in ("item", "length")
    ]
    assert values(found)["args[0].items[0]"] == 1


def test_a_list_with_an_iteration_of_its_own():
    found = noted(lambda x: (lambda *args: args)(*x), Own([1]))
    assert values(found)["SCALE"] == SCALE


@pytest.mark.parametrize(("function", "reads"), [
    (lambda x: max(*(each for each in x)), True),
    (lambda x: list(zip(*map(list, [x, x]))), True),  # noqa: B905
    (lambda x: max(*Own([1])), False),
    (lambda x: functools.partial(max)(*(each for each in x)), True),
    (lambda x: Own([x]), False),
    (lambda x: Plain(*(each for each in x[:1])), True),
    (lambda x: max(*x), True),
    (lambda x: max(*x[:2]), True),
    (lambda x: defaults(*(each for each in x[:1])), True),
    (lambda x: print(*map(str, x)), True),
    (lambda x: max(*dict.fromkeys(x)), True),
    (lambda x: max(*range(3)), False),
])  # fmt: skip
def test_what_c_is_given_is_known(function, reads):
    found = noted(function, [1, 2, 3])
    assert not found.unseen
    assert (values(found).get("args[0][0]") == 1) == reads


class Pair(NamedTuple):
    first: int
    second: int


def test_named_tuples_of_ours_are_made_for_the_notes_and_others_are_not():
    trace = WATCH.begin(closure)
    try:
        ours, users = Read.__new__.__code__, Pair.__new__.__code__
        assert trace.is_tool(ours) and trace.is_tool(type(trace).is_tool.__code__)
        assert not trace.is_tool(users) and not trace.is_tool(closure.__code__)
        assert not trace.is_tool(
            namedtuple("Other", "a", module="rote.runtime.reads.trace.trace").__new__.__code__
        )
    finally:
        WATCH.end(trace)


class Asked:
    worker = True


def asks_itself():
    """Code that a note calls may take notes itself: the standard library's, where the call has run it."""
    return Asked.worker


def test_a_thread_of_pytorchs_is_asked_once(monkeypatch):
    monkeypatch.setattr(notes, "is_worker", asks_itself)

    def function(thing):
        asks_itself()
        worker = threading.Thread(target=lambda: asks_itself() and thing.inner["k"])
        worker.start()
        worker.join()

    found = noted(function, Thing())
    assert not [each for each in found.unseen if "could not be followed" in each.text], found.unseen
    assert values(found)["args[0].inner['k']"] is not None
