"""Objects of C types with state inside: iterators, caches, patterns, buffers, bound methods of C."""

from __future__ import annotations

import ast
import base64
import copy
import csv
import ctypes
import functools
import hashlib
import importlib
import io
import itertools
import json
import operator
import pickle
import queue
import re
import struct
import threading
import types
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy
import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import item, put, state, turns

Items = Iterator[Any]


@state("C")
def count_iterator(wrap: Wrap, device: torch.device) -> Items:
    """``itertools.count`` goes on in each call."""
    count = itertools.count(1)
    yield from turns(wrap(lambda x: x * next(count)), device, lambda: next(count), watch=lambda: repr(count))


@state("C")
def cycle_iterator(wrap: Wrap, device: torch.device) -> Items:
    """``itertools.cycle`` goes round."""
    cycle = itertools.cycle([1.5, 2.5, 3.5])
    yield from turns(wrap(lambda x: x * next(cycle)), device, lambda: next(cycle))


@state("C")
def repeat_iterator(wrap: Wrap, device: torch.device) -> Items:
    """``itertools.repeat`` with a number of times runs out."""
    repeat = itertools.repeat(1.5, 6)
    yield from turns(wrap(lambda x: x * next(repeat, 9.0)), device, watch=repeat.__length_hint__, before=9)


@state("C")
def cycle_of_one(wrap: Wrap, device: torch.device) -> Items:
    """A cycle over equal values, moved from outside to another."""
    cycle = itertools.cycle([2.0] * 7 + [5.0])
    yield from turns(wrap(lambda x: x * next(cycle)), device, lambda: [next(cycle) for _ in range(2)])


@state("C")
def list_iterator(wrap: Wrap, device: torch.device) -> Items:
    """An iterator over a list that grows."""
    ks = [1.0, 2.0, 3.0]
    it = iter(ks)
    yield from turns(wrap(lambda x: x * next(it, 9.0)), device, lambda: ks.append(4.0))


@state("C")
def generator_object(wrap: Wrap, device: torch.device) -> Items:
    """A generator that goes on in each call, and is sent a value outside."""

    def made() -> Any:
        k = 1.0
        while True:
            sent = yield k
            k = sent if sent is not None else k + 1

    it = made()
    yield from turns(wrap(lambda x: x * next(it)), device, lambda: it.send(10.0))


@state("C")
def generator_that_yields_a_constant(wrap: Wrap, device: torch.device) -> Items:
    """A generator that yields one value and reads another variable as it goes."""
    o = types.SimpleNamespace(k=1.5)

    def made() -> Any:
        while True:
            yield o.k

    it = made()
    yield from turns(wrap(lambda x: x * next(it)), device, put(o, k=2.5))


@state("C")
def map_and_filter_objects(wrap: Wrap, device: torch.device) -> Items:
    """A ``map`` and a ``zip`` held outside."""
    doubled, pairs = map(lambda k: k * 2, itertools.count(1)), zip(itertools.count(), "abcdefghijklm" * 3)
    yield from turns(wrap(lambda x: x * next(doubled) + next(pairs)[0]), device, lambda: next(doubled))


@state("C")
def chained_iterators(wrap: Wrap, device: torch.device) -> Items:
    """Half of a ``tee`` moves the other half's source."""
    one, two = itertools.tee(iter(range(1, 40)))
    g = wrap(lambda x: x * next(one))
    yield from turns(g, device, lambda: next(one), watch=lambda: next(two))


@state("C")
def enumerate_and_reversed(wrap: Wrap, device: torch.device) -> Items:
    """An ``enumerate`` and a ``reversed`` held outside."""
    one, two = enumerate(itertools.repeat(0)), reversed(range(100))
    yield from turns(wrap(lambda x: x * next(one)[0] + next(two)), device, lambda: next(two))


@state("C")
def dict_iterator(wrap: Wrap, device: torch.device) -> Items:
    """An iterator over a dict."""
    it = iter(dict.fromkeys(range(1, 40)).items())
    yield from turns(wrap(lambda x: x * next(it)[0]), device, lambda: next(it))


