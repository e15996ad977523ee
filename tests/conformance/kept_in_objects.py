"""Programs that keep numbers in objects, classes, functions and containers."""
# ruff: noqa: B006, B024, B904, E741, E742, N804, N805, RUF012, RUF015

from __future__ import annotations

import abc
import array
import bisect
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import json
import math
import operator
import pickle
import random
import statistics
import struct
import threading
import types
import weakref
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import torch
from tests.conformance.kept_programs import Programs, nothing
from torch import nn

PROGRAMS = Programs()


@PROGRAMS.keep
def prop():
    class M:
        def __init__(s):
            s._n = 0

        @property
        def n(s):
            return s._n + 0.5

        @n.setter
        def n(s, v):
            s._n = v

    m = M()

    def step(x):
        m.n = m.n + 1
        return x * m.n

    def dis(c):
        if c == 15:
            m._n = 100
        if c == 20:
            M.n = property(lambda s: s._n * 2, lambda s, v: setattr(s, "_n", v))

    return step, dis, lambda: vars(m)


@PROGRAMS.keep
def descr():
    class D:
        def __get__(s, o, t=None):
            return o.__dict__.get("v", 0) * 2

        def __set__(s, o, v):
            o.__dict__["v"] = v

    class M:
        n = D()

    m = M()

    def step(x):
        m.n = m.n * 0.25 + 1
        return x * m.n

    def dis(c):
        if c == 15:
            m.__dict__["v"] = 7
        if c == 22:
            M.n = 3

    return step, dis, lambda: vars(m)


@PROGRAMS.keep
def getattr_():
    class M:
        def __init__(s):
            s.__dict__["t"] = {"n": 0}

        def __getattr__(s, k):
            try:
                return s.t[k]
            except KeyError:
                raise AttributeError(k)

        def __setattr__(s, k, v):
            s.t[k] = v

    m = M()

    def step(x):
        m.n = m.n + 1
        return x * m.n * getattr(m, "k", 2)

    def dis(c):
        if c == 15:
            m.k = 5
        if c == 20:
            m.__dict__["n"] = 9
        if c == 25:
            del m.__dict__["n"]
            m.t["n"] = -3

    return step, dis, lambda: dict(m.t)


@PROGRAMS.keep
def getattribute():
    class M:
        def __init__(s):
            s.n = 0
            s.calls = 0

        def __getattribute__(s, k):
            if k == "n":
                object.__setattr__(s, "calls", object.__getattribute__(s, "calls") + 1)
            return object.__getattribute__(s, k)

    m = M()

    def step(x):
        m.n += 1
        return x * m.n

    return step, nothing, lambda: (m.calls, m.n)


@PROGRAMS.keep
def slots():
    class B:
        __slots__ = ("__weakref__", "n")

    class M(B):
        __slots__ = ("k",)

    m = M()
    m.n = 0
    m.k = 1.5

    def step(x):
        m.n += 1
        m.k *= 0.9
        return x * m.n * m.k

    def dis(c):
        if c == 15:
            m.n = 1.0
        if c == 20:
            m.k = 2

    return step, dis, lambda: (m.n, m.k)


@PROGRAMS.keep
def nonlocal_():
    n = 0
    hist = []

    def step(x):
        nonlocal n
        n += 1
        hist.append(n)
        return x * n

    def dis(c):
        nonlocal n
        if c == 15:
            n = 0.5
        if c == 20:
            hist.clear()

    return step, dis, lambda: (n, list(hist))


@PROGRAMS.keep
def default_arg():
    def inner(x, c=[0], k={"n": 1}):
        c[0] += 1
        k["n"] *= 1.5
        return x * c[0] * k["n"]

    def step(x):
        return inner(x)

    def dis(c):
        if c == 15:
            inner.__defaults__[0][0] = 50
        if c == 20:
            inner.__defaults__ = ([7], {"n": 2})

    return step, dis, lambda: inner.__defaults__


@PROGRAMS.keep
def kw_default():
    def inner(x, *, c=[0]):
        c[0] += 1
        return x * c[0]

    def step(x):
        return inner(x)

    def dis(c):
        if c == 15:
            inner.__kwdefaults__["c"] = [9.5]

    return step, dis, lambda: inner.__kwdefaults__


@PROGRAMS.keep
def class_cache():
    class M:
        cache = {}

        def get(s, k):
            if k not in s.cache:
                s.cache[k] = len(s.cache) + 1
            return s.cache[k]

    m = M()
    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n + 1) % 5
        return x * m.get(st.n)

    def dis(c):
        if c == 15:
            M.cache = {}
        if c == 22:
            M.cache[2] = 77
        if c == 28:
            m.cache = {0: 5}

    return step, dis, lambda: (dict(M.cache), st.n)


@PROGRAMS.keep
def lru():
    calls = []

    @functools.lru_cache(maxsize=3)
    def f(k):
        calls.append(k)
        return k * 1.5

    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n + 1) % 5
        return x * f(st.n)

    return step, nothing, lambda: (list(calls), st.n, f.cache_info())


