"""Batches as TensorDict and PyTorch Geometric make them: a fresh one in each call, opened by what is read."""

from __future__ import annotations

import copy
import weakref
from collections.abc import MutableMapping
from typing import Any

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 10


class Store(MutableMapping[str, Any]):
    """Members in a mapping, attributes by ``__getattr__``, and a weak reference to who holds it."""

    def __init__(self, mapping=None, parent=None, **given):
        self.__dict__["_mapping"] = {}
        self.__dict__["_parent"] = weakref.ref(parent) if parent is not None else None
        for key, value in {**(mapping or {}), **given}.items():
            self[key] = value

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __getitem__(self, key):
        return self._mapping[key]

    def __setitem__(self, key, value):
        self._mapping[key] = value

    def __delitem__(self, key):
        del self._mapping[key]

    def __iter__(self):
        return iter(self._mapping)

    def __len__(self):
        return len(self._mapping)

    def apply(self, function):
        for key, value in self.items():
            self[key] = function(value)
        return self


class Graph:
    """As ``torch_geometric.data.Data``."""

    def __init__(self, **given):
        self.__dict__["_store"] = Store(parent=self)
        for key, value in given.items():
            setattr(self._store, key, value)

    def __getattr__(self, name):
        if "_store" not in self.__dict__:
            raise RuntimeError("made by an older version")
        return getattr(self._store, name)

    def __setattr__(self, name, value):
        setattr(self._store, name, value)

    def __getitem__(self, key):
        return self._store[key]

    def __contains__(self, key):
        return key in self.keys()

    def __call__(self, *keys):
        yield from ((key, self._store[key]) for key in keys or self.keys())

    def keys(self):
        return list(self._store.keys())

    def to(self, device):
        self._store.apply(lambda value: value.to(device) if isinstance(value, torch.Tensor) else value)
        return self

    @property
    def number(self):
        return self._store._parent().x.shape[0]


class Tensors(MutableMapping[str, Any]):
    """As ``tensordict.TensorDict``."""

    def __init__(self, source, batch_size, device=None):
        self._tensors: dict[str, Any] = {}
        self._size, self._device, self._locked = torch.Size(batch_size), device, False
        for key, value in source.items():
            self[key] = Tensors(value, batch_size) if isinstance(value, dict) else value

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is not torch.stack:
            return NotImplemented
        first = args[0][0]
        return cls({key: torch.stack([each[key] for each in args[0]]) for key in first}, [len(args[0])])

    @property
    def batch_size(self):
        return self._size

    def __getitem__(self, key):
        if isinstance(key, tuple):
            return self._tensors[key[0]][key[1]]
        return self._tensors[key]

    def __setitem__(self, key, value):
        if self._locked:
            raise RuntimeError("locked")
        self._tensors[key] = value

    def __delitem__(self, key):
        del self._tensors[key]

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def get(self, key, default=None):
        return self._tensors.get(key, default)

    def set(self, key, value):
        self[key] = value
        return self

    def clone(self):
        return Tensors({key: value.clone() for key, value in self.items()}, self._size, self._device)

    def to(self, device):
        return Tensors({key: value.to(device) for key, value in self.items()}, self._size, device)


def graph(n, device):
    x = torch.arange(8.0, device=device).view(4, 2) + n
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]], device=device)
    return Graph(x=x, edge_index=edges, y=x.sum(1), kind="small")


def tensors(n, device):
    x = torch.arange(6.0, device=device).view(2, 3) + n
    return Tensors({"x": x, "inner": {"y": x * 2}}, [2])


