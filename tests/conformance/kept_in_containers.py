"""Programs that keep numbers in containers and tables, and next to generators."""
# ruff: noqa: E741, F841, N805, RUF012, UP031, UP042

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import operator
import random
from types import SimpleNamespace

import numpy as np
import torch
from tests.conformance.kept_programs import Programs, nothing

import rote

PROGRAMS = Programs()


@PROGRAMS.keep
def lay_iter_outside():
    l = [1.0, 2.0, 3.0]
    st = SimpleNamespace(it=iter(l))

    def step(x):
        v = next(st.it, None)
        if v is None:
            st.it = iter(l)
            v = next(st.it)
        l[0] += 1
        return x * v

    return step, nothing, lambda: list(l)


@PROGRAMS.keep
def dict_subclass_attr():
    class D(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__

    d = D(n=0)

    def step(x):
        d.n += 1
        return x * d.n * d["n"]

    def dis(c):
        if c == 15:
            d["n"] = 2.5
        if c == 20:
            del d["n"]
            d["k"] = 1
            d["n"] = 4

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def easydict():
    class D(dict):
        def __init__(s, *a, **k):
            super().__init__(*a, **k)
            s.__dict__ = s

    d = D(n=0, k=1.5)

    def step(x):
        d.n += 1
        d["k"] *= 0.9
        return x * d["n"] * d.k

    def dis(c):
        if c == 15:
            d.n = 2.5
        if c == 20:
            d.pop("k")
            d.k = 3.0

    return step, dis, lambda: dict(d)


@PROGRAMS.keep
def ordered_evict():
    d = collections.OrderedDict()
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        k = st.n % 7
        if k in d:
            d.move_to_end(k)
        d[k] = st.n
        if len(d) > 3:
            d.popitem(last=False)
        return x * next(iter(d.values()))

    return step, nothing, lambda: (list(d.items()), st.n)


@PROGRAMS.keep
def two_slots_same_obj():
    n = 1000
    st = SimpleNamespace(a=n, b=n)

    def step(x):
        st.a += 1
        return x * st.a + st.b

    def dis(c):
        if c > 5:
            st.b = st.a

    return step, dis, lambda: vars(st)


@PROGRAMS.keep
def swap():
    st = SimpleNamespace(a=1.0, b=2.0)

    def step(x):
        st.a, st.b = st.b + 1, st.a
        return x * st.a - st.b

    def dis(c):
        if c == 15:
            st.a = st.b = -0.0

    return step, dis, lambda: vars(st)


@PROGRAMS.keep
def del_attr():
    st = SimpleNamespace(n=0)

    def step(x):
        n = getattr(st, "n", 10)
        if n % 5 == 4:
            del st.n
        else:
            st.n = n + 1
        return x * n

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def shadow():
    class M:
        n = 100

    m = M()

    def step(x):
        m.n += 1
        if m.n % 6 == 0:
            del m.n
        return x * m.n

    def dis(c):
        if c == 20:
            M.n = 7

    return step, dis, lambda: (vars(m), M.n)


@PROGRAMS.keep
def shadow_slot():
    class M:
        n = 0

        def __init__(s):
            s.k = 1

    ms = [M(), M()]
    st = SimpleNamespace(i=0)

    def step(x):
        st.i += 1
        m = ms[st.i % 2]
        m.n += 1
        return x * m.n * m.k

    def dis(c):
        if c == 15:
            M.n = 50
            del ms[0].n
        if c == 25:
            ms.reverse()

    return step, dis, lambda: [vars(m) for m in ms]


@PROGRAMS.keep
def inherit_read():
    class A:
        n = 1.0

    class B(A):
        pass

    class C(B):
        pass

    c_ = C()
    b = B()

    def step(x):
        A.n += 1
        return x * c_.n + b.n

    def dis(c):
        if c == 10:
            B.n = 5.0
        if c == 15:
            del B.n
        if c == 20:
            C.__bases__ = (A,)
        if c == 25:
            c_.n = 3

    return step, dis, lambda: (A.n, c_.n, b.n)


@PROGRAMS.keep
def class_swap():
    class A:
        n = 1.0

    class B:
        n = 2.0

    st = SimpleNamespace(M=A, m=A())

    def step(x):
        st.M.n += 1
        return x * st.m.n * st.M.n

    def dis(c):
        if c == 15:
            st.M = B
        if c == 20:
            st.m = B()
        if c == 25:
            st.m.__class__ = A

    return step, dis, lambda: (A.n, B.n)


@PROGRAMS.keep
def dataclass_defaults():
    @dataclasses.dataclass
    class C:
        n: int = 0
        h: list = dataclasses.field(default_factory=list)

    st = SimpleNamespace(c=C())

    def step(x):
        st.c.n += 1
        st.c.h.append(st.c.n)
        if len(st.c.h) > 3:
            st.c = C(n=st.c.n)
        return x * st.c.n

    return step, nothing, lambda: dataclasses.astuple(st.c)


@PROGRAMS.keep
def namedtuple_state():
    T = collections.namedtuple("T", "n k")
    st = SimpleNamespace(t=T(0, 1.0))

    def step(x):
        st.t = st.t._replace(n=st.t.n + 1)
        return x * st.t.n * st.t.k

    def dis(c):
        if c == 15:
            st.t = T(5, 2)

    return step, dis, lambda: tuple(st.t)


@PROGRAMS.keep
def rng_in_list():
    rs = [random.Random(i) for i in range(3)]
    st = SimpleNamespace(i=0)

    def step(x):
        st.i = (st.i + 1) % 3
        return x * rs[st.i].random() + rs[0].uniform(0, 1)

    def dis(c):
        if c == 15:
            rs.reverse()

    return step, dis, lambda: [r.getstate() for r in rs]


@PROGRAMS.keep
def rng_fork():
    st = SimpleNamespace(r=random.Random(1))

    def step(x):
        r = random.Random(st.r.random())
        return x * r.random()

    return step, nothing, lambda: st.r.getstate()


@PROGRAMS.keep
def rng_copy():
    st = SimpleNamespace(r=random.Random(1))

    def step(x):
        r = copy.copy(st.r)
        st.r.random()
        return x * r.random()

    return step, nothing, lambda: st.r.getstate()


@PROGRAMS.keep
def rng_made_inside():
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        r = random.Random(5)
        g = np.random.default_rng(4)
        return x * r.random() * g.random() * st.n

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def rng_seed_step():
    st = SimpleNamespace(n=0, r=random.Random(0))

    def step(x):
        st.n += 1
        st.r.seed(st.n)
        return x * st.r.random()

    return step, nothing, lambda: st.r.getstate()


@PROGRAMS.keep
def rng_sample():
    r = random.Random(0)

    def step(x):
        return x * r.sample([1, 2, 3, 4], 2)[0] + r.choices([1, 2], k=1)[0]

    return step, nothing, lambda: r.getstate()


@PROGRAMS.keep
def rng_choice_obj():
    r = random.Random(0)
    fs = [lambda v: v + 1, lambda v: v * 2]

    def step(x):
        return r.choice(fs)(x)

    return step, nothing, lambda: r.getstate()


@PROGRAMS.keep
def rng_choice_changes():
    r = random.Random(0)
    l = [1.0, 2.0, 3.0]

    def step(x):
        return x * r.choice(l)

    def dis(c):
        if c == 15:
            l[1] = 9.0
        if c == 20:
            l.append(4.0)

    return step, dis, lambda: r.getstate()


@PROGRAMS.keep
def rng_choice_tracked():
    r = random.Random(0)
    l = [1.0, 2.0, 3.0]

    def step(x):
        l[0] += 1
        return x * r.choice(l)

    return step, nothing, lambda: (r.getstate(), list(l))


@PROGRAMS.keep
def rng_args_tracked():
    r = random.Random(0)
    st = SimpleNamespace(k=1.0)

    def step(x):
        st.k *= 0.9
        return x * r.gauss(0, st.k) + r.uniform(0, st.k)

    return step, nothing, lambda: (r.getstate(), st.k)


@PROGRAMS.keep
def rng_while():
    r = random.Random(0)

    def step(x):
        k = 0
        while r.random() < 0.5:
            k += 1
        return x * k

    return step, nothing, lambda: r.getstate()


@PROGRAMS.keep
def rng_raise():
    r = random.Random(0)
    st = SimpleNamespace(n=0)

    def step(x):
        v = r.random()
        st.n += 1
        if st.n % 6 == 5:
            raise ValueError("x")
        return x * v

    return step, nothing, lambda: (r.getstate(), st.n)


@PROGRAMS.keep
def rng_gauss_mix():
    r = random.Random(0)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * (r.gauss(0, 1) if st.n % 3 else r.random())

    def dis(c):
        if c == 20:
            r.gauss(0, 1)

    return step, dis, lambda: (r.getstate(), st.n)


@PROGRAMS.keep
def rng_systemrandom():
    r = random.SystemRandom()
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        v = r.random()
        return x * st.n if 0 <= v < 1 else x

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def np_gen_mt():
    g = np.random.Generator(np.random.MT19937(3))
    old = np.get_printoptions()

    def step(x):
        return x * g.normal()

    def dis(c):
        if c == 10:
            np.set_printoptions(threshold=5)
        if c == 30:
            np.set_printoptions(**old)
        if c == 20:
            g.bit_generator.state = np.random.MT19937(4).state

    return step, dis, lambda: g.bit_generator.state["state"]["key"].tolist()


@PROGRAMS.keep
def np_shared_bitgen():
    b = np.random.PCG64(1)
    g, h = np.random.Generator(b), np.random.Generator(b)

    def step(x):
        return x * g.random() + h.random()

    return step, nothing, lambda: repr(b.state)


@PROGRAMS.keep
def np_gen_size():
    g = np.random.default_rng(0)

    def step(x):
        return x * float(g.random(3).sum()) + g.random()

    return step, nothing, lambda: repr(g.bit_generator.state)


@PROGRAMS.keep
def np_gen_choice():
    g = np.random.default_rng(0)

    def step(x):
        return x * g.choice([1.0, 2.0, 3.0]) + g.integers(5)

    return step, nothing, lambda: repr(g.bit_generator.state)


@PROGRAMS.keep
def np_scalar_arr():
    a = np.array([1.0, 2.0, 3.0])
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        v = a[st.n % 3]
        return x * v

    def dis(c):
        if c == 15:
            a[1] = -0.0
        if c == 22:
            a[:] = a[::-1].copy()

    return step, dis, lambda: (st.n, a.tolist())


@PROGRAMS.keep
def np_arr_written():
    a = np.zeros(5)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        a[st.n % 5] = st.n
        return x * a[(st.n + 1) % 5]

    return step, nothing, lambda: (st.n, a.tolist())


@PROGRAMS.keep
def list_table_written():
    l = [1.0, 2.0, 3.0]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        v = l[st.n % 3]
        l[0] = l[0] + 1
        return x * v

    return step, nothing, lambda: (st.n, list(l))


@PROGRAMS.keep
def table_then_write():
    l = [1.0, 2.0, 3.0]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        v = l[st.n % 3]
        l[1] = 7.0 if st.n < 20 else 8.0
        return x * v * l[st.n % 3]

    return step, nothing, lambda: (st.n, list(l))


@PROGRAMS.keep
def table_of_tables():
    t = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * t["a"][st.n % 2] * t["b"][-(st.n % 2) - 1]

    def dis(c):
        if c == 15:
            t["b"] = [9.0, 8.0]

    return step, dis, lambda: st.n


@PROGRAMS.keep
def table_neg():
    l = [1.0, 2.0, 3.0]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n -= 1
        return x * l[st.n] if st.n >= -3 else x * l[st.n + 30] if st.n < -28 else x * l[0]

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def table_range():
    r = range(10, 20)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n + 1) % 10
        return x * r[st.n]

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def table_str():
    t = "abc"
    st = SimpleNamespace(n=0)

    def step(x):
        st.n = (st.n + 1) % 3
        return x * ord(t[st.n])

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def table_tensors():
    l = [torch.ones(3), torch.ones(3) * 2]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * l[st.n % 2]

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def table_bool():
    l = [True, False, 2]
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        return x * l[st.n % 3]

    def dis(c):
        if c == 20:
            l[0] = 1

    return step, dis, lambda: st.n


