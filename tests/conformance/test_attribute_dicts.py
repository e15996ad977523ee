"""Classes whose attributes lie in a container, by functions of C in the place of their methods."""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict, UserDict

import pytest
import torch

import rote


class ByItems(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class ByGet(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


class Ordered(OrderedDict):
    __getattr__ = OrderedDict.__getitem__

    def __setattr__(self, name, value):
        self[name] = value


class ItsOwn(dict):
    def __init__(self, **values):
        super().__init__(**values)
        self.__dict__ = self


class Caching(dict):
    """No function at all."""

    @functools.lru_cache(None)  # noqa: B019
    def __getattr__(self, name):
        return HELD[name]

    __hash__ = object.__hash__


class Asked(dict):
    __getattr__ = operator.methodcaller("__getitem__", "scale")  # pyright: ignore


class Forwarded(UserDict):
    def __getattr__(self, name):
        return self.__dict__["data"][name]


HELD = {"scale": 2.0}
KINDS = [ByItems, ByGet, Ordered, ItsOwn, Forwarded]


def assert_equal(g, program, *args):
    torch.testing.assert_close(g(*args), program(*args), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["item", "inner", "absent"])
def test_what_lies_there_is_read(device, kind, how):
    config = kind(scale=2.0, inner=kind(more=3.0))
    inner = dict.__getitem__(config, "inner") if issubclass(kind, dict) else config["inner"]

    def program(x):
        kept = getattr(config, "other", None) if kind not in (ByItems, Ordered, Forwarded) else None
        return x * config.scale * config.inner.more * (2.0 if kept else 1.0)

    g = rote.graph(program)
    x = torch.arange(3.0, device=device)
    for _ in range(4):
        assert_equal(g, program, x)
    assert g.report().replayed == 2
    if how == "item":
        kind.__setitem__(config, "scale", 5.0)
    elif how == "inner":
        kind.__setitem__(inner, "more", 7.0)
    else:
        kind.__setitem__(config, "other", 1.0)
    for _ in range(3):
        assert_equal(g, program, x)


@pytest.mark.parametrize("kind", [ByItems, ByGet, Ordered, ItsOwn])
def test_what_is_written_there_is_an_effect(device, kind):
    plain, graphed = kind(count=0), kind(count=0)

    def program(config, x):
        config.count = config.count + 1
        return x * config.count

    g = rote.graph(functools.partial(program, graphed))
    x = torch.ones(3, device=device)
    for _ in range(6):
        torch.testing.assert_close(g(x), program(plain, x), rtol=0, atol=0)
    assert dict(plain) == dict(graphed) == {"count": 6}


@pytest.mark.parametrize("kind", [ByItems, ByGet, Ordered, ItsOwn])
def test_one_that_the_call_makes_replays(device, kind):
    def program(x):
        made = kind(scale=2.0)
        made.more = x * made.scale
        return made.more + made["more"]

    g = rote.graph(program)
    for _ in range(4):
        assert_equal(g, program, torch.ones(3, device=device))
    assert g.report().replayed == 2


def test_one_made_by_the_call_says_nothing_of_others(device):
    config = ByItems(scale=2.0)

    def program(x):
        return x * sum(each.scale for each in (ByItems(scale=1.0), config))

    g = rote.graph(program)
    for count in range(8):
        config["scale"] = 2.0 if count < 4 else 6.0
        assert_equal(g, program, torch.ones(3, device=device))


@pytest.mark.parametrize("kind", [Caching, Asked])
def test_what_is_no_function(device, kind):
    config = kind(scale=2.0)

    def program(x):
        return x * config.scale

    g = rote.graph(program)
    x = torch.ones(3, device=device)
    if kind is Asked:  # it is not bound to the object
        for _ in range(2):
            with pytest.raises((AttributeError, TypeError)):
                program(x)
            with pytest.raises((AttributeError, TypeError)):
                g(x)
        return
    for count in range(8):
        HELD["scale"] = 2.0 if count < 4 else 7.0
        if count == 6:
            Caching.__getattr__.cache_clear()
        assert_equal(g, program, x)
    HELD["scale"] = 2.0
    Caching.__getattr__.cache_clear()


class Sharing:
    pass


SHARED = {"scale": 2.0, "count": 0.0}


def _by_statement(value, name, new):
    value.__dict__ = new


@pytest.mark.parametrize("share", [_by_statement, setattr, object.__setattr__])
def test_one_made_by_the_call_whose_attributes_lie_outside(device, share):
    def program(x):
        sharing, own = Sharing(), Sharing()
        share(sharing, "__dict__", SHARED)
        own.scale, own.count = 3.0, 1.0
        sharing.count = sharing.scale
        return x * own.scale * sharing.scale

    g = rote.graph(program)
    x = torch.ones(3, device=device)
    for count in range(8):
        SHARED.update(scale=2.0 if count < 5 else 7.0, count=0.0)
        assert g(x)[0].item() == 3.0 * SHARED["scale"]
        assert SHARED["count"] == SHARED["scale"]
    SHARED.update(scale=2.0, count=0.0)


class Borg:
    """One state for all instances, as libraries keep theirs (accelerate's ``PartialState``)."""

    shared = {"scale": 2.0}  # noqa: RUF012

    def __init__(self):
        self.__dict__ = self.shared


@pytest.mark.parametrize("how", ["by its name", "by another instance", "another dict", "in two turns"])
def test_attributes_that_all_instances_share(device, monkeypatch, how):
    other = {"scale": 5.0}
    monkeypatch.setattr(Borg, "shared", {"scale": 2.0})

    def program(x):
        made = Borg()
        y = x * made.scale
        if how == "in two turns":
            made.__dict__ = other
        return y * made.scale

    g = rote.graph(program)
    x = torch.arange(3.0, device=device)
    for count in range(8):
        if count == 5 and how == "by its name":
            Borg.shared["scale"] = 7.0
        if count == 5 and how == "by another instance":
            Borg().scale = 7.0
        if count == 5 and how == "another dict":
            Borg.shared = {"scale": 7.0}
        if count == 5 and how == "in two turns":
            other["scale"] = 7.0
        assert_equal(g, program, x)
    assert g.report().replayed >= 3 or how == "in two turns", g.explain()


@pytest.mark.parametrize("where", ["result", "attribute", "list", "dict"])
def test_each_call_makes_another_instance(device, where):
    kept = Sharing()
    kept.seen, kept.by, kept.last = [], {}, None

    def program(x):
        made = Borg()
        if where == "attribute":
            kept.last = made
        elif where == "list":
            kept.seen.append(made)
        elif where == "dict":
            kept.by["last"] = made
        return (x * made.scale, made) if where == "result" else x * made.scale

    g = rote.graph(program)
    found = []
    for _ in range(6):
        result = g(torch.ones(2, device=device))
        found += [{"result": result[-1], "attribute": kept.last, "list": kept.seen, "dict": kept.by}[where]]
        found[-1] = found[-1][-1] if where == "list" else found[-1]["last"] if where == "dict" else found[-1]
    assert len({id(each) for each in found}) == 6 and all(type(each) is Borg for each in found)


def test_which_instance_it_is(device):
    first = Borg()

    def program(x):
        return x * (1.0 if Borg() is first else 2.0)

    g = rote.graph(program)
    for _ in range(5):
        assert_equal(g, program, torch.ones(2, device=device))