@state("C")
def bound_dict_get(wrap: Wrap, device: torch.device) -> Items:
    """``cfg.get`` held in a variable."""
    cfg = {"k": 1.5}
    get = cfg.get
    yield from turns(
        wrap(lambda x: x * get("k")), device, item(cfg, "k", 2.5), cfg.clear, item(cfg, "k", 3.5)
    )


@state("C")
def bound_list_methods(wrap: Wrap, device: torch.device) -> Items:
    """``ks.count`` and ``ks.__len__`` held in variables."""
    ks = [1, 2, 2]
    count, length = ks.count, ks.__len__
    yield from turns(wrap(lambda x: x * count(2) + length()), device, lambda: ks.append(2), ks.clear)


@state("C")
def bound_dict_items(wrap: Wrap, device: torch.device) -> Items:
    """``cfg.__getitem__`` and ``cfg.__contains__`` held in variables."""
    cfg = {"k": 1.5}
    has, at = cfg.__contains__, cfg.__getitem__
    g = wrap(lambda x: x * (at("k") if has("k") else 9.0))
    yield from turns(g, device, item(cfg, "k", 2.5), cfg.clear)


@state("C")
def bound_string_method(wrap: Wrap, device: torch.device) -> Items:
    """A bound method of a string in a variable that is rebound."""
    o = types.SimpleNamespace(starts="layer.0".startswith)
    g = wrap(lambda x: x * (2.5 if o.starts("layer") else 1.5))
    yield from turns(g, device, put(o, starts="head".startswith))


@state("C")
def item_getter(wrap: Wrap, device: torch.device) -> Items:
    """``operator.itemgetter`` over a dict that changes, and another getter."""
    cfg = {"a": 1.5, "b": 5.0}
    o = types.SimpleNamespace(get=operator.itemgetter("a"))
    change = put(o, get=operator.itemgetter("b"))
    yield from turns(wrap(lambda x: x * o.get(cfg)), device, item(cfg, "a", 2.5), change)


@state("C")
def attribute_getter(wrap: Wrap, device: torch.device) -> Items:
    """``operator.attrgetter`` with a path."""
    o = types.SimpleNamespace(a=types.SimpleNamespace(k=1.5))
    get = operator.attrgetter("a.k")
    yield from turns(
        wrap(lambda x: x * get(o)), device, put(o.a, k=2.5), put(o, a=types.SimpleNamespace(k=3.5))
    )


@state("C")
def method_caller(wrap: Wrap, device: torch.device) -> Items:
    """``operator.methodcaller`` of a method that reads state."""

    class Scale:
        k = 1.5

        def gain(self, factor: float) -> float:
            return self.k * factor

    o, call = Scale(), operator.methodcaller("gain", 2.0)
    yield from turns(wrap(lambda x: x * call(o)), device, put(o, k=2.5), put(Scale, gain=lambda self, f: 9.0))


@state("C")
def partial_function(wrap: Wrap, device: torch.device) -> Items:
    """A partial function whose keywords change, and are replaced."""

    def scaled(x: torch.Tensor, k: float = 0.0) -> torch.Tensor:
        return x * k

    act = functools.partial(scaled, k=1.5)
    again = lambda: act.__setstate__((scaled, (), {"k": 3.5}, {}))  # noqa: E731
    yield from turns(wrap(lambda x: act(x)), device, item(act.keywords, "k", 2.5), again)


@state("C")
def partial_is_the_callable(wrap: Wrap, device: torch.device) -> Items:
    """The callable is a partial function over an object that changes."""
    o = types.SimpleNamespace(k=1.5)
    g = wrap(functools.partial(lambda o, x: x * o.k, o))
    yield from turns(g, device, put(o, k=2.5))


@state("C")
def partial_method(wrap: Wrap, device: torch.device) -> Items:
    """``functools.partialmethod``, replaced on the class."""

    class Layer:
        def scaled(self, x: torch.Tensor, k: float) -> torch.Tensor:
            return x * k

        act = functools.partialmethod(scaled, k=1.5)

    o = Layer()
    change = lambda: setattr(Layer, "act", functools.partialmethod(Layer.scaled, k=2.5))  # noqa: E731
    yield from turns(wrap(lambda x: o.act(x)), device, change)


