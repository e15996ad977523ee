"""Results that are, or hold, objects of the state: that very object, with what it holds after the call.

Programs are made of a place where the object lies, a kind of object, what the call does to it, the form of
the result, and what the caller does between calls. Each is played plainly and graphed; after each step the
results so far and the state are compared, with which of all these objects are one.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random
import weakref
from collections import OrderedDict, defaultdict, deque
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from tests.clock import set_costs

import rote

CALLS = 8
PLACES = {"n": 0, "t": 1, "more": 2}
"""Where a sequence has what others have under a name: a number, a tensor, a list."""


class Box:
    def __init__(self, **given):
        self.__dict__.update(given)


class Slim:
    __slots__ = ("__weakref__", "more", "n", "t")

    def __init__(self, n, t, more):
        self.n, self.t, self.more = n, t, more


class Dying(Box):
    def __del__(self):
        pass


class Listed(list[Any]):
    pass


class Pair(NamedTuple):
    n: Any
    t: Any
    more: Any


@dataclasses.dataclass
class Data:
    n: Any
    t: Any
    more: Any


KINDS = {
    "list": lambda **held: [*held.values()],
    "dict": dict,
    "deque": lambda **held: deque(held.values(), maxlen=8),
    "ordered": OrderedDict,
    "default": lambda **held: defaultdict(list, held),
    "tuple": lambda **held: (*held.values(),),
    "named": Pair,
    "object": Box,
    "slots": Slim,
    "dying": Dying,
    "data": Data,
    "listed": lambda **held: Listed(held.values()),
    "namespace": SimpleNamespace,
}


def get(thing, name):
    if isinstance(thing, (list, tuple, deque)):
        return thing[PLACES[name]]
    return thing[name] if isinstance(thing, dict) else getattr(thing, name)


def put(thing, name, value):
    if isinstance(thing, (list, deque)):
        thing[PLACES[name]] = value
    elif isinstance(thing, dict):
        thing[name] = value
    else:
        setattr(thing, name, value)


# ---------------------------------------------------------------------- where it lies


class Place:
    """A slot: ``find`` is the call's way to what lies in it."""

    def __init__(self, thing):
        self.owner = self.own(thing)
        self.find = self.way(self.owner)

    def own(self, thing):
        return Box(thing=thing)

    def way(self, owner):
        return lambda: owner.thing

    def now(self):
        return self.find()

    def lay(self, thing):
        self.owner.thing = thing


class InMember(Place):
    def own(self, thing):
        return {"inner": [None, thing]}

    def way(self, owner):
        return lambda: owner["inner"][1]

    def lay(self, thing):
        self.owner["inner"][1] = thing


class InTuple(Place):
    def own(self, thing):
        return Box(pair=(0, thing))

    def way(self, owner):
        return lambda: owner.pair[1]

    def lay(self, thing):
        self.owner.pair = (0, thing)


class InVariable(Place):
    def own(self, thing):
        variable = ContextVar("variable")
        variable.set(thing)
        return variable

    def way(self, owner):
        return lambda: owner.get()

    def lay(self, thing):
        self.owner.set(thing)


class InCell(Place):
    def way(self, owner):
        thing = owner.thing

        def lay(other):
            nonlocal thing
            thing = other

        self.lay = lay
        return lambda: thing


class InDefault(Place):
    def way(self, owner):
        def find(thing=owner.thing):
            return thing

        return find

    def lay(self, thing):
        self.find.__defaults__ = (thing,)


class OfMethod(Place):
    def own(self, thing):
        class Owner(Box):
            def find(self):
                return self.thing

        return Owner(thing=thing)

    def way(self, owner):
        return {"way": owner.find}["way"]


class BehindReference(Place):
    def way(self, owner):
        reference = weakref.ref(owner)
        return lambda: reference().thing


HOLDERS = [Place, InMember, InTuple, InVariable, InCell, InDefault, OfMethod, BehindReference]

# ---------------------------------------------------------------------- what the call does


def nothing(thing, x):
    return x * 2


def reads(thing, x):
    return x * get(thing, "n") + get(thing, "t")


def writes_in_place(thing, x):
    get(thing, "t").add_(x)
    return x * 2


def replaces(thing, x):
    put(thing, "t", x * 3)
    put(thing, "n", 4.0)
    return x * 2


def goes_on(thing, x):
    put(thing, "t", get(thing, "t") * 0.5 + x)
    return get(thing, "t") + 1


def adds(thing, x):
    get(thing, "more").append(x.sum())
    return x * 2


def keeps_an_argument(thing, x):
    put(thing, "t", x)
    return x + 1