@PROGRAMS.keep
def cached_prop():
    class M:
        k = 2

        @functools.cached_property
        def v(s):
            return s.k * 3

    m = M()
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * m.v * st.n

    def dis(c):
        if c == 12:
            m.__dict__.pop("v")
            M.k = 5
        if c == 20:
            m.v = 9

    return step, dis, lambda: vars(m)


@PROGRAMS.keep
def ctxvar():
    v = contextvars.ContextVar("v", default=0)

    def step(x):
        v.set(v.get() + 1)
        return x * v.get()

    def dis(c):
        if c == 15:
            v.set(2.5)

    return step, dis, lambda: v.get()


@PROGRAMS.keep
def count():
    it = itertools.count(1)

    def step(x):
        return x * next(it)

    def dis(c):
        if c == 15:
            next(it)

    return step, dis, lambda: repr(it)


@PROGRAMS.keep
def cycle():
    it = itertools.cycle([1.0, 2.0, 3.0])

    def step(x):
        return x * next(it)

    return step, nothing, lambda: None


@PROGRAMS.keep
def gen():
    def g():
        n = 0
        while True:
            n += 1
            yield n

    it = g()

    def step(x):
        return x * next(it)

    return step, nothing, lambda: None


@PROGRAMS.keep
def enum_state():
    l = [1, 2, 3]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        for i, v in enumerate(l):
            l[i] = v + i
        return x * sum(l) * st.n

    def dis(c):
        if c == 15:
            l.append(4)
        if c == 20:
            l.reverse()

    return step, dis, lambda: list(l)


@PROGRAMS.keep
def zip_state():
    a, b = [1.0, 2.0], [3, 4]

    def step(x):
        for i, (u, v) in enumerate(zip(a, b, strict=True)):
            a[i] = u * 0.9 + v
            b[i] = v + 1
        return x * a[0] + b[1]

    def dis(c):
        if c == 15:
            a[0] = -0.0
        if c == 20:
            b[:] = [1, 1]

    return step, dis, lambda: (list(a), list(b))


@PROGRAMS.keep
def exc_flow():
    d = {}

    def step(x):
        try:
            d["n"] += 1
        except KeyError:
            d["n"] = 1
        return x * d["n"]

    def dis(c):
        if c in (15, 25):
            d.clear()

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def exc_flow2():
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        try:
            if st.n % 4 == 0:
                raise ValueError(st.n)
            y = x * st.n
        except ValueError as e:
            y = x - e.args[0]
        finally:
            st.last = st.n
        return y

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def dict_update():
    st = SimpleNamespace(n=0, k=1.0)

    def step(x):
        st.__dict__.update(n=st.n + 1, k=st.k * 0.5)
        return x * st.n + st.k

    def dis(c):
        if c == 15:
            st.__dict__.update(n=3.5)
        pass

    return step, dis, lambda: vars(st)


@PROGRAMS.keep
def setattr_loop():
    st = SimpleNamespace(a=1.0, b=2.0, c=3)

    def step(x):
        for k in ("a", "b", "c"):
            setattr(st, k, getattr(st, k) * 0.5 + 1)
        return x * st.a + st.b - st.c

    def dis(c):
        if c == 15:
            st.c = 1

    return step, dis, lambda: vars(st)


@PROGRAMS.keep
def vars_loop():
    st = SimpleNamespace(a=1.0, b=2.0, c=3)

    def step(x):
        for k, v in vars(st).items():
            vars(st)[k] = v + 1
        return x * sum(vars(st).values())

    def dis(c):
        if c == 15:
            st.d = 1
        if c == 20:
            del st.a
        if c == 24:
            st.a = 4

    return step, dis, lambda: vars(st)


@PROGRAMS.keep
def order():
    d = {"a": 1.0, "b": 2.0}

    def step(x):
        k = next(iter(d))
        d[k] = d.pop(k) + 1
        return x * d[k] - list(d.values())[0]

    def dis(c):
        if c == 15:
            d["a"] = d.pop("a")

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def membership():
    seen = set()
    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n * 7 + 3) % 11
        y = x * 2 if st.n in seen else x + st.n
        seen.add(st.n)
        return y

    def dis(c):
        if c == 20:
            seen.clear()

    return step, dis, lambda: (sorted(seen), st.n)


@PROGRAMS.keep
def fkeys():
    d = {}
    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n + 1) % 4
        k = f"layer{st.n}"
        d[k] = d.get(k, 0) + 1
        return x * d[k]

    def dis(c):
        if c == 20:
            d.pop("layer1", None)

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def sorted_key():
    l = [SimpleNamespace(v=3), SimpleNamespace(v=1), SimpleNamespace(v=2)]

    def step(x):
        b = sorted(l, key=lambda o: o.v)[0]
        b.v += 2
        return x * b.v

    return step, nothing, lambda: [o.v for o in l]


