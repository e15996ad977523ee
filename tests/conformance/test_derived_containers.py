"""Classes derived from dict, list and tuple, among the arguments and in results."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter, OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 9


class Batch(dict):
    """As libraries of data have them."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value

    def moved(self):
        return Batch({key: value * 2 for key, value in self.items()})


class Plain(dict):
    pass


class Ordered(OrderedDict):
    pass


class Attributes(dict):
    """Members, and attributes beside them."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.scale, self.unread = 2.0, "text"


class Odd(dict):
    """Answers otherwise than it holds."""

    def __getitem__(self, key):
        return dict.__getitem__(self, key) * 3

    def __missing__(self, key):
        return 1.0

    def __setitem__(self, key, value):
        dict.__setitem__(self, key.lower(), value)

    def __iter__(self):
        return iter(sorted(dict.keys(self)))


class Listed(list):
    scale = 2.0

    @property
    def first(self):
        return self[0]


class Tupled(tuple):
    @property
    def first(self):
        return self[0]


class Slotted(tuple):
    __slots__ = ()


class Inherited(Batch):
    extra = 1.0


@dataclasses.dataclass
class Output(OrderedDict):
    """As the outputs of transformers' models."""

    logits: Any = None
    states: Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else tuple(self.values())[key]


class Point(NamedTuple):
    x: Any
    y: Any

    def total(self):
        return self.x + self.y


def tensor(number: int, device: Any) -> torch.Tensor:
    return torch.full((3,), float(number), device=device)


def state_of(value: Any) -> Any:
    """All that something holds, its classes and attributes included, in order."""
    attributes = [(name, state_of(each)) for name, each in getattr(value, "__dict__", {}).items()]
    if isinstance(value, dict):
        held: Any = [(key, state_of(each)) for key, each in [*dict.items(value)]]
        if isinstance(value, OrderedDict):
            held = [(key, state_of(dict.__getitem__(value, key))) for key in OrderedDict.__iter__(value)]
        return [type(value).__name__, held, attributes]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [state_of(each) for each in value], attributes]
    return value if isinstance(value, (torch.Tensor, float, int, str, type(None))) else type(value).__name__


def play(function: Any, make: Any, calls: int = CALLS, **options: Any) -> Any:
    """Calls with fresh arguments, graphed beside plain ones; returns the graphed callable."""
    g, held = rote.graph(function, **options), []
    for number in range(calls):
        ours, theirs = make(number), make(number)
        wanted, got = function(ours_or(theirs)), g(ours_or(ours))
        assert_same(state_of(got), state_of(wanted))
        assert_same(state_of(ours), state_of(theirs))
        assert (got is ours) == (wanted is theirs)
        held.append(ours)
    return g


def ours_or(value: Any) -> Any:
    return value


DICTS = [Batch, Plain, Ordered, Attributes, Inherited, Odd]
READS: dict[str, Any] = {
    "item": lambda b: b["x"] * 2 + b["y"],
    "get": lambda b: b.get("x") * 2 + b.get("none", 1.0),
    "in": lambda b: b["x"] * (2 if "none" in b else 3),
    "values": lambda b: sum(b.values()),
    "items": lambda b: [value * len(key) for key, value in b.items()],
    "loop": lambda b: [key for key in b] + [b["x"] + 1],
    "len": lambda b: b["x"] * len(b),
    "truth": lambda b: b["x"] if b else 0,
    "spread": lambda b: {**b}["x"] + 1,
    "dict": lambda b: dict(b)["x"] + 1,
    "keywords": lambda b: _named(**b),
    "or": lambda b: (b | {"z": 1.0})["x"] + 1,
    "copy": lambda b: b.copy()["x"] + 1,
    "copied": lambda b: copy.copy(b)["x"] + 1,
    "isinstance": lambda b: b["x"] * (2 if isinstance(b, dict) and type(b) is not dict else 3),
    "class": lambda b: b["x"] + len(type(b).__name__),
    "keys": lambda b: b["x"] * len(sorted(b.keys())),
    "equal keys": lambda b: b["x"] * (2 if b.keys() == {"x", "y"} else 3),
    "get attribute": lambda b: b["x"] * getattr(b, "scale", 3.0),
}


def _named(x, y):
    return x + y


@pytest.mark.parametrize(
    ("kind", "read"),
    [*((kind, "item") for kind in DICTS), *((Odd, read) for read in READS if read != "item")],
)
def test_a_dict(device, kind, read):
    g = play(READS[read], lambda n: kind(x=tensor(n, device), y=tensor(n + 1, device)))
    assert g.report().replayed >= CALLS - 6, g.explain()