@PROGRAMS.keep
def update_names():
    d = {"value": 0, "trace": 1.0, "self": 2}

    def step(x):
        d.update(value=d["value"] + 1, trace=d["trace"] * 0.9, self=3)
        return x * d["value"] * d["trace"]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def update_pairs():
    d = {"a": 0}

    def step(x):
        d.update([("a", d["a"] + 1), ("b", 2)])
        return x * d["a"]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def update_self():
    st = SimpleNamespace(n=0, k=1)

    def step(x):
        vars(st).update(vars(st), n=st.n + 1)
        return x * st.n

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def update_kept():
    a, b = {"n": 0}, {}

    def step(x):
        a["n"] += 1
        b.update(a)
        return x * b["n"]

    def dis(c):
        if c == 15:
            a["z"] = 3
        if c == 20:
            b.clear()

    return step, dis, lambda: (dict(a), dict(b))


@PROGRAMS.keep
def update_sub():
    class D(dict):
        def update(s, *a, **k):
            super().update(*a, **k)
            s["c"] = s.get("c", 0) + 1

    d = D(n=0)

    def step(x):
        d.update(n=d["n"] + 1)
        return x * d["n"] * d["c"]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def ior_order():
    d = {"a": 1.0, "b": 2.0}

    def step(x):
        nonlocal d
        d |= {"c": 0, "a": d["a"] + 1}
        del d["c"]
        return x * d["a"]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def fromkeys():
    st = SimpleNamespace(n=0, d={})

    def step(x):
        st.n += 1
        st.d = dict.fromkeys(["a", "b"], st.n)
        return x * st.d["b"]

    return step, nothing, lambda: (st.n, dict(st.d))