@PROGRAMS.keep
def bisect_():
    l = [0.0, 10.0, 20.0]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        i = bisect.bisect_right(l, st.n)
        return x * i + st.n

    def dis(c):
        if c == 12:
            l[1] = 3.0

    return step, dis, lambda: (list(l), st.n)


@PROGRAMS.keep
def heap():
    h = [3, 5, 7]

    def step(x):
        v = heapq.heappop(h)
        heapq.heappush(h, v + 4)
        return x * v

    return step, nothing, lambda: list(h)


@PROGRAMS.keep
def replace():
    @dataclasses.dataclass(frozen=True)
    class C:
        n: int = 0
        k: float = 1.0

    st = SimpleNamespace(c=C())

    def step(x):
        st.c = dataclasses.replace(st.c, n=st.c.n + 1)
        return x * st.c.n * st.c.k

    def dis(c):
        if c == 15:
            st.c = C(5, 0.5)

    return step, dis, lambda: dataclasses.astuple(st.c)


@PROGRAMS.keep
def monkey():
    class M:
        def f(s):
            return s.n * 2

    m = M()
    m.n = 0

    def step(x):
        m.n += 1
        return x * m.f()

    def dis(c):
        if c == 12:
            M.f = lambda s: s.n * 3
        if c == 20:
            m.f = lambda: 5
        if c == 25:
            del m.f

    return step, dis, lambda: m.n


@PROGRAMS.keep
def sub_override():
    class B:
        scale = 2.0

        def f(s):
            return s.scale * s.n

    class C(B):
        pass

    m = C()
    m.n = 0

    def step(x):
        m.n += 1
        return x * m.f()

    def dis(c):
        if c == 12:
            C.scale = 3.0
        if c == 18:
            B.scale = 9.0
            del C.scale
        if c == 22:
            C.f = lambda s: -s.n
        if c == 28:
            m.__class__ = B
        if c == 32:
            m.scale = 1

    return step, dis, lambda: m.n


@PROGRAMS.keep
def abc_():
    class A(abc.ABC):
        pass

    class X:
        n = 0

    m = X()

    def step(x):
        m.n += 1
        return x * m.n if isinstance(m, A) else x + m.n

    def dis(c):
        if c == 15:
            A.register(X)

    return step, dis, lambda: m.n


@PROGRAMS.keep
def attrgetter():
    st = SimpleNamespace(a=SimpleNamespace(b=0))
    g = operator.attrgetter("a.b")
    it = operator.itemgetter("n")
    d = {"n": 1.0}

    def step(x):
        st.a.b += 1
        d["n"] *= 0.9
        return x * g(st) * it(d)

    def dis(c):
        if c == 15:
            st.a = SimpleNamespace(b=7)
        if c == 20:
            d["n"] = 5

    return step, dis, lambda: (st.a.b, dict(d))


@PROGRAMS.keep
def methodcaller():
    d = {"n": 1}
    mc = operator.methodcaller("get", "n", 3)

    def step(x):
        d["n"] = mc(d) + 1
        return x * mc(d)

    def dis(c):
        if c == 15:
            del d["n"]

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def partial_():
    st = SimpleNamespace(n=0)

    def add(k, v):
        st.n += k
        return v * st.n

    f = functools.partial(add, 2)

    def step(x):
        return f(x)

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def weak():
    class O:
        pass

    o = O()
    o.n = 0
    r = weakref.ref(o)
    w = weakref.WeakValueDictionary(k=o)

    def step(x):
        r().n += 1
        return x * w["k"].n

    def dis(c):
        if c == 15:
            o.n = 0.25

    return step, dis, lambda: o.n


@PROGRAMS.keep
def userdict():
    d = collections.UserDict(n=0)

    def step(x):
        d["n"] += 1
        return x * d["n"]

    def dis(c):
        if c == 15:
            d.data = {"n": 4}

    return step, dis, lambda: dict(d.data)


@PROGRAMS.keep
def mydict():
    class D(dict):
        def __missing__(s, k):
            return 10

        def __setitem__(s, k, v):
            dict.__setitem__(s, k, v * 2)

    d = D()

    def step(x):
        d["n"] = d["n"] * 0.25 + 1
        return x * d["n"]

    def dis(c):
        if c == 15:
            d.clear()
        if c == 20:
            D.__missing__ = lambda s, k: -1
            d.clear()

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def mydict_get():
    class D(dict):
        def __getitem__(s, k):
            return dict.__getitem__(s, k) + 100

    d = D(n=0)

    def step(x):
        d["n"] = d.get("n") + 1
        return x * d["n"] + d.get("n")

    def dis(c):
        if c == 15:
            del D.__getitem__

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def mydict_contains():
    class D(dict):
        def __contains__(s, k):
            return False

    d = D(n=0)

    def step(x):
        if "n" not in d:
            d["n"] = d["n"] + 1
        return x * d["n"]

    def dis(c):
        if c == 15:
            del D.__contains__

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def mylist():
    class L(list):
        def __getitem__(s, i):
            return list.__getitem__(s, i) * 2 if isinstance(i, int) else list.__getitem__(s, i)

    l = L([1, 2])

    def step(x):
        l[0] = l[0] * 0.25 + 1
        return x * l[0] + sum(l)

    def dis(c):
        if c == 15:
            l.append(4)
        if c == 20:
            del L.__getitem__

    return step, dis, lambda: list(l)