def counts(thing, x):
    put(thing, "n", get(thing, "n") + 1.0)
    return x * get(thing, "n")


ACTS = [nothing, reads, writes_in_place, replaces, goes_on, adds, keeps_an_argument, counts]

FORMS = {
    "itself": lambda thing, y: thing,
    "beside": lambda thing, y: (y, thing),
    "twice": lambda thing, y: {"a": thing, "b": [y, thing]},
    "member": lambda thing, y: (get(thing, "more"), thing, get(thing, "t"), y),
    "made": lambda thing, y: Box(y=y, thing=thing),
}

# ---------------------------------------------------------------------- what the caller does


def leaves(place, number, make):
    pass


def turns(place, number, make):
    put(place.now(), "n", float(number // 3))


def fills(place, number, make):
    get(place.now(), "more").append(number)
    get(place.now(), "t").mul_(0.5)


def rebinds(place, number, make):
    put(place.now(), "t", torch.full_like(get(place.now(), "t"), float(number)))


def replaces_once(place, number, make):
    if number == CALLS // 2:
        place.lay(make())


def replaces_each(place, number, make):
    place.lay(make())


CALLERS = [leaves, turns, fills, rebinds, replaces_once, replaces_each]


def picture(roots):
    """What lies in some values, and which objects in them are one."""
    seen: dict[int, int] = {}
    held: list[Any] = []

    def drawn(value):
        if isinstance(value, (int, float, str, type(None), type)):
            return value
        if id(value) in seen:
            return f"again {seen[id(value)]}"
        seen[id(value)] = len(seen)
        held.append(value)
        if isinstance(value, torch.Tensor):
            return value.dtype, value.requires_grad, value.tolist()
        if isinstance(value, dict):
            return type(value), [(key, drawn(part)) for key, part in value.items()]
        if isinstance(value, (list, tuple, deque)):
            return type(value), [drawn(part) for part in value]
        names = vars(value) if hasattr(value, "__dict__") else PLACES
        return type(value), [(name, drawn(getattr(value, name))) for name in names]

    return [drawn(root) for root in roots]


def played(case, device, wrap):
    """What shows at each step; None if the program makes no sense."""
    holder, kind, act, form, caller = case

    def make():
        return KINDS[kind](n=1.5, t=torch.full((3,), 2.0, device=device), more=[1.0])

    place = holder(make())
    find, result = place.find, FORMS[form]

    def fn(x):
        thing = find()
        return result(thing, act(thing, x))

    g, seen, held = wrap(fn), [], []
    try:
        for number in range(CALLS):
            held.append(g(torch.full((3,), number + 1.0, device=device)))
            seen.append(picture([*held, place.now()]))
            caller(place, number, make)
            seen.append(picture([*held, place.now()]))
    except (AttributeError, TypeError):  # a tuple has no members to write
        return None, g
    return seen, g


def check(case, device):
    """Play a program twice; returns the graphed callable, if the program makes sense."""
    wanted, _ = played(case, device, lambda fn: fn)
    if wanted is None:
        return None
    found, g = played(case, device, rote.graph)
    assert found is not None, case
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        assert one == other, f"{case} at {number}"
    return g


def turned(count, *parts):
    """Combinations in which each part comes with others each time."""
    strides = (1, 3, 5, 7, 11)
    for number in range(count):
        yield tuple(
            part[(number * stride + number // len(part)) % len(part)]
            for part, stride in zip(parts, strides, strict=True)
        )


@pytest.mark.parametrize(
    "case", list(turned(60, HOLDERS, list(KINDS), ACTS, list(FORMS), CALLERS)),
    ids=lambda case: "-".join([getattr(part, "__name__", part) for part in case]),
)  # fmt: skip
def test_what_is_found_outside_is_handed_out_itself(case, device):
    check(case, device)


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kinds", [list(KINDS)[0::2], list(KINDS)[1::2]], ids=["even", "odd"])
def test_such_calls_replay(holder, kinds, device):
    for kind, act in zip(kinds, itertools.cycle([nothing, adds])):
        g = check((holder, kind, act, "beside", leaves), device)
        assert g.report().replayed >= CALLS - 3, (kind, g.explain())


@pytest.mark.long
def test_any_of_them(device):
    made = random.Random(7)
    parts = HOLDERS, list(KINDS), ACTS, list(FORMS), CALLERS
    for _ in range(400):
        check(tuple(made.choice(part) for part in parts), device)


# ---------------------------------------------------------------------- one by one


def test_a_list_that_the_caller_replaces_each_time_is_read_where_it_lies(device):
    """As the learning rates of a scheduler are: nobody asks what they are."""
    state = Box(rates=[0.5])
    g = rote.graph(lambda x: (x * 2, state.rates))
    for number in range(12):
        assert g(torch.ones(3, device=device))[1] is state.rates
        state.rates = [0.5 / (number + 1)]
    assert g.report().replayed >= 9, g.explain()


def test_objects_that_lie_in_one_slot_or_in_two(device):
    """Where one object lay in two slots there may be two now, and the other way round."""
    state, made = Box(a=[1], b=[1]), random.Random(3)
    g = rote.graph(lambda x: (x * 2, state.a, state.b))
    for number in range(40):
        _, a, b = g(torch.ones(3, device=device))
        assert a is state.a and b is state.b
        fresh = [number]
        state.a, state.b = made.choice(
            [(fresh, state.b), (fresh, fresh), (state.b, state.b), (state.a, fresh)]
        )
    assert g.report().replayed


class Counter:
    def __init__(self, device):
        self.total, self.info = torch.zeros(3, device=device), {"n": 0}

    def step(self, x):
        self.total.add_(x)
        return self, self.info

    graphed = rote.graph(step)


def test_the_instance_of_a_method_is_handed_out_and_not_kept(device):
    for wrap in (lambda each: each.graphed, lambda each: rote.graph(each.step)):
        owner = Counter(device)
        g = wrap(owner)
        for number in range(8):
            found, info = g(torch.ones(3, device=device))
            assert found is owner and info is owner.info
            assert found.total.tolist() == [number + 1.0] * 3
        assert g.report().replayed >= 5, g.explain()
        seen = weakref.ref(owner)
        del owner, found, info, g
        gc.collect()
        assert seen() is None


@pytest.mark.parametrize("how", ["asked for", "handed out"])
def test_what_was_replaced_dies_where_tracing_is_not_paid_for(how, device, monkeypatch):
    set_costs(monkeypatch, traced_s=0.2)
    other = Box(n=1)
    owner: Any = type("Owner", (), {"now": Box(n=1)})  # what lies in a class is known by which object it is

    def fn(x):
        if how == "asked for":
            return x * 2 if owner.now is other else x * 3
        return x * 2, owner.now

    g = rote.graph(fn)
    for _ in range(30):
        for _ in range(8):
            g(torch.ones(3, device=device))
        seen, owner.now = weakref.ref(owner.now), Box(n=1)
        g(torch.ones(3, device=device))
        assert seen() is None
    assert "RT309" in {each.code for each in g.report().reasons}, g.explain()
    assert g.report().replayed > 100, g.explain()


def test_a_step_that_goes_back_and_returns_its_state(device):
    """The loss has no graph any more, and what lies beside it is the very object in each call."""
    net = torch.nn.Linear(3, 1).to(device)
    state = Box(loss=None, rates=(0.1, 0.2), seen=[])

    def fn(x):
        net.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        state.seen.append(loss.detach())
        return loss, state.rates, state

    g = rote.graph(fn)
    for number in range(8):
        loss, rates, found = g(torch.ones(2, 3, device=device))
        assert rates is state.rates and found is state and loss.requires_grad
        assert len(state.seen) == number + 1 and torch.equal(state.seen[-1], loss)
    assert g.report().replayed >= 5, g.explain()


@pytest.mark.parametrize("form", ["behind", "inside", "both", "left"])
def test_gradients_of_gradients_beside_or_inside_of_it(form, device):
    weight = torch.nn.Parameter(torch.full((3,), 2.0, device=device))
    state = Box(kept=[torch.ones(3, device=device)] * 2, out=None)

    def fn(x):
        hidden = weight * x
        if form == "behind":
            return state.kept, hidden.pow(3).sum()
        state.out = hidden.pow(3).sum() if form in ("inside", "left") else hidden
        if form == "left":
            return x * 2
        return state if form == "inside" else (state.kept, state, hidden.pow(3).sum())

    g = rote.graph(fn)
    for number in range(6):
        found = g(torch.full((3,), number + 1.0, device=device))
        loss = state.out if form in ("inside", "left") else found[-1]
        (first,) = torch.autograd.grad(loss, weight, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), weight)
        assert second.tolist() == [12.0 * (number + 1.0) ** 3] * 3


def test_an_attribute_that_is_only_read_is_not_carried(device):
    """What lies in the arguments of a partial moves, and nothing can be laid there in its place."""
    window = deque([1.5, torch.ones(3, device=device)])
    find = partial(lambda each: each, window)

    def fn(x):
        find()[0] = 4.0
        return x * 2, find()

    g = rote.graph(fn)
    for number in range(12):
        assert g(torch.ones(3, device=device))[1] is window and window[0] == 4.0
        window[1] = torch.full((3,), float(number), device=device)
