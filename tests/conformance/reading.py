"""Ways to read an attribute ``hidden`` without naming it, and ways to write one; each takes the object.

What they use is made at the top of the file, which does not run in a call. None of the functions may have the
name in its code; where it stands in quotes, that is the case to be seen.
"""

from __future__ import annotations

import builtins
import collections
import copy
import ctypes
import dataclasses
import functools
import gc
import importlib
import inspect
import io
import itertools
import json
import operator
import pickle
import pprint
import string
import sys
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import torch

PARTS = ["hid", "den"]
NAME = "hidden"
FORMAT = "{0.hidden}"
GETTER = operator.attrgetter("hidden")
GETTERS = [GETTER]
TABLE = {"a": (GETTER,)}
CALLER = operator.methodcaller("__getattribute__", "hidden")
ALIAS = getattr
NAMESPACE = vars
CACHED = functools.lru_cache(operator.attrgetter("hidden"))
PARTIAL = functools.partial(getattr)
LAZY = functools.partial(map, operator.attrgetter("hidden"))
DUMPS = pickle.dumps
SPACE = types.SimpleNamespace(get=GETTER)
NAMES = ("hidden",)
LOOK = object.__getattribute__
POOL = ThreadPoolExecutor(1)
EQUAL = types.SimpleNamespace(hidden=1.0)


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "".join(PARTS)

    def __get__(self, owner, kind=None):
        return owner.__dict__[self.name] if owner is not None else self


@dataclasses.dataclass
class Config:
    hidden: float = 1.0

    def __post_init__(self):
        self.other = 0


CONFIG = Config()


class Slotted:
    __slots__ = ("hidden",)

    def __init__(self):
        self.hidden = 1.0


SLOT = Slotted.__dict__["hidden"]


class Delegate:
    def __init__(self, to):
        object.__setattr__(self, "to", to)

    def __getattr__(self, name):
        return getattr(self.to, name[::-1])


class Mapped:
    def __init__(self, of):
        self.of = of

    def __getitem__(self, key):
        return getattr(self.of, key)


class Tools:
    """What reads by itself: who reaches it reads everything."""

    shown = property(operator.attrgetter("policy.hidden"))
    once = functools.partialmethod(operator.attrgetter("policy.hidden"))
    caller = staticmethod(operator.attrgetter("hidden"))

    def __init__(self, policy):
        self.policy = policy
        self.getter = operator.attrgetter("hidden")
        self.bound = policy.__getattribute__


class Policy:
    """What is read from; only ``hidden`` is changed and read."""

    __match_args__ = ("hidden",)
    descriptor = Descriptor()

    def __init__(self):
        self.hidden = 1.0
        self.count = 0
        self.config = Config()
        self.slotted = Slotted()
        self.space = types.SimpleNamespace(hidden=1.0)
        self.tools = Tools(self)
        self.proxy = weakref.proxy(self)
        self.delegate = Delegate(self)
        self.mapped = Mapped(self)
        self.inner = Inner()
        self.waiting = generated(self)
        next(self.waiting)
        self.lazily = None

    def by_super(self, name):
        return super().__getattribute__(name)

    def chosen(self, name, flag=False):
        return getattr(self, "count" if flag else name)

    def reassigned(self, name):
        name = "".join(PARTS)
        return getattr(self, name)

    @property
    def computed(self):
        return getattr(self, "".join(PARTS))


class Inner:
    """An object of which nothing but ``hidden`` is read."""

    def __init__(self):
        self.hidden = 1.0
        self.count = 0


def generated(policy):
    while True:
        yield vars(policy)["".join(PARTS)]


def name():
    return "".join(PARTS)


def defaulted(policy, get=getattr):
    return get(policy, name())


def keyworded(**values):
    return values[name()]


def replaced(policy):
    policy = policy.inner
    return getattr(policy, name())


def in_loop(policy):
    found = [getattr(each, key) for each in (policy, policy.inner) for key in NAMES]
    return found[0] + found[1] - policy.inner.__dict__[NAME]


def in_match(policy):
    match policy:
        case Policy(value):
            return value


def in_twice(policy):
    get = getattr if policy.count >= 0 else max
    return get(policy, name())


def in_imported(policy):
    return importlib.import_module("".join(["opera", "tor"])).attrgetter("".join(PARTS))(policy)


def in_walrus(policy):
    return (key := name()) and getattr(policy, key)


def in_closure(policy):
    def read():
        return getattr(policy, name())

    return read()