@PROGRAMS.keep
def mydeque():
    class D(collections.deque):
        def append(s, v):
            super().append(v + 1)

    d = D([1.0, 2.0], maxlen=3)

    def step(x):
        d.append(d[-1] * 0.5)
        return x * sum(d) / len(d)

    def dis(c):
        if c == 15:
            del D.append
        if c == 20:
            d.clear()
            d.extend([1.0, 2.0, 3.0])

    return step, dis, lambda: list(d)


@PROGRAMS.keep
def counter_most():
    cn = collections.Counter(a=1, b=2)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        cn["a" if st.n % 3 else "b"] += st.n
        return x * cn.most_common(1)[0][1]

    return step, nothing, lambda: dict(cn)


@PROGRAMS.keep
def counter_ops():
    cn = collections.Counter(a=1, b=2)

    def step(x):
        nonlocal cn
        cn = cn + collections.Counter(a=1)
        return x * cn["a"] + cn.total()

    return step, nothing, lambda: dict(cn)


@PROGRAMS.keep
def chainmap():
    a, b = {"n": 1}, {"k": 2.0}
    m = collections.ChainMap(a, b)

    def step(x):
        m["n"] += 1
        return x * m["n"] * m["k"]

    def dis(c):
        if c == 15:
            a["k"] = 5.0
        if c == 20:
            del a["k"]
            b["k"] = 3
        if c == 25:
            m.maps.insert(0, {"n": 9})

    return step, dis, lambda: [dict(each) for each in m.maps]


@PROGRAMS.keep
def dd_list():
    dd = collections.defaultdict(list)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        dd[st.n % 2].append(st.n)
        return x * len(dd[st.n % 2])

    return step, nothing, lambda: {k: list(v) for k, v in dd.items()}


@PROGRAMS.keep
def dd_factory():
    st = SimpleNamespace(n=0)

    def fac():
        st.n += 1
        return st.n

    dd = collections.defaultdict(fac)
    k = SimpleNamespace(k=0)

    def step(x):
        k.k += 1
        return x * dd[k.k % 6]

    def dis(c):
        if c == 20:
            dd.clear()
        if c == 25:
            dd.default_factory = lambda: 99
            dd.clear()

    return step, dis, lambda: (dict(dd), st.n)


@PROGRAMS.keep
def ema_mod():
    class M(nn.Module):
        n = 0

        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(torch.ones(3))
            s.register_buffer("e", torch.zeros(3))
            s.k = 0.9

        def forward(s, x):
            type(s).n += 1
            s.e.mul_(s.k).add_(x, alpha=1 - s.k)
            s.k = min(0.99, (1 + s.n) / (10 + s.n))
            return s.e * s.w

    m = M()

    def step(x):
        with torch.no_grad():
            return m(x)

    def dis(c):
        if c == 15:
            M.n = 0
        if c == 20:
            m.n = 100
        if c == 25:
            del m.n

    return step, dis, lambda: (M.n, m.k, m.e.tolist(), vars(m).get("n"))


@PROGRAMS.keep
def replay_buf():
    buf = collections.deque(maxlen=4)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        buf.append((st.n, x.sum()))
        return x * buf[0][0] + buf[-1][1]

    return step, nothing, lambda: [(n, float(t)) for n, t in buf]


@PROGRAMS.keep
def sched():
    class S:
        def __init__(s):
            s.last = -1
            s.base = [0.1, 0.2]
            s.lrs = [0.0, 0.0]

        def step(s):
            s.last += 1
            s.lrs = [b * 0.5 * (1 + math.cos(math.pi * s.last / 30)) for b in s.base]

    s = S()

    def step(x):
        s.step()
        return x * s.lrs[0] + s.lrs[1]

    def dis(c):
        if c == 15:
            s.base[0] = 1.0
        if c == 20:
            s.base = [3.0, 4.0]

    return step, dis, lambda: vars(s)


@PROGRAMS.keep
def running_stats():
    st = dict(n=0, mean=0.0, m2=0.0)

    def step(x):
        v = float(x.sum())
        st["n"] += 1
        d = v - st["mean"]
        st["mean"] += d / st["n"]
        st["m2"] += d * (v - st["mean"])
        return x * st["mean"] / (math.sqrt(st["m2"] / st["n"]) + 1)

    def dis(c):
        if c == 15:
            st.update(n=0, mean=0.0, m2=0.0)

    return step, dis, lambda: dict(st)


