"""State outside the arguments: changed between two calls, the next call has to see it."""

from __future__ import annotations

import collections
import enum
import io
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from tests.differential.harness import attempt, check, drive, full
from torch import nn

import rote


def test_minus_zero():
    def scenario(wrap):
        o = types.SimpleNamespace(s=0.0)
        g = wrap(lambda x: 1 / (torch.ones(2) * o.s))
        yield from drive(g, change=lambda: setattr(o, "s", -0.0))

    check(scenario)


def store_an_item(d, x):
    d["a"] = x


def store_an_attribute(d, x):
    d.a = x


def ask_and_store(d, x):
    len(d)
    d["a"] = x


def store_before_and_after_it_is_asked(d, x):
    d["a"] = x
    len(d)
    d["b"] = x


class Attributes(dict):
    def __init__(self, **values):
        super().__init__(**values)
        self.__dict__ = self


@pytest.mark.parametrize(
    "store", [store_an_item, store_an_attribute, ask_and_store, store_before_and_after_it_is_asked]
)
@pytest.mark.parametrize("kind", [dict, Attributes, types.SimpleNamespace])
@pytest.mark.parametrize("ask", [len, lambda d: sum(1 for _ in d), lambda d: 2 if len(d) > 1 else 1])
def test_how_long_a_mapping_is_in_which_a_call_stores(store, kind, ask):
    """Which of its keys were there makes the difference, not how many."""
    if store is store_an_attribute and kind is dict:
        return

    def scenario(wrap):
        o = kind()
        d = o if isinstance(o, dict) else vars(o)

        def fn(x):
            store(o if store is store_an_attribute else d, x)
            return x + ask(d)

        g = wrap(fn)
        yield from drive(g)
        assert not isinstance(g, rote.Graphed) or g.report().replayed >= 5, g.report()
        for keys in ["c", "a", "cd", "", "ab", "c", "ac"]:
            d.clear()
            d.update(dict.fromkeys(keys, 2))
            yield from drive(g, calls=2)
            yield list(d)

    check(scenario)


def test_order_of_a_module_dict():
    def scenario(wrap):
        m = nn.ModuleDict({"a": nn.Threshold(0, 5.0), "b": nn.Softmax(0)})

        def fn(x):
            for layer in m.values():
                x = layer(x)
            return x

        def swap():
            m["a"] = m.pop("a")

        yield from drive(wrap(fn), change=swap, args=lambda i: (torch.arange(4.0) - 2,))

    check(scenario)


@pytest.mark.parametrize(
    ("name", "new", "use"),
    [
        ("sizes", (3.0, 4.0), lambda o: o.sizes[0]),
        ("config", types.SimpleNamespace(s=3.0), lambda o: o.config.s),
        ("computed", property(lambda self: 3.0), lambda o: o.computed),
        ("static", staticmethod(lambda: 3.0), lambda o: o.static()),
    ],
    ids=["tuple", "namespace", "property", "staticmethod"],
)
def test_class_attribute_replaced(name: str, new: Any, use: Callable[[Any], float]):
    def scenario(wrap):
        class C:
            sizes = (1.0, 2.0)
            config = types.SimpleNamespace(s=1.0)
            computed = property(lambda self: 1.0)
            static = staticmethod(lambda: 1.0)

        o = C()
        yield from drive(wrap(lambda x: x * use(o)), change=lambda: setattr(C, name, new))

    check(scenario)


def test_shape_of_an_array():
    def scenario(wrap):
        o = types.SimpleNamespace(a=numpy.zeros(4))
        g = wrap(lambda x: x * o.a.ndim)
        yield from drive(g, change=lambda: setattr(o, "a", numpy.zeros((2, 2))))

    check(scenario)


def test_attribute_of_a_dict_subclass():
    def scenario(wrap):
        class Table(dict):
            pass

        o = Table()
        o.s = 1.0
        yield from drive(wrap(lambda x: x * o.s), change=lambda: setattr(o, "s", 5.0))

    check(scenario)