def state_of(value: Any) -> Any:
    if isinstance(value, (Graph, Store, Tensors)):
        held = {name: each for name, each in vars(value).items() if name != "_parent"}
        return [type(value).__name__, state_of(held)]
    if isinstance(value, dict):
        return [(key, state_of(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return [state_of(each) for each in value]
    return value


def message_passing(d):
    source, target = d.edge_index
    return torch.zeros_like(d.x).index_add(0, target, d.x[source])


GRAPHS: dict[str, Any] = {
    "attribute": lambda d: d.x * 2,
    "several": message_passing,
    "item": lambda d: d["x"] * d["y"][:, None],
    "keys": lambda d: d.x * len(d.keys()),
    "in": lambda d: d.x * (2 if "pos" in d else 3),
    "called": lambda d: [value * 2 for _, value in d("x", "y")],
    "plain": lambda d: d.x * (2 if d.kind == "small" else 3),
    "absent": lambda d: d.x * (2 if getattr(d, "pos", None) is None else 3),
    "moved": lambda d: d.to("cpu").x.to(d.x.device) * 2,
    "written": lambda d: (setattr(d, "z", d.x * 2), d.z + 1)[1],
    "made": lambda d: Store(x=d.x * 2, n=1),
}
TENSORS: dict[str, Any] = {
    "item": lambda d: d["x"] * 2,
    "nested": lambda d: d["inner", "y"] * d["inner"]["y"],
    "get": lambda d: d.get("x") * d.get("none", 2.0),
    "set": lambda d: d.set("z", d["x"] * 2)["z"] + 1,
    "keys": lambda d: [d[key] * 2 for key in d if key != "inner"],
    "size": lambda d: d["x"] * d.batch_size[0],
    "clone": lambda d: d["inner"].clone()["y"] + 1,
    "to": lambda d: d["inner"].to(d["x"].device)["y"] + 1,
    "stack": lambda d: torch.stack([d["inner"], d["inner"].clone()])["y"] + 1,
    "made": lambda d: Tensors({"x": d["x"] * 2}, d.batch_size),
    "itself": lambda d: d.set("x", d["x"] * 2),
    "spread": lambda d: {**d}["x"] + 1,
}
PROGRAMS = [
    *[pytest.param(graph, fn, id=f"graph-{name}") for name, fn in GRAPHS.items()],
    *[pytest.param(tensors, fn, id=f"tensors-{name}") for name, fn in TENSORS.items()],
]


def play(make, fn, device, calls=CALLS, change=lambda made, n: None, **options):
    g, held = rote.graph(fn, **options), []
    for n in range(calls):
        ours, theirs = make(n, device), make(n, device)
        change(ours, n)
        change(theirs, n)
        got, wanted = g(ours), fn(theirs)
        assert_same(state_of(got), state_of(wanted))
        assert_same(state_of(ours), state_of(theirs))
        assert (got is ours) == (wanted is theirs)
        held.append((got, copy.deepcopy(state_of(got))))
    for got, then in held:
        assert_same(state_of(got), then)
    return g


@pytest.mark.parametrize(("make", "fn"), PROGRAMS)
def test_a_fresh_one_in_each_call(device, make, fn):
    g = play(make, fn, device)
    assert g.report().replayed >= CALLS - 5, g.explain()


@pytest.mark.parametrize("name", ["moved", "written"])
def test_writes_are_verified(device, name):
    g = play(graph, GRAPHS[name], device, verify=2)
    assert g.report().verified >= 2, g.explain()


def test_what_is_read_may_differ(device):
    """A plain value, a key that comes, another size."""

    def change(made, n):
        if n % 4 == 3:
            made.kind = "large"
        if n >= 16:
            made.pos = made.x * 5

    def fn(d):
        return d.x * (2 if d.kind == "small" else 3) + (d.pos if "pos" in d else 0)

    g = play(graph, fn, device, 40, change)
    assert g.report().replayed >= 15, g.explain()


def test_a_function_of_its_own_for_torch(device):
    """What ``__torch_function__`` reads of its operands is read like anything else."""

    class Scaled:
        def __init__(self, x, scale):
            self.x, self.scale = x, scale

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function(*[each.x * each.scale if isinstance(each, cls) else each for each in args])

    g = rote.graph(lambda s: torch.add(s, 1.0))
    for n in range(30):
        s = Scaled(torch.full((3,), float(n), device=device), 2.0 if n < 12 or n % 2 else 3.0)
        assert torch.equal(g(s), s.x * s.scale + 1)


def test_who_holds_it(device):
    """A store leads back to the batch of that very call, and not to another one."""
    known = graph(1, device)

    def change(made, n):
        if n % 3 == 2:
            made._store.__dict__["_parent"] = weakref.ref(known)

    play(graph, lambda d: d.x * 2 + d._store._parent().x.sum(), device, 24, change)
    play(graph, lambda d: d.x * d.number, device)