@state("C")
def cache_of_numbers(wrap: Wrap, device: torch.device) -> Items:
    """``lru_cache`` over state: cleared after the state has changed."""
    o = types.SimpleNamespace(k=1.5)

    @functools.lru_cache
    def gain() -> float:
        return o.k

    g = wrap(lambda x: x * gain())
    yield from turns(g, device, put(o, k=2.5), gain.cache_clear, watch=lambda: gain.cache_info().currsize)


@state("C")
def cache_of_tensors(wrap: Wrap, device: torch.device) -> Items:
    """``functools.cache`` that holds tensors: cleared, so that another is made."""
    o = types.SimpleNamespace(k=1.5)

    @functools.cache
    def table(size: int) -> torch.Tensor:
        return torch.full((size,), o.k, device=device)

    g = wrap(lambda x: x * table(x.shape[0]))
    yield from turns(g, device, put(o, k=2.5), table.cache_clear)


@state("C")
def small_cache(wrap: Wrap, device: torch.device) -> Items:
    """A cache of one place, used from outside for another key."""
    made: list[int] = []

    @functools.lru_cache(maxsize=1)
    def gain(n: int) -> int:
        made.append(n)
        return n

    g = wrap(lambda x: x * gain(2) + len(made))
    yield from turns(g, device, lambda: gain(3), watch=lambda: list(made))


@state("C")
def hits_of_a_cache(wrap: Wrap, device: torch.device) -> Items:
    """``cache_info`` is read: the hits are part of the result."""
    gain = functools.lru_cache(lambda n: n)
    yield from turns(wrap(lambda x: x * gain(2) + gain.cache_info().hits), device, gain.cache_clear)


@state("C")
def pattern(wrap: Wrap, device: torch.device) -> Items:
    """A compiled pattern is replaced; the text it looks at changes."""
    o = types.SimpleNamespace(pattern=re.compile(r"layer\.(\d)"), text="layer.2")
    g = wrap(lambda x: x * int(o.pattern.findall(o.text)[0]))
    yield from turns(g, device, put(o, text="layer.5"), put(o, pattern=re.compile(r"l(?:ayer)\.(5)")))


@state("C")
def pattern_with_a_callback(wrap: Wrap, device: torch.device) -> Items:
    """``re.sub`` calls Python that reads state."""
    o = types.SimpleNamespace(pad="-")
    g = wrap(lambda x: x * len(re.sub(r"\d", lambda match: o.pad, "a1b2")))
    yield from turns(g, device, put(o, pad="----"))


@state("C")
def scanner(wrap: Wrap, device: torch.device) -> Items:
    """``re.finditer`` held outside goes on in each call."""
    found = re.finditer(r"\d", "123456789" * 3)
    yield from turns(wrap(lambda x: x * int(next(found).group())), device, lambda: next(found))


@state("C")
def json_text(wrap: Wrap, device: torch.device) -> Items:
    """JSON of a dict that changes, and a text that is parsed."""
    cfg = {"k": 1}
    o = types.SimpleNamespace(text='{"k": 1.5}')
    g = wrap(lambda x: x * json.loads(o.text)["k"] + len(json.dumps(cfg)))
    yield from turns(g, device, put(o, text='{"k": 2.5}'), item(cfg, "more", 2))


@state("C")
def json_of_an_own_class(wrap: Wrap, device: torch.device) -> Items:
    """``json.dumps`` with a ``default`` that reads state."""
    o = types.SimpleNamespace(k=[1])
    g = wrap(lambda x: x * len(json.dumps({"o": o}, default=vars)))
    yield from turns(g, device, lambda: o.k.append(2))


@state("C")
def array_buffer(wrap: Wrap, device: torch.device) -> Items:
    """An ``array`` of numbers, in the middle of many."""
    ks = array("d", [1.0] * 200)
    yield from turns(
        wrap(lambda x: x * ks[100] + sum(ks)), device, item(ks, 100, 2.5), lambda: ks.append(1.0)
    )