@PROGRAMS.keep
def comp_state():
    st = SimpleNamespace(d={"a": 1, "b": 2})

    def step(x):
        st.d = {k: v + 1 for k, v in st.d.items()}
        return x * st.d["a"]

    def dis(c):
        if c == 15:
            st.d["c"] = 3

    return step, dis, lambda: dict(st.d)


@PROGRAMS.keep
def list_comp_state():
    st = SimpleNamespace(l=[1, 2.0])

    def step(x):
        st.l = [v + 1 for v in st.l]
        return x * st.l[0] + st.l[1]

    def dis(c):
        if c == 15:
            st.l[0] = 0.5

    return step, dis, lambda: list(st.l)


@PROGRAMS.keep
def counter_sub():
    cn = collections.Counter(a=5)

    def step(x):
        cn.subtract(a=1)
        return x * cn["a"]

    return step, nothing, lambda: dict(cn)


@PROGRAMS.keep
def counter_iter():
    cn = collections.Counter()
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        cn.update(["a", "b", "a"])
        return x * cn["a"] * sum(cn.values())

    def dis(c):
        if c == 15:
            del cn["b"]

    return step, dis, lambda: dict(cn)


@PROGRAMS.keep
def deque_ops():
    d = collections.deque([1.0, 2.0, 3.0, 4.0])

    def step(x):
        d.rotate(-1)
        v = d.pop()
        d.appendleft(v * 0.5)
        d.extend([d.popleft()])
        return x * d[0] + d[-2]

    def dis(c):
        if c == 15:
            d.append(7.0)
        if c == 25:
            d.pop()

    return step, dis, lambda: list(d)