def test_what_it_holds_is_in_the_key(device):
    """Other members, another order, other values, keys that are equal and not the same."""

    def fn(b):
        return [*b.keys(), b["x"] * b["k"]]

    def make(n):
        pairs = [("x", tensor(n, device)), ("k", (2, 2.0, True)[n % 3]), (1 if n % 2 else True, None)]
        return Plain(pairs if n % 4 else pairs[::-1])

    g = rote.graph(fn)
    for n in range(60):
        found, wanted = g(make(n)), fn(make(n))
        assert_same(found, wanted)
        assert [*map(type, found)] == [*map(type, wanted)]
    assert g.report().replayed >= 10, g.explain()


def test_an_attribute_that_changes(device):
    def make(n):
        made = Attributes(x=tensor(n, device))
        made.scale = 2.0 if n < 8 else 5.0
        return made

    g = play(lambda b: b["x"] * b.scale, make, 16)
    assert g.report().replayed >= 6, g.explain()


def test_another_class(device):
    g = play(
        lambda b: b["x"] * getattr(b, "extra", 2.0),
        lambda n: (Batch if n % 2 else Inherited)(x=tensor(n, device)),
        16,
    )
    assert g.report().replayed >= 6, g.explain()


@pytest.mark.parametrize("read", ["item", "first", "loop", "len", "sum", "sliced", "reversed", "scaled"])
def test_a_list(device, read):
    function = {
        "item": lambda b: b[0] * 2 + b[-1],
        "first": lambda b: b.first * 2,
        "loop": lambda b: [each * 2 for each in b],
        "len": lambda b: b[0] * len(b),
        "sum": lambda b: sum(b),
        "sliced": lambda b: torch.stack(b[:2]),
        "reversed": lambda b: [*reversed(b)],
        "scaled": lambda b: b[0] * b.scale,
    }[read]
    g = play(function, lambda n: Listed([tensor(n, device), tensor(n + 1, device)]))
    assert g.report().replayed >= CALLS - 5, g.explain()


def make_both(n, device):
    return Batch(x=tensor(n, device), y=tensor(n + 1, device))


def write_item(b):
    b["z"] = b["x"] * 2
    return b["z"] + 1


def write_attribute(b):
    b.z = b.x * 2
    return b


def take_away(b):
    return b.pop("y") + b["x"]


def refill(b):
    y = b["y"] + 1
    b.clear()
    b.update(first=y, second=[y * 2, "text"])
    return y


def delete(b):
    del b["y"]
    return b["x"] * 2


WRITES = [write_item, write_attribute, take_away, refill, delete]


@pytest.mark.parametrize("verify", [None, 2])
@pytest.mark.parametrize("write", WRITES)
def test_writes(device, write, verify):
    options = {} if verify is None else {"verify": verify}
    g = play(write, lambda n: make_both(n, device), 12, **options)
    assert g.report().replayed >= 4, g.explain()


@pytest.mark.parametrize("verify", [None, 2])
def test_writes_to_a_list(device, verify):
    def fn(b):
        b.append(b[0] * 2)
        b[0] = b[-1] + 1
        return b

    options = {} if verify is None else {"verify": verify}
    g = play(fn, lambda n: Listed([tensor(n, device)]), 12, **options)
    assert g.report().replayed >= 4, g.explain()