def in_changed_closure(policy):
    target = policy.inner

    def read():
        return getattr(target, name())

    target = policy
    return read()


def in_generator(policy):
    return next(getattr(each, key) for key in NAMES for each in [policy])


def in_dict(policy):
    return {key: policy.__dict__[key] for key in NAMES}[name()]


def in_exception(policy):
    try:
        raise KeyError(policy)
    except KeyError as error:
        return getattr(error.args[0], name())


def in_conditional(policy):
    return getattr(policy if policy.count >= 0 else policy.inner, name())


def in_star(policy):
    return getattr(*(policy, name()))


class Odd:
    get = object.__getattribute__
    __call__ = staticmethod(operator.attrgetter("hidden"))
    __len__ = property(operator.attrgetter("hidden"))


ODD = Odd()
CHANGING = "count"


def in_changed_global(policy):
    global CHANGING
    CHANGING = NAME
    found = getattr(policy, CHANGING)
    CHANGING = "count"
    return found


def in_module(policy, module=builtins):
    return taken(module, "get", "attr")(policy, name())


def in_class(policy, kind=object):
    return taken(kind, "__getattri", "bute__")(policy, name())


def in_class_of_slots(policy):
    return taken(Slotted, "hid", "den").__get__(policy.slotted)


def taken(of, first, second):
    return getattr(of, first + second)


def change(to):
    global CHANGING
    CHANGING = to


def in_global_changed_by_another(policy):
    change(NAME)
    found = getattr(policy, CHANGING)
    change("count")
    return found


def in_imported_function(policy):
    from operator import attrgetter as get

    return get(name())(policy)


def in_imported_module(policy):
    import operator as tools

    return tools.attrgetter(name())(policy)


def in_swapped(policy):
    """The object in an attribute is another one when it is read than when the function was entered."""
    inner, other = policy.inner, policy.config
    policy.__dict__["".join(["in", "ner"])] = other
    try:
        return in_attribute(policy)
    finally:
        policy.__dict__["".join(["in", "ner"])] = inner


def in_attribute(policy, swap=None):
    return getattr(policy.inner, name())


def in_swapped_below(policy):
    inner = policy.inner
    swap(policy, policy.config)
    found = getattr(policy.inner, name())
    swap(policy, inner)
    return found


def swap(policy, to):
    setattr(policy, "".join(["in", "ner"]), to)


def in_profiled(policy):
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        return getattr([policy][0], name())
    finally:
        sys.setprofile(before)


def in_unseen(policy):
    before = sys.getprofile()
    getattr(sys, "".join(["set", "profile"]))(None)
    try:
        return unseen(policy)
    finally:
        getattr(sys, "".join(["set", "profile"]))(before)


def unseen(policy):
    return policy.hidden


def in_thread(policy):
    return POOL.submit(lambda: vars(policy)[name()]).result()


def in_frame(policy):
    return sys._getframe().f_locals["policy"].__dict__[name()]


def in_saved(policy):
    file = io.BytesIO()
    torch.save({"c": policy.config}, file)
    file.seek(0)
    return next(iter(vars(torch.load(file, weights_only=False)["c"]).values()))


def in_referents(policy):
    found = gc.get_referents(policy.inner)
    spaces = [each for each in found if type(each) is dict]
    return spaces[0][name()] if spaces else next(each for each in found if type(each) is float)