@PROGRAMS.keep
def meter():
    class Meter:
        def __init__(s):
            s.reset()

        def reset(s):
            s.sum = 0.0
            s.n = 0
            s.hist = collections.deque(maxlen=5)

        def update(s, v, k=1):
            s.sum += v * k
            s.n += k
            s.hist.append(v)

        @property
        def avg(s):
            return s.sum / max(1, s.n)

        @property
        def med(s):
            return sorted(s.hist)[len(s.hist) // 2]

    ms = collections.defaultdict(Meter)

    def step(x):
        ms["l"].update(x.sum().item())
        ms["n"].update(1, 2)
        return x * ms["l"].avg + ms["n"].avg

    def dis(c):
        if c == 20:
            ms["l"].reset()

    return step, dis, lambda: {k: (m.sum, m.n, list(m.hist)) for k, m in ms.items()}


@PROGRAMS.keep
def eps_greedy():
    st = SimpleNamespace(eps=1.0, n=0, rng=random.Random(1))

    def step(x):
        st.n += 1
        st.eps = max(0.05, st.eps * 0.95)
        if st.rng.random() < st.eps:
            return x * st.rng.randint(0, 3)
        return x * 2

    def dis(c):
        if c == 15:
            st.rng.seed(4)
        if c == 20:
            st.rng = random.Random(7)
        if c == 25:
            st.eps = 1.0

    return step, dis, lambda: (st.eps, st.n, st.rng.getstate())


@PROGRAMS.keep
def rng_alias():
    a = random.Random(1)
    st = SimpleNamespace(r=a, q=a)

    def step(x):
        return x * st.r.random() + st.q.random()

    def dis(c):
        if c == 15:
            st.q = random.Random(1)
        if c == 20:
            st.q.setstate(st.r.getstate())
        if c == 25:
            st.r = st.q

    return step, dis, lambda: (st.r.getstate(), st.q.getstate())


@PROGRAMS.keep
def rng_sub():
    class R(random.Random):
        def random(s):
            return 0.5

    st = SimpleNamespace(r=random.Random(2))

    def step(x):
        return x * st.r.uniform(0, 1)

    def dis(c):
        if c == 15:
            st.r = R(2)
        if c == 20:
            st.r = random.Random(3)
        if c == 25:
            st.r.random = lambda: 0.25

    return step, dis, lambda: st.r.getstate()


@PROGRAMS.keep
def rng_state():
    r = random.Random(2)
    st = SimpleNamespace(s=None, n=0)

    def step(x):
        st.n += 1
        v = r.random()
        if st.n % 10 == 3:
            st.s = r.getstate()
        if st.n % 10 == 8:
            r.setstate(st.s)
        return x * v

    return step, nothing, lambda: (r.getstate(), st.s)


@PROGRAMS.keep
def rng_pass():
    r = random.Random(2)
    g = np.random.default_rng(1)

    def noise(rng, k):
        return rng.gauss(0, k)

    def step(x):
        return x * noise(r, 1) + float(g.standard_normal()) * g.uniform()

    def dis(c):
        if c == 15:
            g.bit_generator.state = np.random.default_rng(9).bit_generator.state
        if c == 20:
            r.gauss_next = 0.5

    return step, dis, lambda: (r.getstate(), repr(g.bit_generator.state))


@PROGRAMS.keep
def rng_np_legacy():
    r = np.random.RandomState(2)

    def step(x):
        return x * r.randint(0, 5) + r.normal()

    def dis(c):
        if c == 15:
            r.seed(1)

    return step, dis, lambda: repr(r.get_state())


@PROGRAMS.keep
def np_lr():
    st = SimpleNamespace(lr=np.float64(0.1), k=np.float32(2), i=np.int64(1))

    def step(x):
        st.lr = st.lr * 0.9
        st.i += 1
        return x * st.lr * st.k + int(st.i)

    def dis(c):
        if c == 12:
            st.lr = 0.5
        if c == 16:
            st.lr = np.float32(0.5)
        if c == 20:
            st.i = 3
        if c == 24:
            st.k = np.float64(2)
        if c == 28:
            st.i = np.int64(2**40)

    return step, dis, lambda: (repr(st.lr), repr(st.k), repr(st.i))


@PROGRAMS.keep
def np_hash():
    d = {}
    st = SimpleNamespace(k=np.int64(0))

    def step(x):
        st.k = np.int64((st.k + 1) % 3)
        d[st.k] = d.get(st.k, 0) + 1
        return x * d[st.k]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def np_arr_idx():
    t = np.linspace(0, 1, 50)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * t[st.n % 50]

    def dis(c):
        if c == 15:
            t[:] = 2.0

    return step, dis, lambda: st.n


@PROGRAMS.keep
def tensor_idx():
    sig = torch.linspace(0, 1, 60)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * sig[st.n]

    def dis(c):
        if c == 15:
            sig.mul_(2)

    return step, dis, lambda: st.n


@PROGRAMS.keep
def list_table():
    t = [1.0, 2.0, 4.0, 8.0]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n + 1) % 4
        return x * t[st.n]

    def dis(c):
        if c == 15:
            t[2] = 5.0
        if c == 20:
            t.insert(0, 3.0)

    return step, dis, lambda: st.n