@state("C")
def byte_array(wrap: Wrap, device: torch.device) -> Items:
    """A byte array."""
    data = bytearray(b"abc")
    yield from turns(
        wrap(lambda x: x * data[1] + len(data)), device, item(data, 1, 7), lambda: data.extend(b"d")
    )


@state("C")
def memory_view(wrap: Wrap, device: torch.device) -> Items:
    """A memory view of bytes that change behind it."""
    data = bytearray(b"abc")
    view = memoryview(data)
    yield from turns(wrap(lambda x: x * view[1]), device, item(data, 1, 7))


@state("C")
def struct_of_a_buffer(wrap: Wrap, device: torch.device) -> Items:
    """``struct.unpack_from`` of a buffer."""
    data = bytearray(struct.pack("<2f", 1.5, 2.5))
    g = wrap(lambda x: x * struct.unpack_from("<f", data, 4)[0])
    yield from turns(g, device, lambda: struct.pack_into("<f", data, 4, 3.5))


@state("C")
def ctypes_number(wrap: Wrap, device: torch.device) -> Items:
    """A number in memory of C."""
    k = ctypes.c_double(1.5)
    yield from turns(wrap(lambda x: x * k.value), device, put(k, value=2.5))


@state("C")
def hash_object(wrap: Wrap, device: torch.device) -> Items:
    """A hash that is fed from outside."""
    h = hashlib.sha256(b"a")
    yield from turns(wrap(lambda x: x * h.digest()[0]), device, lambda: h.update(b"b"))


@state("C")
def checksums(wrap: Wrap, device: torch.device) -> Items:
    """Checksums and encodings of bytes that change."""
    data = bytearray(b"abc")
    g = wrap(lambda x: x * (zlib.crc32(data) % 97) + len(base64.b64encode(data)))
    yield from turns(g, device, lambda: data.extend(b"defgh"))


@state("C")
def text_buffer(wrap: Wrap, device: torch.device) -> Items:
    """A text buffer, its value and its position."""
    text = io.StringIO("1.5")
    g = wrap(lambda x: x * float(text.getvalue()) + text.tell())
    yield from turns(g, device, lambda: text.write("2.5"), lambda: text.seek(0))


@state("C")
def csv_reader(wrap: Wrap, device: torch.device) -> Items:
    """A reader of rows goes on in each call."""
    rows = csv.reader([str(n) for n in range(1, 40)])
    yield from turns(wrap(lambda x: x * int(next(rows)[0])), device, lambda: next(rows))


@state("C")
def queue_taken_from(wrap: Wrap, device: torch.device) -> Items:
    """A queue that the call takes from."""
    q: Any = queue.SimpleQueue()
    for n in range(1, 40):
        q.put(n)
    yield from turns(wrap(lambda x: x * q.get()), device, q.get, watch=q.qsize)


@state("C")
def deque_popped(wrap: Wrap, device: torch.device) -> Items:
    """``q.popleft()`` in each call, of equal values."""
    q = deque([2.0] * 7 + [5.0] * 30)
    yield from turns(wrap(lambda x: x * q.popleft()), device, q.pop, watch=lambda: len(q))


@state("C")
def numpy_array(wrap: Wrap, device: torch.device) -> Items:
    """An item of a numpy array, and a sum of a big one."""
    small, big = numpy.array([1.5, 2.5]), numpy.ones(100_000)
    g = wrap(lambda x: x * float(small[1]) + float(big.sum()))
    yield from turns(g, device, item(small, 1, 3.5), item(big, 54_321, 1000.0))


@state("C")
def numpy_scalar(wrap: Wrap, device: torch.device) -> Items:
    """A numpy scalar in an attribute."""
    o = types.SimpleNamespace(k=numpy.float32(1.5))
    yield from turns(wrap(lambda x: x * float(o.k)), device, put(o, k=numpy.float32(2.5)))