READS: dict[str, Any] = {
    "getattr": lambda p: getattr(p, name()),
    "getattr in a global": lambda p: ALIAS(p, name()),
    "getattr as a default": defaulted,
    "getattr by stars": in_star,
    "getattr of a variable": replaced,
    "getattr in a comprehension": in_loop,
    "getattr in a generator": in_generator,
    "getattr in a closure": in_closure,
    "getattr in a closure that changes": in_changed_closure,
    "getattr chosen": in_twice,
    "getattr after an assignment": in_walrus,
    "getattr of an exception": in_exception,
    "getattr of one of two": in_conditional,
    "getattr by a chosen name": lambda p: p.chosen(name()),
    "getattr by a chosen parameter": lambda p: p.reassigned("count"),
    "getattr by a global": lambda p: getattr(p, NAME),
    "getattr in a partial": lambda p: PARTIAL(p, name()),
    "getattr in a map": lambda p: next(map(getattr, [p], [name()])),
    "getattr in a reduction": lambda p: functools.reduce(getattr, ["inner", name()], p),
    "getattr from builtins": lambda p: builtins.getattr(p, name()),
    "getattr from builtins by name": lambda p: getattr(builtins, "".join(["get", "attr"]))(p, name()),
    "getattr from their namespace": lambda p: vars(builtins)["".join(["get", "attr"])](p, name()),
    "getattr in quotes": lambda p: builtins.__dict__["getattr"](p, name()),
    "getattr of a proxy": lambda p: getattr(p.proxy, name()),
    "getattr of an attribute": lambda p: getattr(p.inner, name()),
    "hasattr": lambda p: 2.0 if hasattr(p, name()[:-1] + "n") and p.__dict__[name()] > 1 else 1.0,
    "vars": lambda p: vars(p)[name()],
    "vars of an attribute": lambda p: vars(p.inner)[name()],
    "vars in a global": lambda p: NAMESPACE(p)[name()],
    "vars in a map": lambda p: next(map(vars, [p]))[name()],
    "values": lambda p: next(iter(vars(p).values())),
    "namespace": lambda p: p.__dict__[name()],
    "namespace of an attribute": lambda p: p.inner.__dict__[name()],
    "namespace by a constant": lambda p: p.__dict__["hidden"],
    "namespace in a comprehension": in_dict,
    "namespace by stars": lambda p: keyworded(**p.__dict__),
    "namespace in a chain": lambda p: collections.ChainMap(p.__dict__)[name()],
    "namespace of a frame's object": in_frame,
    "formatted namespace": lambda p: float("%(hidden)s" % vars(p)),
    "dir": lambda p: next(getattr(p, key) for key in dir(p) if key.startswith("hid")),
    "attrgetter": lambda p: operator.attrgetter(name())(p),
    "attrgetter by a constant": lambda p: operator.attrgetter("inner.hidden")(p),
    "attrgetter in a global": lambda p: GETTER(p),
    "attrgetter in a list": lambda p: GETTERS[0](p),
    "attrgetter in a table": lambda p: TABLE["a"][0](p),
    "attrgetter in an attribute": lambda p: p.tools.getter(p),
    "attrgetter in a property": lambda p: p.tools.shown,
    "attrgetter in a partial method": lambda p: p.tools.once(),
    "attrgetter in a static method": lambda p: p.tools.caller(p),
    "attrgetter in a namespace": lambda p: SPACE.get(p),
    "attrgetter in a partial map": lambda p: next(LAZY([p])),
    "attrgetter as a key": lambda p: max([p.inner, p], key=GETTER) and p.__dict__["hidden"],
    "attrgetter of an imported module": in_imported,
    "methodcaller": lambda p: CALLER(p),
    "method that gets": lambda p: p.__getattribute__(name()),
    "method that gets, by super": lambda p: p.by_super(name()),
    "method that gets, of object": lambda p: object.__getattribute__(p, name()),
    "method that gets, of the class": lambda p: type(p).__getattribute__(p, name()),
    "method that gets, in a global": lambda p: LOOK(p, name()),
    "method that gets, bound": lambda p: p.tools.bound(name()),
    "method that gets, in a map": lambda p: next(map(p.__getattribute__, NAMES)),
    "own method that gets": lambda p: getattr(p.delegate, name()[::-1]),
    "own method that gets, named": lambda p: p.delegate.neddih,
    "format": lambda p: float(f"{p.hidden}"),
    "format in a global": lambda p: float(FORMAT.format(p)),
    "format put together": lambda p: float(("{0." + name() + "}").format(p)),
    "format of a mapping": lambda p: float("{a.hidden}".format_map({"a": p})),
    "format in a map": lambda p: float(next(map(str.format, [FORMAT], [p]))),
    "formatter": lambda p: float(string.Formatter().format(FORMAT, p)),
    "copy": lambda p: next(iter(vars(copy.copy(p.inner)).values())),
    "deep copy": lambda p: next(iter(vars(copy.deepcopy(p.inner)).values())),
    "pickle": lambda p: next(iter(vars(pickle.loads(pickle.dumps(p.inner))).values())),
    "pickle in a global": lambda p: next(iter(vars(pickle.loads(DUMPS(p.inner))).values())),
    "reduce": lambda p: p.inner.__reduce_ex__(4)[2][name()],
    "torch.save": in_saved,
    "descriptor": lambda p: p.descriptor,
    "property": lambda p: p.computed,
    "match": in_match,
    "eval": lambda p: eval("".join(["p.", *PARTS])),
    "dataclass": lambda p: dataclasses.asdict(p.config)[name()],
    "dataclass as a tuple": lambda p: dataclasses.astuple(p.config)[0],
    "dataclass replaced": lambda p: dataclasses.astuple(dataclasses.replace(p.config))[0],
    "dataclass compared": lambda p: 1.0 if p.config == CONFIG else 2.0,
    "dataclass shown": lambda p: float(repr(p.config).partition("=")[2].rstrip(")")),
    "namespace compared": lambda p: 1.0 if p.space == EQUAL else 2.0,
    "namespace shown": lambda p: float(repr(p.space).partition("=")[2].rstrip(")")),
    "printed": lambda p: float(pprint.pformat(p.config).partition("=")[2].rstrip(")")),
    "json": lambda p: json.loads(json.dumps(p.inner, default=vars))[name()],
    "json by a function": lambda p: json.loads(json.dumps(p.inner, default=lambda o: o.__dict__))[name()],
    "slot": lambda p: getattr(p.slotted, p.slotted.__slots__[0]),
    "slot by its descriptor": lambda p: SLOT.__get__(p.slotted),
    "slot in a copy": lambda p: SLOT.__get__(copy.copy(p.slotted)),
    "members": lambda p: dict(inspect.getmembers(p.inner))[name()],
    "static": lambda p: inspect.getattr_static(p.inner, name()),
    "referents": in_referents,
    "mapping": lambda p: float("%(hidden)s" % p.mapped),
    "mapping by a computed key": lambda p: p.mapped[name()],
    "generator begun before": lambda p: next(p.waiting),
    "cache": lambda p: CACHED.__wrapped__(p),
    "thread": in_thread,
    "address": lambda p: ctypes.cast(id(p), ctypes.py_object).value.__dict__[name()],
    "getattr of a module that is a parameter": in_module,
    "getattr of a class that is a parameter": in_class,
    "slot by its descriptor, computed": in_class_of_slots,
    "getattr by a global that changes": in_changed_global,
    "getattr by a global that another function changes": in_global_changed_by_another,
    "getattr of an attribute that is swapped": in_swapped,
    "getattr of an attribute that is swapped below": in_swapped_below,
    "getattr of a proxy as a parameter": lambda p: p.inner and p.chosen.__func__(p.proxy, name()),
    "vars of a proxy as a parameter": lambda p: (
        keyworded(**NAMESPACE(p)) if p.proxy is None else in_dict(p.proxy)
    ),
    "getattr where the profiler is off": in_profiled,
    "a name where the profiler is off": in_unseen,
    "attrgetter imported": in_imported_function,
    "attrgetter of a module imported as": in_imported_module,
    "attrgetter of the namespace": lambda p: operator.attrgetter("__dict__")(p)[name()],
    "methodcaller by a constant": lambda p: operator.methodcaller("__getattribute__", name())(p),
    "method that gets, of a class's namespace": lambda p: object.__dict__["__getattribute__"](p, name()),
    "method that gets, as a part of a class": lambda p: Odd.get(p, name()),
    "attrgetter as a method": lambda p: ODD(p),
    "starmap": lambda p: next(itertools.starmap(getattr, [(p, name())])),
    "object array": lambda p: float(numpy.vectorize(GETTER)(numpy.array([p], dtype=object))[0]),
}


def set_count(policy, value):
    setattr(policy, "".join(["co", "unt"]), value)


WRITES: dict[str, Any] = {
    "setattr": lambda p: set_count(p, p.count + 1),
    "attribute": lambda p: setattr(p, "count", p.count + 1),
    "namespace": lambda p: p.__dict__.update({"".join(["co", "unt"]): len(p.__dict__) + p.count}),
    "namespace by vars": lambda p: vars(p).__setitem__("".join(["co", "unt"]), p.count + 1),
    "method of object": lambda p: object.__setattr__(p, "".join(["co", "unt"]), p.count + 1),
    "own method": lambda p: p.__setattr__("".join(["co", "unt"]), p.count + 1),
    "map": lambda p: list(map(setattr, [p], ["count"], [p.count + 1])),
    "a new one": lambda p: setattr(p, f"new{len(vars(p))}", 1),
    "a new one, unseen": lambda p: p.__dict__.setdefault("x" * (len(p.__dict__) + 1), 1),
    "delete": lambda p: p.__dict__.pop("".join(["laz", "ily"]), None),
    "exec": lambda p: exec("p.count += 1"),
    "copy": lambda p: vars(p).update(vars(copy.copy(p)), count=p.count + 1),
}