@PROGRAMS.keep
def moving_list():
    l = [1.0, 2.0, 3.0]

    def step(x):
        l.append(l.pop(0) * 0.9)
        return x * l[0] - l[-1]

    def dis(c):
        if c == 15:
            l[1] = 7
        if c == 20:
            l.append(1.0)
        if c == 25:
            l[:] = [-0.0, 0.0, 1.0]

    return step, dis, lambda: list(l)


@PROGRAMS.keep
def alias_lists():
    a = [1.0, 2.0]
    st = SimpleNamespace(a=a, b=a)

    def step(x):
        st.a[0] += 1
        return x * st.b[0]

    def dis(c):
        if c == 15:
            st.b = [5.0, 6.0]
        if c == 20:
            st.a = st.b

    return step, dis, lambda: (list(st.a), list(st.b))


@PROGRAMS.keep
def alias_deque():
    a = collections.deque([1.0, 2.0, 3.0], maxlen=3)
    st = SimpleNamespace(a=a, b=a)

    def step(x):
        st.a.append(st.b[0] * 0.5)
        return x * sum(st.b)

    def dis(c):
        if c == 15:
            st.b = collections.deque([1.0, 1.0, 1.0], maxlen=3)

    return step, dis, lambda: (list(st.a), list(st.b))


@PROGRAMS.keep
def isnum():
    st = SimpleNamespace(n=5, k=257)

    def step(x):
        st.n += 1
        return x * 2 if st.n is st.k else x * st.n

    def dis(c):
        if c % 7 == 0:
            st.k = st.n + 1

    return step, dis, lambda: (st.n, st.k)


@PROGRAMS.keep
def idnum():
    st = SimpleNamespace(n=500)

    def step(x):
        st.m = st.n
        return x * 2 if st.m is st.n else x

    def dis(c):
        st.n = 500 + c

    return step, dis, lambda: (st.m is st.n, st.n)


@PROGRAMS.keep
def keepid():
    st = SimpleNamespace(n=1000, kept=None)

    def step(x):
        st.kept = st.n
        return x * st.n

    def dis(c):
        st.n = 1000 + c

    return step, dis, lambda: (st.kept is st.n, st.kept)


@PROGRAMS.keep
def json_():
    st = SimpleNamespace(n=0, t="")

    def step(x):
        st.n += 1
        st.t = json.dumps({"n": st.n})
        return x * len(st.t)

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def pickle_():
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        o = pickle.loads(pickle.dumps(st.__dict__))
        return x * o["n"]

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def deepcopy_():
    st = SimpleNamespace(c={"n": [0]}, h=[])

    def step(x):
        st.c["n"][0] += 1
        st.h = copy.deepcopy(st.c)
        return x * st.h["n"][0]

    def dis(c):
        if c == 15:
            st.c["n"][0] = 2.5

    return step, dis, lambda: (copy.deepcopy(st.c), copy.deepcopy(st.h))


@PROGRAMS.keep
def sort_inplace():
    l = [3, 1, 2]

    def step(x):
        l.sort()
        l[0] += 3
        return x * l[0]

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def star():
    l = [1.0, 2.0]

    def f(a, b):
        return a * 2 + b

    def step(x):
        l[0], l[1] = l[1], l[0] + 1
        return x * f(*l)

    def dis(c):
        if c == 20:
            l[0] = 1

    return step, dis, lambda: list(l)


@PROGRAMS.keep
def kwspread():
    d = {"a": 1.0, "b": 2.0}

    def f(a, b):
        return a * 2 + b

    def step(x):
        d["a"] += 1
        return x * f(**d)

    def dis(c):
        if c == 20:
            d.update(b=0.5)

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def module_state():
    m = types.ModuleType("mmm")
    m.n = 0

    def step(x):
        m.n += 1
        return x * m.n

    def dis(c):
        if c == 15:
            m.__dict__["n"] = 1.5
        if c == 20:
            m.__getattr__ = lambda k: 3
            del m.n

    return step, dis, lambda: m.__dict__.get("n")


@PROGRAMS.keep
def enumd():
    class K(enum.Enum):
        A = 1
        B = 2

        def __hash__(s):
            return 5

    class L(enum.Enum):
        A = 1
        B = 2

    d = {K.A: 0, L.A: 0}

    def step(x):
        d[K.A] += 1
        d[L.A] += 2
        return x * d[K.A] + d[L.A]

    def dis(c):
        if c == 15:
            d[L.B] = 4
        if c == 20:
            del d[L.A]
            d[L.A] = 0.5

    return step, dis, lambda: list(d.values())