def test_user_dict():
    def scenario(wrap):
        o = types.SimpleNamespace(d=collections.UserDict(a=1.0))
        yield from drive(wrap(lambda x: x * o.d["a"]), change=lambda: o.d.__setitem__("a", 5.0))

    check(scenario)


def test_hook_of_all_modules():
    def scenario(wrap):
        hooks = []
        m = nn.Linear(4, 4).requires_grad_(False)

        def add():
            hook = nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 3)
            hooks.append(hook)

        try:
            yield from drive(wrap(m), change=add)
        finally:
            for hook in hooks:
                hook.remove()

    check(scenario)


@pytest.mark.parametrize("drawn", ["generator", "bits"])
def test_generator_of_numpy(drawn: str):
    def scenario(wrap):
        generator, bits = numpy.random.default_rng(0), numpy.random.PCG64(0)
        if drawn == "generator":
            g = wrap(lambda x: x * 2 if generator.random() < 0.8 else x * 3)
        else:
            g = wrap(lambda x: x * 2 if bits.random_raw() % 5 else x * 3)
        yield from drive(g, calls=40)

    check(scenario)


def test_global_by_string():
    def scenario(wrap):
        names: dict[str, Any] = {"K": 1.0}
        exec("def fn(x): return x * globals()['K']", names)
        yield from drive(wrap(names["fn"]), change=lambda: names.__setitem__("K", 5.0))

    check(scenario)


def test_global_defined_later():
    def scenario(wrap):
        names: dict[str, Any] = {}
        exec("def fn(x):\n try: return x * LATE\n except NameError: return x", names)
        yield from drive(wrap(names["fn"]), change=lambda: names.__setitem__("LATE", 5.0))

    check(scenario)


def test_attributes_of_a_module_by_a_tuple_of_names():
    def scenario(wrap):
        table = types.ModuleType("rote_tests_table")
        table.first, table.second = 1.0, 2.0
        fn = lambda x: x * sum([getattr(table, name) for name in ("first", "second")])  # noqa: E731
        yield from drive(wrap(fn), change=lambda: setattr(table, "second", 5.0))

    check(scenario)


def test_builtin_hidden_by_a_global():
    def scenario(wrap):
        names: dict[str, Any] = {}
        exec("def fn(x): return x * len('abc')", names)
        yield from drive(wrap(names["fn"]), change=lambda: names.__setitem__("len", lambda _: 9))

    check(scenario)


# ---------------------------------------------------------------------- tensors that are looked at, not read

ASKED = {
    "requires_grad": lambda m: sum(p.numel() for p in m.parameters() if p.requires_grad),
    "dtype": lambda m: torch.finfo(next(m.parameters()).dtype).bits,
    "shape": lambda m: m.table.shape[0] + len(m.table),
    "size": lambda m: m.table.size(0) * m.table.numel(),
    "stride": lambda m: m.table.stride(0) * 1.5,
    "dim": lambda m: m.table.dim() + m.table.ndim,
    "is_leaf": lambda m: 2.0 if m.table.is_leaf else 3.0,
    "floating": lambda m: 2.0 if torch.is_floating_point(m.table) else 3.0,
}


def _unfreeze(m):
    m.weight.requires_grad_(True)


def _resize(m):
    m.table.resize_(2, 1)


def _transpose(m):
    m.table.data = m.table.data.reshape(2, 2).t()


def _flatten(m):
    m.table.data = m.table.data.view(-1)


def _whole(m):
    m.table.data = m.table.data.long()


def _grow(m):
    m.table.add_(m.other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "change", [_unfreeze, nn.Module.double, _resize, _transpose, _flatten, _whole, _grow]
)
@pytest.mark.parametrize("name", ASKED)
def test_what_a_tensor_looks_like(name, change, grad):
    """No operation reads the tensor; Python asks it."""

    def scenario(wrap):
        m = nn.Linear(4, 2).requires_grad_(False)
        m.table = torch.arange(4.0).view(2, 2)
        m.other = torch.ones((), requires_grad=True)
        ask = ASKED[name]

        def fn(x):
            with torch.set_grad_enabled(grad):
                return x * ask(m)

        yield from drive(wrap(fn), change=lambda: change(m), calls=12)

    check(scenario)


