"""Special methods that C or an instruction calls: replaced, added and taken away."""

from __future__ import annotations

import _random
import bisect
import collections
import copy
import datetime
import functools
import heapq
import itertools
import json
import math
import operator
import os
import pickle
import random
import sys
import weakref

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same


def number(n):
    return lambda self, *_: n


def by_truth(n):
    return lambda self, *_: n == 2


USES = {
    "index of a list": ("__index__", number, lambda k: [5, 6, 7, 8, 9][k]),
    "bounds of a slice": ("__index__", number, lambda k: sum([5, 6, 7, 8, 9][k:]) + len("abcdef"[:k])),
    "slice made before": ("__index__", number, lambda k: len([5, 6, 7, 8, 9][slice(k, None)])),
    "range": ("__index__", number, lambda k: len(range(k)) + len("ab" * k) + len(hex(k * 1 if 0 else 3))),
    "index of a tensor": ("__index__", number, lambda k: torch.arange(6.0)[k] + torch.ones(6)[k:].sum()),
    "operator.index": ("__index__", number, operator.index),
    "float": ("__float__", lambda n: lambda self: float(n), lambda k: float(k) + math.sqrt(k)),
    "int": ("__int__", number, int),
    "complex": ("__complex__", lambda n: lambda self: complex(n), lambda k: complex(k).real),
    "round": ("__round__", number, lambda k: round(k) + round(k, 2)),
    "math": ("__ceil__", number, math.ceil),
    "truncated": ("__trunc__", number, math.trunc),
    "abs": ("__abs__", number, abs),
    "divmod": ("__divmod__", lambda n: lambda self, other: (n, n), lambda k: divmod(k, 3)[0]),
    "divmod of a number": ("__rdivmod__", lambda n: lambda self, other: (n, n), lambda k: divmod(3, k)[0]),
    "bytes": ("__bytes__", lambda n: lambda self: b"a" * n, lambda k: len(bytes(k))),
    "reversed": ("__reversed__", lambda n: lambda self: [n], lambda k: sum(reversed(k))),
    "path": ("__fspath__", lambda n: lambda self: "a" * n, lambda k: len(os.path.join(k, "b"))),
    "count": ("__eq__", by_truth, lambda k: 1 + [1, 2, 3].count(k)),
    "comparison": ("__eq__", by_truth, lambda k: 1 + operator.eq(k, 3) + (k == 4) + ([k] == [4])),
    "deep comparison": ("__eq__", by_truth, lambda k: 1 + ([[[[[[k]]]]]] == [[[[[[4]]]]]])),
    "filter": ("__bool__", by_truth, lambda k: 1 + len(list(filter(None, [k, 1])))),
    "operator.truth": ("__bool__", by_truth, lambda k: 1 + operator.truth(k) + operator.not_(k) * 3),
    "operator.contains": ("__contains__", by_truth, lambda k: 1 + operator.contains(k, 3)),
    "iter of two": ("__call__", number, lambda k: next(iter(k, 99))),
    "key": ("__call__", number, lambda k: sorted([1, 2], key=k)[0] + sum(map(k, [1, 2]))),
    "reduce": ("__call__", number, lambda k: functools.reduce(k, [1, 2, 3])),
    "operator.iadd": ("__iadd__", number, lambda k: operator.iadd(k, 1)),
    "operator.add": ("__add__", number, lambda k: operator.add(k, 2)),
    "accumulate": ("__radd__", number, lambda k: list(itertools.accumulate([1, k]))[1]),
    "unary": ("__pos__", number, lambda k: +k + operator.pos(k)),
    "heap": ("__lt__", by_truth, lambda k: 1 + (type(least(k)) is int)),
    "bisect": ("__lt__", by_truth, lambda k: 1 + bisect.bisect([1, 2], k)),
    "array": ("__array__", lambda n: lambda self, *_, **__: numpy.ones(n), lambda k: numpy.asarray(k).size),
    "function": ("__torch_function__", lambda n: classmethod(lambda cls, *_: n), lambda k: torch.add(k, 1)),
    "copy": ("__copy__", lambda n: lambda self: n, copy.copy),
    "deep copy": ("__deepcopy__", lambda n: lambda self, memo: n, lambda k: copy.deepcopy([k])[0]),
    "reduced": ("__reduce_ex__", lambda n: lambda self, *_: (int, (n,)), copy.copy),
    "format": ("__format__", lambda n: lambda self, spec: "a" * n, lambda k: len(f"{k:>9}") + len(f"{k}")),
    "converted": ("__str__", lambda n: lambda self: "a" * n, lambda k: len(f"{k!s:>1}")),
    "representation": ("__repr__", lambda n: lambda self: "a" * n, lambda k: len(f"{k!r:>1}{[[[[k]]]]}")),
    "dict display": ("__hash__", number, lambda k: len({k: 0, 2: 1}) + (hash(k) == 2)),
    "set display": ("__eq__", by_truth, lambda k: len({k, hash(k)})),
    "set comprehension": ("__eq__", by_truth, lambda k: len({e for e in (hash(k), k)})),
    "dict comprehension": ("__eq__", by_truth, lambda k: len({e: 1 for e in (hash(k), k)})),
    "key in a tuple": ("__eq__", by_truth, lambda k: len({(hash(k), 1), (k, 1)})),
    "item of a dict made inside": ("__eq__", by_truth, lambda k: stored(k)),
    "class body": ("__set_name__", lambda n: lambda self, owner, name: set_mark(n), lambda k: made_with(k)),
}  # fmt: skip
"""The special method, what makes one that says a number, and how it comes to be called."""
MARK = [0]