@PROGRAMS.keep
def nn_attr():
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = nn.Linear(3, 3)
            s.t = 0
            s.h = []

        def forward(s, x):
            s.t += 1
            s.h.append(s.t)
            return s.l(x) * s.t

    torch.manual_seed(0)
    m = M()

    def step(x):
        with torch.no_grad():
            return m(x)

    def dis(c):
        if c == 15:
            m.t = 0
        if c == 20:
            m.h = []
        if c == 25:
            m.l = nn.Linear(3, 3)
            m.l.weight.data.fill_(1)
            m.l.bias.data.fill_(0)

    return step, dis, lambda: (m.t, list(m.h))


@PROGRAMS.keep
def zero_sign():
    st = SimpleNamespace(v=0.0)

    def step(x):
        st.v = -st.v
        return torch.full((3,), 1.0) / st.v

    return step, nothing, lambda: st.v


@PROGRAMS.keep
def nan_state():
    st = SimpleNamespace(v=0.0, n=0)

    def step(x):
        st.n += 1
        st.v = st.v + 1 if st.n % 7 else float("nan")
        return x * st.v

    def dis(c):
        if c % 7 == 3:
            st.v = 0.0

    return step, dis, lambda: repr(st.v)


@PROGRAMS.keep
def bigint():
    st = SimpleNamespace(v=1)

    def step(x):
        st.v = st.v * 3
        return x * (st.v % 7)

    return step, nothing, lambda: st.v


@PROGRAMS.keep
def overflow():
    st = SimpleNamespace(v=2**60)

    def step(x):
        st.v += 2**59
        return x.long() + (st.v if st.v < 2**63 else 1)

    return step, nothing, lambda: st.v