@PROGRAMS.keep
def deque_insert():
    d = collections.deque([1.0, 2.0, 3.0])

    def step(x):
        d.insert(1, d[0] + 1)
        del d[0]
        d.reverse()
        return x * d[1]

    return step, nothing, lambda: list(d)


@PROGRAMS.keep
def deque_full_reads():
    d = collections.deque([1.0, 2.0, 3.0], maxlen=3)

    def step(x):
        m = max(d)
        d.append(m * 0.5)
        return x * (d[0] + d[1] - d[2])

    def dis(c):
        if c == 15:
            d[1] = 50.0

    return step, dis, lambda: list(d)


@PROGRAMS.keep
def deque_growing():
    d = collections.deque(maxlen=6)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        d.append(st.n * 0.5)
        return x * sum(d) / len(d)

    def dis(c):
        if c == 20:
            d.clear()

    return step, dis, lambda: list(d)


@PROGRAMS.keep
def deque_tensor_nums():
    d = collections.deque([1.0, 2.0], maxlen=2)
    t = collections.deque(maxlen=3)

    def step(x):
        d.append(d[0] + 1)
        t.append(x * d[-1])
        return x * d[0]

    return step, nothing, lambda: (list(d), [v.tolist() for v in t])


@PROGRAMS.keep
def nested_dd():
    dd = collections.defaultdict(lambda: collections.defaultdict(int))

    def step(x):
        dd["a"]["n"] += 1
        return x * dd["a"]["n"]

    def dis(c):
        if c == 15:
            dd.clear()
        if c == 20:
            dd["a"] = {"n": 3}

    return step, dis, lambda: {k: dict(v) for k, v in dd.items()}