def stored(key):
    found = {hash(key): 1}
    found[key] = 2
    found.setdefault(key, 3)
    return len(found)


def least(value):
    held = [3]
    heapq.heappush(held, value)
    return held[0]


def set_mark(n):
    MARK[0] = n


def made_with(value):
    MARK[0] = 0
    type("Made", (), {"part": value})
    return MARK[0]


def changes(device, make, move, *, replays=3):
    """Call a callable, and again after each move; what is plain is computed beside it."""
    f = make()
    g = rote.graph(f, keep=True)
    for call in range(16):
        if call in (3, 7, 11):
            move(call)
        x = torch.arange(3.0, device=device) + call
        try:
            wanted = f(x)
        except Exception as error:
            with pytest.raises(type(error), match=None):
                g(x)
        else:
            assert_same(g(x), wanted)
    assert g.report().replayed >= replays
    g.reset()


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_method_is_replaced(device, use):
    name, method, call = use

    class Base:
        def __hash__(self):
            return 7

    class Kind(Base): ...

    setattr(Kind, name, method(1))
    outside = Kind()

    def move(number):
        kind = Base if number == 11 else Kind
        setattr(kind, name, method({3: 2, 7: 3, 11: 2}[number]))
        if kind is Base:
            delattr(Kind, name)

    changes(device, lambda: lambda x: x * call(outside) + call(Kind()), move)


ADDED = {
    "__getattribute__": (lambda self, name: 7, lambda kind: getattr(kind(), "more", 1)),
    "__getattr__": (lambda self, name: 7, lambda kind: getattr(kind(), "more", 1)),
    "__init__": (lambda self: setattr(self, "more", 3), lambda kind: getattr(kind(), "more", 1)),
    "__new__": (lambda kind: 5, lambda kind: 1 + isinstance(kind(), int)),
    "__eq__": (lambda self, other: True, lambda kind: 1 + [1, 2].count(kind())),
    "__bool__": (lambda self: False, lambda kind: 1 + len(list(filter(None, [kind()])))),
    "__len__": (lambda self: 0, lambda kind: 1 + operator.truth(kind())),
    "__set__": (lambda self, owner, value: None, lambda kind: owner_of(kind).part),
    "__call__": (lambda self: 3, lambda kind: 1 + callable(kind())),
    "__length_hint__": (lambda self: 3, lambda kind: operator.length_hint(kind(), 5)),
}  # fmt: skip
"""Methods that a class has not, to begin with, and a question that is answered by them."""