@state("C")
def mock_object(wrap: Wrap, device: torch.device) -> Items:
    """A mock's return value, and its counter."""
    m = mock.Mock(return_value=1.5)
    g = wrap(lambda x: x * m())
    yield from turns(g, device, put(m, return_value=2.5), watch=lambda: m.call_count)


@state("C")
def mock_patch(wrap: Wrap, device: torch.device) -> Items:
    """``mock.patch.object`` around some of the calls."""
    o = types.SimpleNamespace(act=lambda x: x * 1.5)
    g = wrap(lambda x: o.act(x))
    yield from turns(g, device)
    with mock.patch.object(o, "act", lambda x: x * 2.5):
        yield from turns(g, device, before=3)
    yield from turns(g, device, before=2)


@state("C")
def pickle_of_an_own_class(wrap: Wrap, device: torch.device) -> Items:
    """``pickle.dumps`` of state."""
    cfg = {"k": [1]}
    g = wrap(lambda x: x * len(pickle.loads(pickle.dumps(cfg))["k"]))
    yield from turns(g, device, lambda: cfg["k"].append(2))


class Reduced:
    """An object whose copy is made by ``__reduce__``."""

    k = 1.5

    def __reduce__(self) -> Any:
        return (Reduced, ()) if Reduced.k < 2 else (float, (2.5,))


@state("reads")
def copy_by_reduce(wrap: Wrap, device: torch.device) -> Items:
    """``copy.copy`` through ``__reduce__`` that reads state."""
    Reduced.k = 1.5
    o = Reduced()
    g = wrap(lambda x: x * (1.5 if isinstance(copy.copy(o), Reduced) else 2.5))
    yield from turns(g, device, put(Reduced, k=2.5), put(Reduced, k=1.5))


@state("reads")
def deep_copy(wrap: Wrap, device: torch.device) -> Items:
    """``copy.deepcopy`` of state, read in the copy."""
    cfg = {"a": [1.5]}

    class Own:
        def __deepcopy__(self, memo: Any) -> float:
            return cfg["a"][0]

    o = Own()
    g = wrap(lambda x: x * copy.deepcopy(cfg)["a"][0] + copy.deepcopy(o))
    yield from turns(g, device, item(cfg["a"], 0, 2.5))


@state("C")
def parsed_expression(wrap: Wrap, device: torch.device) -> Items:
    """A text is parsed, and compiled code is run."""
    o = types.SimpleNamespace(text="1.5", code=compile("1 + 1", "<state>", "eval"))
    g = wrap(lambda x: x * ast.literal_eval(o.text) + eval(o.code))
    yield from turns(g, device, put(o, text="2.5"), put(o, code=compile("7", "<state>", "eval")))


@state("C")
def interned_text(wrap: Wrap, device: torch.device) -> Items:
    """``id`` of a text: equal texts that are two objects."""
    a, b = "".join(["sta", "te"]), "".join(["sta", "te"])
    o = types.SimpleNamespace(text=a)
    g = wrap(lambda x: x * (1.5 if id(o.text) == id(a) else 2.5))
    yield from turns(g, device, put(o, text=b), put(o, text=a))


@state("C")
def hash_of_an_object(wrap: Wrap, device: torch.device) -> Items:
    """``hash`` of own objects, of tuples of them."""

    class Tag:
        k = 3

        def __hash__(self) -> int:
            return self.k

    o = Tag()
    g = wrap(lambda x: x * hash(o) + (hash((o, 1)) % 7))
    yield from turns(g, device, put(o, k=4), put(Tag, __hash__=lambda self: 9))


@state("C")
def reduced_with_state(wrap: Wrap, device: torch.device) -> Items:
    """``functools.reduce`` with a function that reads state."""
    o, ks = types.SimpleNamespace(k=1.0), [1.0, 2.0]
    g = wrap(lambda x: x * functools.reduce(lambda a, b: a + b * o.k, ks, 0.0))
    yield from turns(g, device, put(o, k=2.0), lambda: ks.append(3.0))


