"""Plain Python values that the code reads: frozen in a recording, and watched."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from collections import OrderedDict, defaultdict, deque

import pytest
import torch
from torch import nn

import rote
from rote.testing import count_recordings

WARM = rote.Options().warmup + 1


def test_a_plain_value_that_the_code_reads(device, reason):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0
            self.options = {"bias": 1.0, "deep": [0.5]}

        def forward(self, x):
            return x * self.scale + self.options["bias"] + self.options["deep"][0]

    model = Model()
    g, x = rote.graph(model), torch.ones(2, device=device)

    def settle():
        for _ in range(WARM + 1):
            assert torch.equal(g(x), model(x))

    settle()
    model.scale = 3.0
    settle()
    model.options["bias"] = 4.0
    settle()
    model.options["deep"][0] = 8.0
    settle()
    texts = {item.message for item in g.report().reasons if item.code == "RT302"}
    assert "Model.scale was 2.0 and is 3.0" in texts or len(texts) == 1
    assert count_recordings(g) == 4


def test_a_closure_cell(device):
    scale = 2.0

    def fn(x):
        return x * scale

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for value in (2.0, 3.0, 2.0, 5.0):
        scale = value
        for _ in range(WARM + 1):
            assert g(x).tolist() == [value, value]
    assert count_recordings(g) == 3


SCALE = 2.0


def test_a_global(device):
    global SCALE
    g, x = rote.graph(lambda x: x * SCALE), torch.ones(2, device=device)
    try:
        for value in (2.0, 3.0, 2.0):
            SCALE = value
            for _ in range(WARM + 1):
                assert g(x).tolist() == [value, value]
    finally:
        SCALE = 2.0
    assert count_recordings(g) == 2


def test_a_default_argument_and_a_class_attribute(device):
    class Config:
        scale = 2.0

    def fn(x, by=[3.0]):  # noqa: B006
        return x * by[0] * Config.scale

    g, x = rote.graph(fn), torch.ones(1, device=device)
    for scale, by in ((2.0, 3.0), (4.0, 3.0), (4.0, 5.0)):
        Config.scale, fn.__defaults__[0][0] = scale, by
        for _ in range(WARM + 1):
            assert g(x).item() == scale * by


class Maker(OrderedDict):
    """Makes what is asked for, as the tables of activations of transformers do."""

    def __getitem__(self, key):
        return super().__getitem__(key)()


class Doubling(list):
    """Gives other values than it holds, and new ones each time."""

    def __getitem__(self, index):
        return [2 * super().__getitem__(index)]

    def __iter__(self):
        return iter([self[index] for index in range(len(self))])


class Wrapping(dict):
    """Gives new lists as its values."""

    def items(self):
        return [(key, [value]) for key, value in super().items()]

    def values(self):
        return [[value] for value in super().values()]


def make_new():
    table, listed = Maker(gelu=nn.GELU, relu=nn.ReLU), Doubling([1.0, 2.0])
    mapped = Wrapping(a=3.0, b=4.0)

    def fn(x):
        return table["relu"](x) * listed[1][0] + mapped["a"]

    return fn, {
        "a table that makes modules": lambda: table.update(relu=nn.GELU),
        "a list that gives other values": lambda: list.__setitem__(listed, 1, 3.0),
        "a dict whose values are made": lambda: mapped.update(a=5.0),
    }


@pytest.mark.parametrize("what", sorted(make_new()[1]))
def test_containers_that_make_what_they_give(device, what):
    fn, changes = make_new()
    g, x = rote.graph(fn), torch.randn(4, device=device)
    for _ in range(WARM + 4):
        assert torch.equal(g(x), fn(x))
    assert g.report().replayed == 4, g.explain()
    changes[what]()
    for _ in range(WARM + 1):
        assert torch.equal(g(x), fn(x))
    assert g.report().replayed == 5 and count_recordings(g) == 2


@pytest.mark.parametrize("size", [3, 100])
def test_to_look_at_a_table_makes_nothing_in_it(device, size):
    table = defaultdict(lambda: 7.0, {f"k{n}": float(n) for n in range(size)})

    def fn(x):
        return x * table["k1"]

    g, x = rote.graph(fn), torch.randn(4, device=device)
    for _ in range(WARM + 4):
        assert torch.equal(g(x), fn(x))
    assert g.report().replayed == 4
    del table["k0"]
    table["other"] = 1.0
    assert torch.equal(g(x), fn(x))
    assert "k0" not in table and len(table) == size
    table["k1"] = 3.0
    assert torch.equal(g(x), x * 3.0)


def test_a_deque_and_a_table_with_defaults_that_hold_tensors(device):
    kept = deque([torch.ones(2, device=device)], maxlen=2)
    table = defaultdict(list, a=[torch.ones(2, device=device)])

    def fn(x):
        return x * kept[-1] + table["a"][0]

    g, x = rote.graph(fn), torch.randn(2, device=device)
    left: list[int] = []
    for change in (int, lambda: kept.append(torch.zeros(2, device=device)),
                   lambda: table.update(a=[torch.zeros(2, device=device)])):  # fmt: skip
        change()
        for _ in range(WARM + 2):
            assert torch.equal(g(x), fn(x))
        left.append(count_recordings(g))
    assert g.report().replayed == 6
    assert left == [1, 2, 1]  # both recordings read the tensor of the table, which is gone


class Shade(enum.Enum):
    DARK = 1


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (lambda: frozenset({"n", 1, 2.0}), lambda: frozenset({"n", 1, 3.0})),
        (lambda: [frozenset({frozenset({1}), Shade.DARK})], lambda: [frozenset({frozenset({1})})]),
        (lambda: fractions.Fraction(1, 2), lambda: fractions.Fraction(1, 3)),
        (lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00")),
        (lambda: datetime.datetime(2020, 1, 1), lambda: datetime.datetime(2020, 1, 1, fold=1)),
        (lambda: datetime.timedelta(1), lambda: datetime.timedelta(2)),
        (lambda: pathlib.Path("/tmp"), lambda: pathlib.Path("/var")),
        (lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2)),
        (lambda: torch.finfo(torch.float32), lambda: torch.finfo(torch.float64)),
    ],
)
def test_objects_that_are_known_by_their_value(device, value, other, reason):
    """Made anew for each call."""
    g = rote.graph(lambda x, what: x * len(str(what)))
    x = torch.ones(2, device=device)
    for number in range(16):
        what = other() if number % 4 == 3 else value()
        assert torch.equal(g(x, what), x * len(str(what))), f"call {number}"
    assert g.report().replayed == 12, g.explain()
    text = reason(g, "RT306").message
    assert " was " in text and "another one" not in text


def test_a_set_of_objects_is_known_by_its_identity(device, reason):
    class Own:
        pass

    g = rote.graph(lambda x, what: x * len(what))
    x, kept = torch.ones(2, device=device), []
    for _ in range(6):
        kept.append(frozenset({Own()}))
        g(x, kept[-1])
    assert g.report().replayed == 0 and "another one" in reason(g, "RT306").message


def test_an_argument_that_is_gone_is_told(device):
    """The next one may come to lie where it lay, and has the same key."""

    class Own:
        def __del__(self):  # it is known by its identity for good
            pass

    g = rote.graph(lambda x, what: x * 2)
    for _ in range(6):
        g(torch.ones(2, device=device), Own())
    told = [why for why in g.report().reasons if why.code == "RT306"]
    assert sum(why.count for why in told) == 5 and all("args[1]" in why.message for why in told), g.explain()