@PROGRAMS.keep
def dd_len():
    dd = collections.defaultdict(int)
    st = SimpleNamespace(n=0)

    def step(x):
        st.n += 1
        dd["k%d" % (st.n % 3)] += 1
        return x * len(dd)

    return step, nothing, lambda: dict(dd)


@PROGRAMS.keep
def enum_flag():
    class F(enum.IntEnum):
        A = 1
        B = 2

    d = {F.A: 0, 1: 0}
    st = SimpleNamespace(f=F.A)

    def step(x):
        d[F.A] += 1
        st.f = F.B if st.f is F.A else F.A
        return x * d[1] * st.f

    return step, nothing, lambda: (list(d.values()), st.f)


@PROGRAMS.keep
def strenum():
    class S(str, enum.Enum):
        A = "a"

    d = {"a": 0}

    def step(x):
        d[S.A] += 1
        return x * d["a"]

    return step, nothing, lambda: dict(d)


@PROGRAMS.keep
def lock_prop_chain():
    class A:
        def __init__(s):
            s.b = SimpleNamespace(c={"d": [0]})

        @property
        def v(s):
            return s.b.c["d"][0]

        @v.setter
        def v(s, k):
            s.b.c["d"][0] = k

    a = A()

    def step(x):
        a.v += 1
        return x * a.v

    def dis(c):
        if c == 15:
            a.b = SimpleNamespace(c={"d": [9]})
        if c == 20:
            a.b.c = {"d": [1.5]}

    return step, dis, lambda: a.v


@PROGRAMS.keep
def graphed_inside():
    st = SimpleNamespace(n=0)

    def inner(x):
        st.n += 1
        return x * st.n

    g = rote.graph(inner, keep=True)

    def step(x):
        return g(x) + st.n

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def recursion():
    st = SimpleNamespace(n=0)

    def rec(x, k):
        st.n += 1
        return x if k == 0 else rec(x * st.n, k - 1)

    def step(x):
        return rec(x, 3) / 1e3

    def dis(c):
        st.n = c

    return step, dis, lambda: st.n


@PROGRAMS.keep
def generator_inside():
    st = SimpleNamespace(n=0)

    def g():
        for _ in range(3):
            st.n += 1
            yield st.n

    def step(x):
        return x * sum(g())

    return step, nothing, lambda: st.n


@PROGRAMS.keep
def ctx_manager():
    class T:
        depth = 0

        def __enter__(s):
            T.depth += 1
            s.n = getattr(s, "n", 0) + 1
            return s

        def __exit__(s, *a):
            T.depth -= 1

    t = T()

    def step(x):
        with t as k:
            y = x * k.n * T.depth
        return y

    def dis(c):
        if c == 15:
            T.depth = 3

    return step, dis, lambda: (T.depth, t.n)