def test_a_tensor_that_is_looked_at_on_one_path_only():
    def scenario(wrap):
        m = nn.Linear(4, 2)

        def fn(x):
            if x.sum() > 0:
                return x * sum(p.requires_grad for p in m.parameters())
            return x - 1

        g = wrap(fn)
        for i in range(30):
            if i == 20:
                m.weight.requires_grad_(False)
            yield g(full(-1 if i % 3 or i < 4 else 1))

    check(scenario)


def test_views_that_are_made_and_looked_at_in_each_call():
    """Objects that do not outlive the call do not matter, and do not keep it from replaying."""
    m = nn.Linear(4, 2)
    g = rote.graph(lambda x: x * m.weight.data.shape[0] * m.weight[0].detach().dim())
    for i in range(8):
        assert torch.equal(g(full(i)), full(i) * 2)
    assert g.report().replayed == 6


@pytest.mark.parametrize("before", [False, True])
def test_validation_of_distributions(before):
    distribution = torch.distributions.Distribution

    def scenario(wrap):
        distribution.set_default_validate_args(before)
        g = wrap(lambda x: torch.distributions.Normal(x, x).log_prob(x))
        for i in range(10):
            if i == 6:
                distribution.set_default_validate_args(not before)
            yield attempt(g, full(-1.0 if i in (5, 7, 8) else 1.0 + i))

    was = distribution._validate_args
    try:
        check(scenario)
    finally:
        distribution.set_default_validate_args(was)


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.scale = 1.0
        self.table = [1.0, 2.0]
        self.names = {"a": 1.0}
        self.register_buffer("offset", torch.zeros(4))

    def forward(self, x):
        return self.inner(x) * self.scale + self.table[0] + self.names["a"] + self.offset


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated")
        yield


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.eval(),
        lambda m: setattr(m, "scale", 5.0),
        lambda m: setattr(m, "table", [5.0, 2.0]),
        lambda m: setattr(m, "names", {"a": 5.0}),
        lambda m: setattr(m, "offset", torch.ones(4)),
        lambda m: setattr(
            list(m.modules())[2], "weight", nn.Parameter(torch.ones(4, 4), requires_grad=False)
        ),
        lambda m: setattr(list(m.modules())[2].weight, "data", torch.ones(4, 4)),
    ],
)
@pytest.mark.parametrize("how", ["scripted", "loaded", "inside"])
@pytest.mark.usefixtures("quiet")
def test_attributes_of_a_scripted_module(change, how):
    def scenario(wrap):
        m = torch.jit.script(Scripted().requires_grad_(False))
        if how == "loaded":
            file = io.BytesIO()
            torch.jit.save(m, file)
            m = torch.jit.load(io.BytesIO(file.getvalue()))
        g = wrap(m if how != "inside" else nn.Sequential(m, nn.ReLU()))
        yield from drive(g, change=lambda: change(m))

    check(scenario)


@pytest.mark.usefixtures("quiet")
def test_a_scripted_module_that_is_left_alone_is_replayed():
    g = rote.graph(torch.jit.script(Scripted().requires_grad_(False)))
    try:
        for i in range(6):
            g(full(i))
        assert g.report().replayed == 4
        g.__wrapped__.table = [5.0, 2.0]
        g(full(1))
        assert "table was 'list(1.0, 2.0)' and is 'list(5.0, 2.0)'" in g.explain()
    finally:
        g.reset()


def test_a_member_of_an_enumeration_is_named():
    class Mode(enum.Enum):
        IDLE = 0
        MOVE = 1

    held = types.SimpleNamespace(mode=Mode.IDLE)
    g = rote.graph(lambda x: x if held.mode is Mode.IDLE else x * 2)
    try:
        for i in range(4):
            g(full(i))
        held.mode = Mode.MOVE
        g(full(5))
        assert "held.mode was <Mode.IDLE: 0> and is <Mode.MOVE: 1>" in g.explain()
    finally:
        g.reset()