RESULTS: dict[str, Any] = {
    "batch": lambda x: Batch(x=x * 2, y=x + 1),
    "plain": lambda x: Plain(x=x * 2, n=1),
    "ordered": lambda x: Ordered(b=x * 2, a=x + 1),
    "attributes": lambda x: [Attributes(x=x * 2)["x"], Plain({1: x, "k": Batch(z=x + 1)})],
    "odd": lambda x: Odd(x=x * 2),
    "list": lambda x: Listed([x * 2, x]),
    "tuple": lambda x: Tupled((x * 2, x)),
    "slotted": lambda x: Slotted((x * 2, x)),
    "nested": lambda x: {"inner": Batch(list=Listed([Tupled([x * 2])]))},
    "output": lambda x: Output(logits=x * 2, states=(x, x + 1)),
    "moved": lambda x: Batch(x=x, y=x + 1).moved(),
    "twice": lambda x: (lambda b: [b, b, b["x"]])(Batch(x=x * 2)),
    "point": lambda x: Point(x * 2, x)._replace(x=x + 1),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(device, name):
    function, held = RESULTS[name], []
    g = rote.graph(function)
    for n in range(CALLS):
        x = tensor(n, device)
        got, wanted = g(x), function(x)
        assert_same(state_of(got), state_of(wanted))
        if name == "twice":
            assert got[0] is got[1] and got[0]["x"] is got[2]
        held.append((got, copy.deepcopy(state_of(got))))
    for got, then in held:
        assert_same(state_of(got), then)
    assert g.report().replayed >= CALLS - 4, g.explain()


def test_an_output_is_handed_on(device):
    """A hook that changes what a layer has returned."""

    def fn(o):
        o["logits"] = o["logits"] * 2
        return Output(logits=o["logits"] + 1, states=o["states"])

    g = play(fn, lambda n: Output(logits=tensor(n, device), states=(tensor(1, device),)), 12)
    assert g.report().calls == 12


def test_methods_of_a_named_tuple(device):
    def fn(p):
        q = p._replace(x=p.total())
        return Point(q.total(), q._asdict()["y"])

    g = play(fn, lambda n: Point(tensor(n, device), tensor(n + 1, device)))
    assert g.report().replayed >= CALLS - 3, g.explain()


def test_gradients(device):
    layers = [torch.nn.Linear(3, 2).to(device) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())

    def fn(layer):
        return lambda b: Batch(out=layer(b["x"]) * b.y, kept=b)

    g, h = rote.graph(fn(layers[0])), fn(layers[1])
    for n in range(CALLS):
        batch = make_both(n, device)
        batch["y"] = tensor(1, device)[:2]
        ours, theirs = g(batch), h(batch)
        assert ours.kept is batch
        assert torch.equal(ours.out, theirs.out)
        for result in (ours, theirs):
            result.out.sum().backward()
        assert torch.equal(layers[0].weight.grad, layers[1].weight.grad)
    assert g.report().replayed >= CALLS - 5, g.explain()


# ---------------------------------------------------------------------- what is none of these


def test_one_object_in_every_call(device):
    """State of the caller, which it changes in between."""
    batch = Batch(x=tensor(1, device), k=2.0)
    g = rote.graph(lambda b: b["x"] * b["k"])
    for n in range(16):
        if n == 8:
            batch["k"] = 3.0
        if n == 12:
            batch["x"] = tensor(5, device)
        assert torch.equal(g(batch), batch["x"] * batch["k"])
    assert g.report().replayed >= 6, g.explain()


def test_the_same_one_twice(device):
    def fn(a, b):
        a["z"] = a["x"] * 2
        return b.get("z", b["x"]) + 1

    g = rote.graph(fn)
    for n in range(24):
        ours, theirs = (
            [Batch(x=tensor(n, device)) for _ in range(2)],
            [Batch(x=tensor(n, device)) for _ in range(2)],
        )
        if n % 3 == 2:
            ours[1], theirs[1] = ours[0], theirs[0]
        assert torch.equal(g(*ours), fn(*theirs))
        assert_same([*map(state_of, ours)], [*map(state_of, theirs)])


def test_which_object_it_is(device):
    known = Batch(x=tensor(1, device))
    g = rote.graph(lambda b: b["x"] * (2 if b is known else 3))
    for n in range(16):
        batch = known if n % 4 == 3 else Batch(x=tensor(n, device))
        assert torch.equal(g(batch), batch["x"] * (2 if batch is known else 3))


def counted(x):
    made = Counter(a=1)
    made["x"] = x
    return made


@pytest.mark.parametrize("make", [
    counted, lambda x: defaultdict(float, x=x), lambda x: Odd({"x": x}),
])  # fmt: skip
def test_what_is_missing(device, make):
    def fn(b):
        return b["x"] + b["none"]

    g = rote.graph(fn)
    for n in range(CALLS):
        ours, theirs = make(tensor(n, device)), make(tensor(n, device))
        assert torch.equal(g(ours), fn(theirs))
        assert_same(state_of(ours), state_of(theirs))


def test_an_exception_after_a_write(device):
    def fn(b):
        b["z"] = b["x"] * 2
        if b["x"].sum() > 20:
            raise ValueError("too large")
        return b

    g = rote.graph(fn)
    held = []
    for n in range(20):
        value = 20.0 if n % 5 == 4 else n / 10
        ours, theirs = Batch(x=tensor(1, device) * value), Batch(x=tensor(1, device) * value)
        for function, batch in ((g, ours), (fn, theirs)):
            if value == 20:
                with pytest.raises(ValueError, match="too large"):
                    function(batch)
            else:
                assert function(batch) is batch
        assert_same(state_of(ours), state_of(theirs))
        held.append((ours, theirs))
    for ours, theirs in held:
        assert_same(state_of(ours), state_of(theirs))