@state("C")
def key_function_of_c(wrap: Wrap, device: torch.device) -> Items:
    """``functools.cmp_to_key`` over state."""
    o = types.SimpleNamespace(sign=1)
    key: Callable[[Any], Any] = functools.cmp_to_key(lambda a, b: o.sign * (a - b))
    yield from turns(wrap(lambda x: x * sorted([1, 2, 3], key=key)[0]), device, put(o, sign=-1))


@state("limits")
def silent_iterator_by_computed_name(wrap: Wrap, device: torch.device) -> Items:
    """``iter(f, end)`` under a name made at run time."""
    ks = itertools.count(1)
    held = types.SimpleNamespace(drawn=iter(lambda: next(ks), -1))
    yield from turns(wrap(lambda x: x * next(getattr(held, "DRAWN".lower()))), device)


@state("C")
def states_inside_of_c(wrap: Wrap, device: torch.device) -> Items:
    """Objects of C that go on when their methods are called, here and outside."""
    scanner, packed = re.compile(r"\d").scanner("1111123456789" * 9), zlib.compress(bytes(range(200)))
    unpacks, packs, sums = zlib.decompressobj(), zlib.compressobj(), importlib.import_module("_md5").md5()
    uses = (
        (lambda: int(scanner.search().group()), scanner.search),
        (lambda: len(unpacks.decompress(unpacks.unconsumed_tail or packed, 2)), unpacks.copy),
        (lambda: len(packs.flush(zlib.Z_SYNC_FLUSH)), lambda: packs.compress(b"more")),
        (lambda: sums.digest()[0], lambda: sums.update(b"z")),
    )
    for use, change in uses:
        yield from turns(wrap(lambda x, use=use: x * use()), device, change, change)


@state("C")
def csv_dialect(wrap: Wrap, device: torch.device) -> Items:
    """A class and an object tell a reader of rows how to separate."""

    class Dialect(csv.excel):
        delimiter = ";"

    mine = types.SimpleNamespace(
        **{name: getattr(csv.excel, name) for name in vars(csv.excel) if name[0] != "_"}
    )
    g = wrap(
        lambda x: (
            x * len(next(csv.reader(["1;2,3,4"], Dialect))) + len(next(csv.reader(["1;2"], dialect=mine)))
        )
    )
    yield from turns(g, device, put(Dialect, delimiter=","), put(mine, delimiter=";"))


@state("C")
def numpy_array_lies_otherwise(wrap: Wrap, device: torch.device) -> Items:
    """An array that becomes a tensor gets another shape, other strides, another type, other memory."""
    a = numpy.arange(4, dtype=numpy.float32)
    b = numpy.arange(4, dtype=numpy.float32)

    def fn(x: torch.Tensor) -> Any:
        one, other = torch.from_numpy(a), torch.from_numpy(b)
        return (x * len(one)).sum() + one.to(x.device, x.dtype), x.sum() * other.to(x.device).flatten()

    def grow() -> None:
        b.resize(400_000, refcheck=False)

    changes = (put(a, shape=(2, 2)), put(a, dtype=numpy.int32), put(a, shape=(4,)), grow)
    yield from turns(wrap(fn), device, *changes)


@state("C")
def lock_left_and_released(wrap: Wrap, device: torch.device) -> Items:
    """A call leaves a lock that it has acquired; another releases one that it has not."""
    left, found = threading.Lock(), threading.Lock()

    def acquire(x: torch.Tensor) -> torch.Tensor:
        left.acquire()
        return x * 2

    def release(x: torch.Tensor) -> torch.Tensor:
        found.release()
        return x * 2

    one, other = wrap(acquire), wrap(release)
    for n in range(6):
        found.acquire()
        yield one(full(n, device)), left.locked(), other(full(n, device)), found.locked()
        left.release()


@state("C")
def format_of_parts(wrap: Wrap, device: torch.device) -> Items:
    """A field of a format writes what lies in an attribute and in an item, as text."""
    box = types.SimpleNamespace(k=[1], d={"a": [2]})
    g = wrap(lambda x: x * len("{0.k} {0.d[a]} {0.k[0]}".format(box)))  # noqa: UP032
    yield from turns(g, device, put(box, k=[1, 2]), lambda: box.d["a"].append(7), item(box.k, 0, 1000))