@PROGRAMS.keep
def bool_count():
    st = SimpleNamespace(b=True, n=0)

    def step(x):
        st.b = not st.b
        st.n += st.b
        return x * st.n + st.b

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def type_flip():
    st = SimpleNamespace(v=1)

    def step(x):
        st.v = st.v + 1 if type(st.v) is int else st.v * 0.5
        return x * st.v

    def dis(c):
        if c % 9 == 8:
            st.v = [1, 1.0, True, np.float64(2)][c // 9]

    return step, dis, lambda: (type(st.v), st.v)


@PROGRAMS.keep
def class_counter_meta():
    class Meta(type):
        def __setattr__(c, k, v):
            super().__setattr__(k, v * 1)

        @property
        def twice(c):
            return c.n * 2

    class M(metaclass=Meta):
        n = 0

    def step(x):
        M.n += 1
        return x * M.twice

    def dis(c):
        if c == 15:
            M.n = 2.5

    return step, dis, lambda: M.n


@PROGRAMS.keep
def class_prop():
    class M:
        n = 0

        @classmethod
        def up(cls):
            cls.n += 1
            return cls.n

    class S(M):
        pass

    def step(x):
        return x * M.up() + S.up()

    def dis(c):
        if c == 15:
            del S.n
        if c == 20:
            M.n = -5

    return step, dis, lambda: (M.n, S.__dict__.get("n"))


@PROGRAMS.keep
def func_attr():
    def f(x):
        f.n += 1
        return x * f.n

    f.n = 0

    def dis(c):
        if c == 15:
            f.n = 0.5
        if c == 20:
            f.__dict__ = {"n": 3}

    return (lambda x: f(x)), dis, lambda: f.n


@PROGRAMS.keep
def append_then_read():
    l = []
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        l.append(st.n)
        return x * l[-1] * len(l)

    def dis(c):
        if c == 15:
            l.clear()

    return step, dis, lambda: list(l)


@PROGRAMS.keep
def deque_shift():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def step(x):
        a = d[0]
        d.append(5.0)
        b = d[0]
        d[2] = 3.0
        return x * a + b

    def dis(c):
        d[1] = float(c)
        d[0] = 1.0

    return step, dis, lambda: list(d)


@PROGRAMS.keep
def deque_shift2():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def step(x):
        a = d[0]
        d.append(x.sum())
        b = d[0]
        return x * a + b

    def dis(c):
        d.clear()
        d.extend([1.0, float(c // 2), 3.0])

    return step, dis, lambda: [float(v) for v in d]


@PROGRAMS.keep
def thread_lock():
    lk = threading.Lock()
    st = SimpleNamespace(n=0)

    def step(x):
        with lk:
            st.n += 1
        return x * st.n

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def match_():
    st = SimpleNamespace(m={"kind": "a", "v": 1})

    def step(x):
        match st.m:
            case {"kind": "a", "v": v}:
                st.m["v"] = v + 1
                return x * v
            case {"kind": k}:
                return x + len(k)

    def dis(c):
        if c == 15:
            st.m["kind"] = "bb"
        if c == 20:
            st.m["kind"] = "a"

    return step, dis, lambda: dict(st.m)


@PROGRAMS.keep
def walrus():
    st = SimpleNamespace(n=0, d={})

    def step(x):
        if (k := st.d.get("n")) is None:
            st.d["n"] = 0
            k = 0
        st.d["n"] = k + 1
        return x * (k + 1)

    def dis(c):
        if c == 15:
            st.d.clear()
        if c == 20:
            st.d["n"] = None

    return step, dis, lambda: dict(st.d)


@PROGRAMS.keep
def statistics_():
    d = collections.deque([1.0, 2.0], maxlen=4)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        d.append(st.n * 0.5)
        return x * statistics.fmean(d) + statistics.median(d)

    return step, nothing, lambda: list(d)


@PROGRAMS.keep
def fraction_():
    st = SimpleNamespace(f=Fraction(1, 3))

    def step(x):
        st.f += Fraction(1, 7)
        return x * float(st.f)

    return step, nothing, lambda: str(st.f)


@PROGRAMS.keep
def decimal_():
    st = SimpleNamespace(f=Decimal("0.1"))

    def step(x):
        st.f += Decimal("0.1")
        return x * float(st.f)

    return step, nothing, lambda: str(st.f)


@PROGRAMS.keep
def struct_():
    b = bytearray(8)

    def step(x):
        (v,) = struct.unpack("d", b)
        struct.pack_into("d", b, 0, v + 1)
        return x * v

    return step, nothing, lambda: bytes(b)


@PROGRAMS.keep
def arr_():
    a = array.array("l", [0])

    def step(x):
        a[0] += 1
        return x * a[0]

    return step, nothing, lambda: a.tolist()


@PROGRAMS.keep
def reduce_():
    l = [1, 2, 3]

    def step(x):
        l[0] += 1
        return x * functools.reduce(operator.mul, l)

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def accumulate_():
    l = [1, 2, 3]

    def step(x):
        l[0] += 1
        return x * list(itertools.accumulate(l))[-1]

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def map_():
    l = [1, 2, 3]

    def step(x):
        l[0] += 1
        return x * max(map(lambda v: v * 2, l)) + min(l, key=lambda v: -v)

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def any_all():
    l = [1, 2, 3]

    def step(x):
        l[0] += 1
        return x * 2 if any(v > 10 for v in l) else x * l[0]

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def cmp_list():
    l = [1, 2]
    best = [5, 5]

    def step(x):
        l[0] += 1
        return x * 2 if l > best else x * l[0]

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def eq_dict():
    d = {"n": 0}
    e = {"n": 12}

    def step(x):
        d["n"] += 1
        return x * 100 if d == e else x * d["n"]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def in_list():
    l = [1, 9, 17]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * 100 if st.n in l else x * st.n

    def dis(c):
        if c == 12:
            l.append(20)

    return step, dis, lambda: st.n


@PROGRAMS.keep
def index_list():
    l = [0, 1, 2, 3]

    def step(x):
        l[0] += 1
        return x * l.index(max(l)) + l.count(2)

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def copy_list():
    st = SimpleNamespace(l=[1.0, 2.0], old=None)

    def step(x):
        st.old = list(st.l)
        st.l[0] += 1
        return x * (st.l[0] - st.old[0]) * st.old[0]

    return step, nothing, lambda: (list(st.l), list(st.old))


@PROGRAMS.keep
def slice_list():
    l = [1.0, 2.0, 3.0, 4.0]

    def step(x):
        l[:2] = [v * 0.5 + 1 for v in l[2:]]
        l[2] += 1
        return x * sum(l[1:])

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def del_list():
    l = [1.0, 2.0, 3.0]

    def step(x):
        v = l[0]
        del l[0]
        l.insert(2, v + 1)
        return x * l[0]

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def iadd_list():
    st = SimpleNamespace(l=[1.0, 2.0])

    def step(x):
        st.l += [st.l[0]]
        del st.l[0]
        return x * st.l[-1]

    return step, nothing, lambda: list(st.l)


@PROGRAMS.keep
def mul_list():
    l = [1.0, 2.0]

    def step(x):
        l[0] += 1
        m = l * 2
        return x * m[2]

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def nested_tuple():
    st = SimpleNamespace(t=(0, (1.0, 2)))

    def step(x):
        a, (b, c) = st.t
        st.t = (a + 1, (b * 0.9, c))
        return x * a + b * c

    def dis(c):
        if c == 15:
            st.t = (3, (1, 2))

    return step, dis, lambda: st.t


@PROGRAMS.keep
def opt_step():
    torch.manual_seed(0)
    w = nn.Parameter(torch.ones(3))
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    st = SimpleNamespace(n=0, rng=random.Random(2))

    def step(x):
        st.n += 1
        for g in opt.param_groups:
            g["lr"] = 0.1 * 0.9**st.n
        opt.zero_grad()
        loss = ((w - x) * st.rng.random()).square().sum()
        loss.backward()
        opt.step()
        return loss.detach()

    def dis(c):
        if c == 20:
            st.n = 0

    return step, dis, lambda: (w.tolist(), st.n, opt.param_groups[0]["lr"])