@PROGRAMS.keep
def callbacks():
    st = SimpleNamespace(n=0, cbs=[])
    st.cbs.append(lambda: setattr(st, "n", st.n + 1))

    def step(x):
        for f in st.cbs:
            f()
        return x * st.n

    def dis(c):
        if c == 15:
            st.cbs.append(lambda: setattr(st, "n", st.n * 2))
        if c == 20:
            st.cbs.pop()

    return step, dis, lambda: st.n


@PROGRAMS.keep
def operator_iadd():
    st = SimpleNamespace(n=0)
    d = {"n": 1}

    def step(x):
        st.n = operator.iadd(st.n, 2)
        operator.setitem(d, "n", operator.add(d["n"], 1))
        return x * st.n * operator.getitem(d, "n")

    return step, nothing, lambda: (st.n, dict(d))


@PROGRAMS.keep
def dunder_calls():
    st = SimpleNamespace(n=0)
    d = {"n": 1}
    l = [1]

    def step(x):
        d.__setitem__("n", d.__getitem__("n").__add__(1))
        st.__setattr__("n", st.__getattribute__("n") + 1)
        l.__setitem__(0, l[0] + 1)
        return x * d["n"] * st.n * l[0]

    return step, nothing, lambda: (vars(st), dict(d), list(l))


@PROGRAMS.keep
def object_setattr():
    st = SimpleNamespace(n=0)

    class F:
        __slots__ = ("v",)

    f = F()
    object.__setattr__(f, "v", 1)

    def step(x):
        object.__setattr__(f, "v", object.__getattribute__(f, "v") + 1)
        F.v.__set__(f, f.v + 1)
        return x * F.v.__get__(f)

    return step, nothing, lambda: f.v


@PROGRAMS.keep
def memo_dict():
    memo = {}
    st = SimpleNamespace(n=0)

    def fib(k):
        if k not in memo:
            memo[k] = k if k < 2 else fib(k - 1) + fib(k - 2)
        return memo[k]

    def step(x):
        st.n = (st.n + 1) % 6
        return x * fib(st.n)

    def dis(c):
        if c == 20:
            memo.clear()

    return step, dis, lambda: (dict(memo), st.n)


@PROGRAMS.keep
def early_stop():
    class ES:
        def __init__(s):
            s.best = None
            s.bad = 0
            s.stop = False

        def __call__(s, v):
            if s.best is None or v < s.best:
                s.best = v
                s.bad = 0
            else:
                s.bad += 1
                s.stop = s.bad > 4
            return s.stop

    es = ES()

    def step(x):
        es(x.sum().item())
        return x * es.bad + (1 if es.stop else 0)

    def dis(c):
        if c == 25:
            es.best = None

    return step, dis, lambda: vars(es)


@PROGRAMS.keep
def gradscale():
    st = SimpleNamespace(scale=2.0**16, good=0)

    def step(x):
        bad = bool((x.sum() > 3.2).item())
        if bad:
            st.scale *= 0.5
            st.good = 0
        else:
            st.good += 1
            if st.good == 5:
                st.scale *= 2
                st.good = 0
        return x * st.scale

    return step, nothing, lambda: vars(st)


@PROGRAMS.keep
def class_dict_write():
    class M:
        reg = {}

    def step(x):
        M.reg["n"] = M.reg.get("n", 0) + 1
        return x * M.reg["n"]

    def dis(c):
        if c == 15:
            M.reg = {"n": 5}

    return step, dis, lambda: dict(M.reg)


@PROGRAMS.keep
def type_call_new():
    class M:
        made = 0

        def __new__(cls):
            cls.made += 1
            return super().__new__(cls)

    def step(x):
        M()
        return x * M.made

    return step, nothing, lambda: M.made


@PROGRAMS.keep
def init_subclass():
    class B:
        subs = 0

        def __init_subclass__(cls):
            B.subs += 1

    def step(x):
        class C(B):
            pass

        return x * B.subs

    return step, nothing, lambda: B.subs