@functools.cache
def owner_of(kind):
    kind.__get__ = lambda self, owner, of: 2
    owner = type("Owner", (), {"part": kind()})()
    vars(owner)["part"] = 3
    return owner


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("base", [False, True], ids=["class", "base"])
def test_a_method_is_added(device, name, base):
    method, call = ADDED[name]

    class Base: ...

    class Kind(Base): ...

    on = Base if base else Kind

    def move(number):
        if number == 7:
            delattr(on, name)
        else:
            setattr(on, name, method)

    if name == "__set__":
        owner_of(Kind)
    changes(device, lambda: lambda x: x * call(Kind), move)


META = {
    "__call__": (lambda kind: 5, lambda kind: 1 + isinstance(kind(), int)),
    "__instancecheck__": (lambda kind, value: True, lambda kind: 1 + isinstance(3, kind)),
    "__subclasscheck__": (lambda kind, value: True, lambda kind: 1 + issubclass(int, kind)),
    "__len__": (lambda kind: 0, lambda kind: 1 + bool(kind)),
    "__eq__": (lambda kind, other: True, lambda kind: 1 + (kind == 3)),
    "__repr__": (lambda kind: "k", lambda kind: len(str(kind))),
    "__getattr__": (lambda kind, name: 3, lambda kind: getattr(kind, "more", 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", META)
def test_a_method_is_added_to_a_metaclass(device, name):
    method, call = META[name]

    class Meta(type):
        __hash__ = type.__hash__

    class Kind(metaclass=Meta): ...

    def move(number):
        if number == 7:
            delattr(Meta, name)
        else:
            setattr(Meta, name, method)

    changes(device, lambda: lambda x: x * call(Kind), move)


def test_a_base_of_what_is_raised(device):
    class WantedError(Exception): ...

    class OtherError(Exception): ...

    class RaisedError(WantedError): ...

    def f(x):
        try:
            raise RaisedError()
        except WantedError:
            return x * 2
        except OtherError:
            return x * 3

    def move(number):
        RaisedError.__bases__ = (WantedError,) if number == 7 else (OtherError,)

    changes(device, lambda: f, move)


def test_what_yield_from_sends_to(device):
    class Receiver:
        k = 2

        def __iter__(self):
            return self

        def __next__(self):
            return 1

        def send(self, value):
            return value * self.k

    receiver = Receiver()

    def through():
        yield from receiver

    def f(x):
        made = through()
        return x * next(made) + made.send(3)

    def move(number):
        if number == 3:
            receiver.k = 5
        else:
            Receiver.send = lambda self, value: number

    changes(device, lambda: f, move)


NAMED = {
    "object": lambda kind, held: len(repr(held).partition(" at ")[0]),
    "in a list": lambda kind, held: len(str([held]).partition(" at ")[0]),
    "class": lambda kind, held: len(f"{kind}"),
    "error": lambda kind, held: len(repr(type("E", (Exception,), {})("a"))) + len(repr(kind)),
}  # fmt: skip


@pytest.mark.parametrize("use", NAMED.values(), ids=NAMED)
def test_a_text_has_the_name_of_a_class(device, use):
    class Kind: ...

    held = Kind()

    def move(number):
        if number == 11:
            Kind.__module__ = "elsewhere"
        else:
            Kind.__qualname__ = "K" * number

    changes(device, lambda: lambda x: x * use(Kind, held), move)


@pytest.mark.parametrize("use", [repr, str, "{}".format, lambda o: f"{o}", lambda o: "%s" % [o]])
def test_the_address_of_what_a_call_has_made_is_no_text(device, use):
    class Kind: ...

    class Told:
        def __repr__(self):
            return "told"

    told = rote.graph(lambda x: (x * 2, use(Told())))
    g = rote.graph(lambda x: (x * 2, len(use(Kind()))))
    for _ in range(4):
        told(torch.ones(2, device=device))
        g(torch.ones(2, device=device))
    assert told.report().replayed == 2
    assert not g.report().replayed
    assert "Kind that it has made as text" in str(g.report().reasons[0].message)


@pytest.mark.parametrize("use", [json.dumps, str, pickle.dumps, lambda t: "a" * (1 + (t == []))])
def test_what_lies_deep(device, use):
    leaf = {"v": 1}
    top = leaf
    for _ in range(12):
        top = {"n": [top]}

    def move(number):
        leaf["v"] = 10**number

    graphed = rote.graph(lambda x: x * len(use(top)), keep=True)
    for call in range(10):
        if call in (3, 5, 7):
            move(call)
        x = torch.ones(2, device=device)
        assert_same(graphed(x), x * len(use(top)))


def test_a_method_that_c_calls_by_its_name(device):
    class Zone(datetime.tzinfo):
        hours = 1

        def utcoffset(self, when):
            return datetime.timedelta(hours=self.hours)

        def dst(self, when):
            return None

    zone = Zone()
    noon = datetime.datetime(2020, 1, 1, 12, tzinfo=zone)

    def move(number):
        if number == 3:
            Zone.hours = 4
        elif number == 7:
            zone.hours = 2
        else:
            Zone.utcoffset = lambda self, when: datetime.timedelta(hours=7)

    changes(device, lambda: lambda x: x * noon.astimezone(datetime.UTC).hour, move)


def test_the_factory_of_a_default_dict_whose_keys_go_again(device):
    held, table = [3], collections.defaultdict(lambda: held[0])

    def f(x):
        y = x * table["k"]
        del table["k"]
        return y

    def move(number):
        held[0] = number
        if number == 11:
            table.default_factory = lambda: 1

    changes(device, lambda: f, move)


class Thing:
    k = 3

    def gain(self):
        return self.k


def test_a_weak_method_keeps_nothing_alive(device):
    kept = [Thing()]
    method = weakref.WeakMethod(kept[0].gain)

    def f(x):
        found = method()
        return x * (found() if found is not None else 9)

    g = rote.graph(f, keep=True)
    for call in range(8):
        if call == 5:
            kept.clear()
            assert method() is None
        x = torch.ones(2, device=device)
        assert_same(g(x), f(x))
    assert g.report().replayed >= 2


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_a_weak_proxy_is_refused(device, inside):
    kept = [Thing()]
    proxy = weakref.proxy(kept[0])

    def f(x):
        try:
            return x * (weakref.proxy(kept[0]) if inside else proxy).k
        except (ReferenceError, IndexError):
            return x * 0

    g = rote.graph(f)
    for call in range(9):
        if call == 3:
            Thing.k = 4
        elif call == 6:
            kept.clear()
        x = torch.ones(2, device=device)
        assert_same(g(x), f(x))
    Thing.k = 3
    assert "weakref.proxy; use a weakref.ref" in str(g.report().reasons)


def test_the_key_of_a_cache(device):
    class Key:
        def __init__(self, value):
            self.value = value

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self.value == other.value

    cached = functools.cache(lambda key: key.value * 10)
    stored = [Key(1), Key(2)]
    for each in stored:
        cached(each)
    asked = Key(1)

    def f(x):
        return x * cached(asked)

    g = rote.graph(f, keep=True)
    for call in range(12):
        if call == 4:
            asked.value = 2
        elif call == 8:
            stored[0].value = 2
        x = torch.ones(3, device=device)
        assert_same(g(x), f(x))
    assert g.report().replayed >= 3


def test_a_slice_that_holds_an_object(device):
    class Index:
        at = 2

        def __index__(self):
            return self.at

    index = Index()
    held = [slice(index, None)]

    def move(number):
        if number == 11:
            Index.__index__ = lambda self: 0
        else:
            index.at = {3: 1, 7: 0}[number]

    changes(device, lambda: lambda x: x * x[held[0]].sum() + len("abc"[held[0]]), move)


MARKS = {
    "_version": lambda t: t.add_(0),
    "_backward_hooks": lambda t: t.register_hook(lambda grad: grad),
}


@pytest.mark.parametrize("name", MARKS)
def test_what_changes_of_a_tensor_that_stays(device, name):
    t = torch.ones(3, device=device)
    if name == "_backward_hooks":
        t.requires_grad_()
    g = rote.graph(lambda x: x * (2 if getattr(t, name) else 3))
    for call in range(6):
        if call == 4:
            MARKS[name](t)
        x = torch.ones(3, device=device)
        assert_same(g(x), x * (2 if getattr(t, name) else 3))
    assert f"reads {name} of a tensor" in str(g.report().reasons)


@pytest.mark.parametrize("ask", [sys.getsizeof, sys.getrefcount])
def test_how_much_memory_something_has(device, ask):
    held = []
    g = rote.graph(lambda x: (x * 2, ask(held) > 0))
    for _ in range(4):
        g(torch.ones(3, device=device))
    assert not g.report().replayed and "how much memory it has" in str(g.report().reasons)


KEPT_IN_C = {
    "__getitem__": (lambda held: held["list"].__getitem__, lambda own: own[0]),
    "__len__": (lambda held: held["list"].__len__, len),
    "__contains__": (lambda held: held["set"].__contains__, lambda own: 2 if 9 in own else 3),
    "__iter__": (lambda held: held["list"].__iter__, sum),
    "__index__": (lambda held: functools.partial(held.get, 1), operator.index),
    "__round__": (lambda held: functools.partial(held.get, 1), round),
    "__add__": (lambda held: held.get, lambda own: own + 1),
    "__mul__": (lambda held: operator.itemgetter(0), lambda own: own * HELD["list"]),
    "__getattr__": (lambda held: staticmethod(functools.partial(held.get, 1)), lambda own: own.name),
    "__dir__": (lambda held: held["list"].__iter__, lambda own: len(dir(own))),
    "__class_getitem__": (lambda held: held.get, lambda own: type(own)[1]),
    "__array__": (
        lambda held: functools.partial(lambda of, *given, **named: numpy.array(of), held["list"]),
        lambda own: int(numpy.asarray(own).sum()),
    ),
    "__torch_function__": (
        lambda held: functools.partial(lambda of, *given: torch.ones(3) * of[1], held),
        lambda own: torch.add(own, 1),
    ),
}  # fmt: skip
HELD = {"list": [2, 3], "set": {1}, 1: 5}


@pytest.mark.parametrize("name", KEPT_IN_C)
def test_a_special_method_is_a_function_of_c_about_something_else(device, name):
    made, asked = KEPT_IN_C[name]
    HELD.update({"list": [2, 3], "set": {1}, 1: 5})
    own = type("Own", (), {name: made(HELD)})()

    def move(call):
        HELD["list"].append(call)
        HELD["list"][0] = call
        HELD["set"] ^= {9}
        HELD[1] = call

    changes(device, lambda: lambda x: x * asked(own), move, replays=0)


def test_a_special_method_is_a_pure_function_of_c(device):
    own = type("Own", (), {"__init_subclass__": abs, "__abs__": functools.partialmethod(lambda own: own.k)})()
    own.k = 2
    changes(device, lambda: lambda x: x * abs(own), lambda call: setattr(own, "k", call))


LOOKING_INSIDE = {
    "sort": lambda held: held[:].sort() or sorted(held)[0][0],
    "sort in place": lambda held: held.sort() or held[0][0],
    "remove": lambda held: held.remove([4]) or held.insert(0, [4]) or held[-1][0],
    "deque": lambda held: len(HELD["deque"].__repr__()),
    "ge": lambda held: 2 if held.__ge__([[4], [3]]) else 3,
    "default": lambda held: len(collections.defaultdict(None, a=held).__repr__()),
}


@pytest.mark.parametrize("name", LOOKING_INSIDE)
def test_methods_of_containers_that_look_at_their_members(device, name):
    member = [4]
    held = [member, [7]]
    HELD["deque"] = collections.deque(held)

    def move(call):
        if name == "remove":
            held[1][0] = 4 if held[1][0] == 7 else 7
        else:
            member[0] = {3: 9, 7: 2000, 11: 1}[call]

    changes(device, lambda: lambda x: x * LOOKING_INSIDE[name](held), move, replays=0)


def test_a_list_of_lists_is_sorted(device):
    held = [[4], [7]]
    g = rote.graph(lambda x: x * (2 if held.sort() is None else 3), keep=True)
    for call in range(16):
        if call % 4 == 3:
            held[0][0] += 5
        g(torch.ones(3, device=device))
        assert held == sorted(held)


OF_OBJECT = {
    "str": lambda held: len(held.__str__()),
    "unbound": lambda held: len(object.__str__(held)),
    "format": lambda held: len(held.__format__("")),
    "ne": lambda held: 2 if held.__ne__([2, 3]) else 3,
    "unequal": lambda held: 2 if object.__ne__(held, [2, 3]) else 3,
}


@pytest.mark.parametrize("name", OF_OBJECT)
def test_methods_of_object_that_ask_the_class(device, name):
    held = [2, 3]
    changes(device, lambda: lambda x: x * OF_OBJECT[name](held), lambda call: held.append(call))


class Unseeded(random.Random):
    def __init__(self):
        self.drawn = 0


@pytest.mark.parametrize("make", [random.Random, Unseeded, _random.Random])
def test_a_generator_without_a_seed(device, make):
    g = rote.graph(lambda x: x * int(make().random() < 0.5), keep=True)
    for _ in range(6):
        g(torch.ones(3, device=device))
    assert not g.report().replayed and "takes one from the system" in str(g.report().reasons)


def test_a_generator_with_a_seed(device):
    g = rote.graph(lambda x: x * random.Random(5).random(), keep=True)
    for _ in range(6):
        x = torch.ones(3, device=device)
        assert_same(g(x), x * random.Random(5).random())
    assert g.report().replayed


ADDRESSES = {
    "hash": lambda: hash(object()),
    "tuple": lambda: hash((1, object())),
    "method": lambda: Unseeded().random.__hash__(),
    "object": lambda: object.__hash__(object()),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_hash_that_says_where_something_lies(device, name):
    g = rote.graph(lambda x: x * (ADDRESSES[name]() // 16 % 2), keep=True)
    for _ in range(6):
        g(torch.ones(3, device=device))
    assert not g.report().replayed


def test_numpy_is_seeded_inside(device):
    """The call leaves numpy's generator as it was, where it found it like that."""

    def seeded(x):
        numpy.random.seed(3)
        return x * 2

    g = rote.graph(seeded, keep=True)
    for call in range(12):
        if call % 3 == 2:
            numpy.random.seed(call)
        assert_same(g(torch.ones(3, device=device)), torch.ones(3, device=device) * 2)
        drawn = numpy.random.rand()
        numpy.random.seed(3)
        assert drawn == numpy.random.rand()
        numpy.random.seed(3)


@pytest.mark.parametrize("ask", [torch._C._is_alias_of, torch._C._overlaps])
def test_whether_tensors_share_memory(device, ask):
    holder, held = torch.nn.Module(), torch.ones(8, device=device)
    holder.state = torch.ones(4, device=device)
    g = rote.graph(lambda x, y: x * (2 if ask(holder.state, held) else 3) * (2 if ask(y, held) else 3))
    for call in range(12):
        holder.state, y = [(torch.ones(4, device=device), held[:4]), (held[2:6], held[4:] * 2)][call // 3 % 2]
        x = torch.ones(3, device=device)
        assert_same(g(x, y), x * (2 if ask(holder.state, held) else 3) * (2 if ask(y, held) else 3))
    assert not g.report().replayed


class Holder:
    def __init__(self, scale):
        self.scale, self.scales = scale, [scale]

    def times(self, other, x):
        return x * other * self.scale


HANDED_ON = {
    "map": lambda call, x: sum(map(call, (x, x + 1))),
    "filter": lambda call, x: sum(filter(lambda y: call(y) is not None, (x, x + 1))) + sum(map(call, (x,))),
    "reduce": lambda call, x: functools.reduce(lambda y, z: y + z, map(call, (x, x))),
    "sorted": lambda call, x: (
        x * sorted([3, 1, 2], key=lambda n: float(call(x)[0]) * n)[0] + sum(map(call, (x,)))
    ),
    "starmap": lambda call, x: sum(itertools.starmap(call, ((x,), (x,)))),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", HANDED_ON)
@pytest.mark.parametrize(
    "change", ["nothing", "keyword", "attribute", "member", "global", "another", "method"]
)
def test_partials_that_c_calls(device, way, change):
    """What lies in a partial, and what its function reads, is under guard."""
    holder = Holder(2.0)

    def times(holder, x, by):
        return x * by * holder.scale * holder.scales[0] * FACTOR[0]

    calls = [functools.partial(holder.times, 3.0) if change == "method" else
             functools.partial(times, holder, by=3.0)]  # fmt: skip

    def program(x):
        return HANDED_ON[way](calls[0], x)

    g = rote.graph(program)
    x = torch.arange(1.0, 4.0, device=device)
    for count in range(9):
        if count == 5 and change == "keyword":
            calls[0].keywords["by"] = 5.0
        if count == 5 and change in ("attribute", "method"):
            holder.scale = 5.0
        if count == 5 and change == "member":
            holder.scales[0] = 5.0
        if count == 5 and change == "global":
            FACTOR[0] = 5.0
        if count == 5 and change == "another":
            calls[0] = functools.partial(times, Holder(7.0), by=3.0)
        assert_same(g(x), program(x))
    FACTOR[0] = 1.0
    assert g.report().replayed >= 4 or way == "sorted", g.explain()  # that reads values


FACTOR = [1.0]


@pytest.mark.parametrize(
    "call",
    [
        functools.partial(torch.add, torch.ones(1)), functools.partial(operator.mul, 2.0),
        functools.partial(functools.partial(torch.clamp, min=0.5), max=2.0),
    ],
)  # fmt: skip
def test_partials_of_functions_in_c(device, call):
    g = rote.graph(lambda x: sum(map(call, (x, x))))
    x = torch.arange(3.0)
    for _ in range(4):
        assert_same(g(x), sum(map(call, (x, x))))
    assert g.report().replayed == 2, g.explain()


def test_a_partial_of_a_function_in_c_that_calls(device):
    scale = [2.0]
    call = functools.partial(map, lambda y: y * scale[0])

    def program(x):
        return sum(sum(each) for each in map(call, ((x,), (x,))))

    g = rote.graph(program)
    x = torch.arange(3.0, device=device)
    for calls in range(8):
        scale[0] = 2.0 if calls < 5 else 7.0
        assert_same(g(x), program(x))
    assert g.report().replayed >= 3, g.explain()


def test_a_partial_that_writes():
    """C calls a function that changes what lies in the partial: a replay would not."""
    plain, graphed = [], []
    x = torch.ones(2)

    def program(seen, x):
        return sum(x for _ in map(functools.partial(operator.iadd, seen), ([1], [2])))

    g = rote.graph(functools.partial(program, graphed))
    for _ in range(6):
        assert_same(g(x), program(plain, x))
    assert plain == graphed


class KindOfKinds(type):
    def __instancecheck__(cls, value):
        return super().__instancecheck__(value) or getattr(value, "likes", None) is cls


class Kind(metaclass=KindOfKinds):
    pass


class OwnParameter(torch.nn.Parameter):
    """As libraries derive theirs, from a class whose metaclass has a method in C behind one in Python."""


@pytest.mark.parametrize("kind", [Kind, OwnParameter, torch.nn.parameter.UninitializedParameter])
def test_a_method_of_a_metaclass_in_c(device, kind):
    holder = Holder(2.0)
    value = [holder, torch.nn.Parameter(torch.ones(2, device=device))][kind is not Kind]

    def program(x):
        return x * (2.0 if isinstance(value, kind) else 3.0)

    g = rote.graph(program)
    x = torch.ones(2, device=device)
    for count in range(8):
        if count == 5 and kind is Kind:
            holder.likes = Kind
        assert_same(g(x), program(x))
    assert g.report().replayed >= 3, g.explain()
