"""Objects that are put in place anew: another one answers if all that was read of the first is the same."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import gc
import itertools
import json
import operator
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.utils._pytree as pytree

import rote
from rote.testing import assert_same

CALLS = 12


@dataclasses.dataclass
class Config:
    scale: Any = 2.0
    inner: Any = None
    table: Any = None

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    scale: float = 2.0
    inner: Any = None


@dataclasses.dataclass
class Other(Config):
    """Of another class, with the same attributes."""


class Pair(NamedTuple):
    scale: float
    inner: Any = None


class Table(dict[str, Any]):
    """A dict with attributes."""

    scale = property(lambda self: self["scale"])
    inner = property(lambda self: self["inner"])


class Home(torch.nn.Module):
    """Where things lie, and what is made of them."""

    cfg: Any

    def __init__(self, run: Callable[[Any, torch.Tensor], Any], device: Any, lays: Callable[[Any], Any]):
        super().__init__()
        self.run = run
        self.weight = torch.nn.Parameter(torch.full((3,), 3.0, device=device))
        lays(self)

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def play(
    run: Callable[[Any, torch.Tensor], Any],
    lays: Callable[[Any], Any],
    device: Any,
    step: Callable[[Any, int], Any] | None = None,
) -> Any:
    """Lay objects into a home before each call, graphed beside plain; returns the report.

    Args:
        run: What is called.
        lays: Lays what is read into the home.
        device: Of the tensors.
        step: Changes the home before a call; lays all anew if there is none.
    """
    ours, theirs = Home(run, device, lays), Home(run, device, lays)
    graphed = rote.graph(ours)
    for number in range(CALLS):
        for home in (ours, theirs):
            step(home, number) if step is not None else lays(home)
        x = torch.full((3,), number + 1.0, device=device)
        assert_same(graphed(x), theirs(x))
    return graphed.report()


def of(kind: Any) -> Callable[[Any], Any]:
    """Lays a config of some kind with another one in it."""

    def lays(home: Any) -> None:
        home.cfg = kind(scale=2.0, inner=kind(scale=5.0, inner=None))

    return lays


def reads(home: Any, x: torch.Tensor) -> torch.Tensor:
    return x * home.cfg.scale + home.cfg.inner.scale


# ---------------------------------------------------------------------- what is the same


@pytest.mark.parametrize("kind", [Config, Frozen, Pair, Table, types.SimpleNamespace])
def test_equal_objects_are_replayed_wherever_they_are_put_anew(kind: Any, device: Any) -> None:
    assert play(reads, of(kind), device).replayed == CALLS - 2


@pytest.mark.parametrize("make", [dict, collections.OrderedDict])
def test_equal_dicts(make: Any, device: Any) -> None:
    def lays(home: Any) -> None:
        home.cfg = make(scale=2.0, inner=make(scale=[1.0, 5.0], more=(1, 2)))

    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * home.cfg["scale"]
        for each in home.cfg["inner"]["scale"]:
            y = y + each
        return y + sum(home.cfg["inner"].get("more")) + len(home.cfg)

    assert play(run, lays, device).replayed == CALLS - 2


def by_a_lambda(home: Any) -> None:
    k = 2.0
    home.cfg = lambda x: x * k


def by_a_closure_over_a_list(home: Any) -> None:
    k = 2.0
    options: list[Any] = [3.0, {"more": 4.0}]

    def outer(x: torch.Tensor) -> torch.Tensor:
        def inner(y: torch.Tensor) -> torch.Tensor:
            return y * k + options[1]["more"]

        return inner(x) * options[0]

    home.cfg = outer


def by_defaults(home: Any) -> None:
    cfg = Config(2.0)
    home.cfg = lambda x, k=cfg, *, more=3.0: x * k.scale + more


def by_a_method(home: Any) -> None:
    home.cfg = Config(2.0).scaled


def by_a_partial(home: Any) -> None:
    home.cfg = functools.partial(lambda cfg, x, k: x * cfg.scale * k, Config(2.0), k=3.0)


def by_a_method_of_a_function(home: Any) -> None:
    k = 2.0
    home.cfg = types.MethodType(lambda self, x: x * k * self.scale, Config(3.0))


def by_two_functions_over_one_variable(home: Any) -> None:
    k = Config(2.0)
    home.other = lambda x: x * k.scale
    home.cfg = lambda x: home.other(x) + k.scale


def by_a_method_of_what_lies_beside_it(home: Any) -> None:
    home.other = Config(2.0)
    home.pair = (home.other.scaled, home.other)
    home.cfg = lambda x: home.pair[0](x) + home.other.scale + home.pair[1].scale


CALLED = [
    by_a_lambda,
    by_a_closure_over_a_list,
    by_defaults,
    by_a_method,
    by_a_partial,
    by_a_method_of_a_function,
    by_two_functions_over_one_variable,
    by_a_method_of_what_lies_beside_it,
]


@pytest.mark.parametrize("lays", CALLED)
def test_functions_made_by_the_same_code(lays: Any, device: Any) -> None:
    assert play(lambda home, x: home.cfg(x), lays, device).replayed == CALLS - 2


def test_tensors_in_it_are_the_same_objects(device: Any) -> None:
    table = torch.full((3,), 5.0, device=device)

    def lays(home: Any) -> None:
        home.cfg = Config(home.weight if hasattr(home, "weight") else None, Config(table))

    assert play(reads, lays, device).replayed == CALLS - 2


def test_an_object_that_lies_in_two_places_and_one_that_leads_back(device: Any) -> None:
    def lays(home: Any) -> None:
        home.cfg = home.other = Config(2.0, Config(5.0))
        home.cfg.inner.inner = home.cfg

    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        return x * home.cfg.scale + home.other.inner.inner.scale

    assert play(run, lays, device).replayed == CALLS - 2


def test_once_in_a_while_and_in_turn(device: Any) -> None:
    def step(home: Any, number: int) -> None:
        if number in (4, 5, 9):
            of(Config)(home)
        if number >= 7:
            home.table = {"a": [1.0]}

    def lays(home: Any) -> None:
        of(Config)(home)
        home.table = {"a": [1.0]}

    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        return reads(home, x) * home.table["a"][0]

    assert play(run, lays, device, step).replayed == CALLS - 2


def test_what_was_replaced_is_let_go(device: Any) -> None:
    class Big(Config):
        pass

    made = []

    def lays(home: Any) -> None:
        home.cfg = Big(2.0, Big(3.0))
        made.append(weakref.ref(home.cfg))

    home = Home(reads, device, lays)
    graphed = rote.graph(home)
    for number in range(CALLS):
        if number % 2 or number < 8:
            lays(home)
        graphed(torch.ones(3, device=device))
        gc.collect()
        assert [each() for each in made[:-1]] == [None] * (len(made) - 1) or number < 3
    assert graphed.report().replayed == CALLS - 2


# ---------------------------------------------------------------------- what is not


def test_another_value_however_deep_is_noticed_and_named(device: Any) -> None:
    def step(home: Any, number: int) -> None:
        home.cfg = Config(2.0, Config(5.0 if number < 8 else 6.0))

    report = play(reads, of(Config), device, step)
    assert report.replayed >= CALLS - 5
    assert any("cfg.inner.scale was 5.0 and is 6.0" in str(why.message) for why in report.reasons)


def changed(home: Any, number: int) -> None:
    if number in (4, 6):
        of(Config)(home)
    if number == 8:
        home.cfg.inner.scale = 7.0


def test_what_was_put_in_place_is_under_guard(device: Any) -> None:
    report = play(reads, of(Config), device, changed)
    assert any("cfg.inner.scale was 5.0 and is 7.0" in str(why.message) for why in report.reasons)


def test_what_was_replaced_may_change(device: Any) -> None:
    def step(home: Any, number: int) -> None:
        old = home.cfg
        of(Config)(home)
        old.scale, old.inner = 9.0, None

    assert play(reads, of(Config), device, step).replayed == CALLS - 2


def class_of(home: Any) -> None:
    home.cfg = Other(2.0, Config(5.0))


def int_for_float(home: Any) -> None:
    home.cfg = Config(2, Config(5.0))


def true_for_one(home: Any) -> None:
    home.cfg = Config(1.0, Config(True))


def none_inside(home: Any) -> None:
    home.cfg = Config(2.0, Config(-0.0))


@pytest.mark.parametrize("lays", [class_of, int_for_float, true_for_one, none_inside])
def test_other_objects(lays: Any, device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> Any:
        return reads(home, x), type(home.cfg).__name__, repr(home.cfg.scale), repr(home.cfg.inner.scale)

    play(run, of(Config), device, lambda home, number: (of(Config) if number < 6 else lays)(home))


def test_what_was_not_there(device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        return x * getattr(home.cfg, "more", 1.0) * home.cfg.table.get("more", 1.0)

    def lays(home: Any) -> None:
        home.cfg = Config()
        home.cfg.table = {}

    def step(home: Any, number: int) -> None:
        lays(home)
        if number == 6:
            home.cfg.more = 3.0
        if number == 8:
            home.cfg.table["more"] = 3.0

    play(run, lays, device, step)


def test_the_order_and_the_number_of_members(device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> Any:
        return x * len(home.cfg), [*home.cfg], [each for each in home.table]

    def lays(home: Any) -> None:
        home.cfg, home.table = {"a": 1, "b": 2}, [1, 2]

    def step(home: Any, number: int) -> None:
        lays(home)
        if number == 6:
            home.cfg = {"b": 2, "a": 1}
        if number == 8:
            home.table = [1, 2, 3]

    play(run, lays, device, step)


def test_functions_of_other_code(device: Any) -> None:
    def step(home: Any, number: int) -> None:
        if number < 6:
            by_a_lambda(home)
        else:
            k = 2.0
            home.cfg = lambda x: x + k

    play(lambda home, x: home.cfg(x), by_a_lambda, device, step)


def test_cells_and_defaults_of_other_values(device: Any) -> None:
    def lays(home: Any, k: float = 2.0, d: float = 3.0) -> None:
        home.cfg = lambda x, more=d: x * k + more

    def step(home: Any, number: int) -> None:
        lays(home, 2.0 + (number > 5), 3.0 + (number > 8))

    play(lambda home, x: home.cfg(x), lays, device, step)


def test_a_moved_tensor(device: Any) -> None:
    def lays(home: Any) -> None:
        home.cfg = Config(2.0, Config(torch.full((3,), 5.0, device=device)))

    def step(home: Any, number: int) -> None:
        if number in (4, 6, 7):
            home.cfg = Config(2.0, Config(home.cfg.inner.scale))
        if number == 9:
            home.cfg = Config(2.0, Config(home.cfg.inner.scale + 1))

    report = play(reads, lays, device, step)
    assert any(why.code == "RT301" for why in report.reasons)


# ---------------------------------------------------------------------- one object or two


def both(home: Any, x: torch.Tensor) -> torch.Tensor:
    home.cfg.inner = None
    return x * home.cfg.scale * home.other.scale


def apart(home: Any) -> None:
    home.cfg, home.other = Config(), Config()


def in_one(home: Any) -> None:
    home.cfg = home.other = Config()


def exchanged(home: Any) -> None:
    home.cfg, home.other = home.other, home.cfg


@pytest.mark.parametrize("first", [apart, in_one])
@pytest.mark.parametrize("second", [apart, in_one, exchanged])
def test_whether_two_paths_lead_to_one_object(first: Any, second: Any, device: Any) -> None:
    def step(home: Any, number: int) -> None:
        (first if number < 6 else second)(home)
        if number == 9:
            home.cfg.scale = 4.0

    def written(home: Any, x: torch.Tensor) -> torch.Tensor:
        home.cfg.scale, before = home.cfg.scale, home.other.scale
        return x * home.other.scale + before

    def compared(home: Any, x: torch.Tensor) -> torch.Tensor:
        return x * home.other.scale + (home.cfg is home.other)

    for run in (lambda home, x: x * home.cfg.scale + home.other.scale, written, compared):
        play(run, first, device, step)


def test_one_of_two_is_put_anew(device: Any) -> None:
    def step(home: Any, number: int) -> None:
        if number in (4, 6):
            home.cfg = Config(home.other.scale)
        if number == 8:
            home.other.scale = 7.0
        if number == 10:
            home.cfg.scale = 8.0

    play(lambda home, x: x * home.cfg.scale + home.other.scale, in_one, device, step)


def hidden_in_a_tuple(home: Any) -> Any:
    home.tuple = (home.cfg, 1)
    return lambda home: home.tuple[0].scale


def hidden_in_a_default(home: Any) -> Any:
    home.function = lambda cfg=home.cfg: cfg.scale
    return lambda home: home.function()


def hidden_in_a_cell(home: Any) -> Any:
    cfg = home.cfg
    home.function = lambda: cfg.scale
    return lambda home: home.function()


def hidden_in_a_method(home: Any) -> Any:
    home.function = home.cfg.scaled
    return lambda home: home.function(1.0)


def hidden_in_a_partial(home: Any) -> Any:
    home.function = functools.partial(getattr, home.cfg, "scale")
    return lambda home: home.function()


def hidden_behind_a_reference(home: Any) -> Any:
    home.kept, home.reference = home.cfg, weakref.ref(home.cfg)
    return lambda home: home.reference().scale


HIDDEN = [hidden_in_a_tuple, hidden_in_a_default, hidden_in_a_cell, hidden_in_a_method, hidden_in_a_partial,
          hidden_behind_a_reference]  # fmt: skip


@pytest.mark.parametrize("hide", HIDDEN)
@pytest.mark.parametrize("first", [True, False])
def test_the_object_lies_elsewhere_too(hide: Any, first: bool, device: Any) -> None:
    def lays(home: Any) -> None:
        home.cfg = Config()
        home.kept = home.cfg
        home.hidden = [hide(home)]

    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        if first:
            return x * home.cfg.scale + home.hidden[0](home)
        return home.hidden[0](home) + x * home.cfg.scale

    def step(home: Any, number: int) -> None:
        if number == 6:
            home.cfg = Config()
        if number == 8:
            home.kept.scale = 7.0
        if number == 10:
            home.cfg.scale = 9.0

    play(run, lays, device, step)


# ---------------------------------------------------------------------- where it matters which object it is


def by_is(home: Any, x: torch.Tensor) -> Any:
    return x + (home.cfg is home.first)


def by_operator(home: Any, x: torch.Tensor) -> Any:
    return x + operator.is_(home.cfg, home.first)


def by_identity(home: Any, x: torch.Tensor) -> Any:
    return x + (id(home.cfg) == id(home.first))


def by_a_key(home: Any, x: torch.Tensor) -> Any:
    return x + home.numbers.get(home.cfg, 0.0)


def by_a_member(home: Any, x: torch.Tensor) -> Any:
    return x + (home.cfg in home.several)


def by_hash(home: Any, x: torch.Tensor) -> Any:
    return x + (hash(home.cfg) == hash(home.first))


def by_equality(home: Any, x: torch.Tensor) -> Any:
    return x + (home.cfg == home.first)


def by_equality_of_members(home: Any, x: torch.Tensor) -> Any:
    return x + ([home.cfg] == [home.first]) + operator.eq((home.cfg,), (home.first,))


def by_index(home: Any, x: torch.Tensor) -> Any:
    return x + home.several.count(home.cfg)


def by_a_set(home: Any, x: torch.Tensor) -> Any:
    return x + len({home.cfg, home.first})


def by_the_result(home: Any, x: torch.Tensor) -> Any:
    return x + 1, home.cfg


def by_a_function_as_a_key(home: Any, x: torch.Tensor) -> Any:
    return x + home.numbers.get(home.act, 0.0)


def by_a_function_that_is(home: Any, x: torch.Tensor) -> Any:
    return x + (home.act is home.first_act) + (home.act == home.first_act)


def by_text(home: Any, x: torch.Tensor) -> Any:
    return x + (f"{home.cfg!r}" == f"{home.first!r}") + (str([home.cfg]) == str([home.first]))


WHICH = [
    by_is,
    by_operator,
    by_identity,
    by_a_key,
    by_a_member,
    by_hash,
    by_equality,
    by_equality_of_members,
    by_index,
    by_a_set,
    by_the_result,
    by_a_function_as_a_key,
    by_a_function_that_is,
    by_text,
]


class Bare:
    """Compared and hashed by which object it is."""

    scale = 2.0


@pytest.mark.parametrize("run", WHICH)
def test_which_object_it_is(run: Any, device: Any) -> None:
    homes = []

    def lays(home: Any) -> None:
        home.cfg = home.first = Bare()
        k = 2.0
        home.act = home.first_act = lambda x: x * k
        home.numbers, home.several = {home.cfg: 5.0, home.act: 7.0}, [home.cfg]

    def step(home: Any, number: int) -> None:
        homes.append(home)
        if number >= 6:
            home.cfg = Bare()
            k = 2.0
            home.act = (lambda k: lambda x: x * k)(k) if number > 8 else home.act

    ours, theirs = Home(run, device, lays), Home(run, device, lays)
    graphed = rote.graph(ours)
    for number in range(CALLS):
        for home in (ours, theirs):
            step(home, number)
        x = torch.full((3,), number + 1.0, device=device)
        got, wanted = graphed(x), theirs(x)
        if run is by_the_result:
            assert got[1] is ours.cfg
            got, wanted = got[0], wanted[0]
        assert_same(got, wanted)


def test_an_object_that_is_written(device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * home.cfg.scale
        home.cfg.last = y
        return y + 1

    ours, theirs = Home(run, device, of(Config)), Home(run, device, of(Config))
    graphed = rote.graph(ours)
    for number in range(CALLS):
        if number in (6, 9):
            of(Config)(ours)
            of(Config)(theirs)
        x = torch.full((3,), number + 1.0, device=device)
        assert_same(graphed(x), theirs(x))
        assert_same(ours.cfg.last, theirs.cfg.last)


def test_a_list_that_grows(device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        home.cfg.append(x * 2)
        return x * home.weight

    def lays(home: Any) -> None:
        home.cfg = []

    ours, theirs = Home(run, device, lays), Home(run, device, lays)
    graphed = rote.graph(ours)
    with torch.no_grad():
        for number in range(CALLS):
            if number in (6, 9):
                lays(ours)
                lays(theirs)
            x = torch.full((3,), number + 1.0, device=device)
            assert_same(graphed(x), theirs(x))
            assert_same(ours.cfg, theirs.cfg)


def test_an_argument_takes_the_place(device: Any) -> None:
    class Step:
        def __init__(self) -> None:
            self.cfg = {"scale": 2.0}

        def run(self, x: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
            options["scale"] = 3.0
            return x * self.cfg["scale"]

    ours, theirs = Step(), Step()
    graphed = rote.graph(ours.run)
    for number in range(CALLS):
        results = list[Any]()
        for step, call in ((ours, graphed), (theirs, theirs.run)):
            options = {"scale": 2.0}
            if number > 5:
                step.cfg = options if number % 2 else {"scale": 2.0}
            x = torch.full((3,), number + 1.0, device=device)
            results.append((call(x, options), options))
        assert_same(*results)


def test_read_in_a_backward(device: Any) -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, home: Any) -> torch.Tensor:
            ctx.home = home
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return gradients[0] * ctx.home.cfg.scale, None

    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        return Scaled.apply(home.weight * x, home)

    ours, theirs = Home(run, device, of(Config)), Home(run, device, of(Config))
    graphed = rote.graph(ours)
    for number in range(CALLS):
        for home, call in ((ours, graphed), (theirs, theirs)):
            home.cfg = Config(2.0 if number < 7 else 3.0)
            home.weight.grad = None
            call(torch.full((3,), number + 1.0, device=device)).sum().backward()
        assert_same(ours.weight.grad, theirs.weight.grad)


# ---------------------------------------------------------------------- in every call, and then


def test_a_way_that_is_new(device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * home.cfg.scale
        return y + home.cfg.inner.scale if y[0].item() > 17 else y - home.other["b"]

    def lays(home: Any, scale: float = 2.0, inner: float = 5.0, b: float = 3.0) -> None:
        home.cfg, home.other = Config(scale, Config(inner)), {"a": 1.0, "b": b}

    def step(home: Any, number: int) -> None:
        lays(home)  # the first way until x is 9
        if number == CALLS - 1:
            lays(home, inner=6.0)

    play(run, lays, device, step)
    ours, theirs = Home(run, device, lays), Home(run, device, lays)
    graphed = rote.graph(ours)
    changes = [{}] * 14 + [{"inner": 6.0}, {"b": 4.0}, {"scale": 3.0}, {}, {"inner": 7.0}] * 2
    for number, change in enumerate(changes):
        for home in (ours, theirs):
            lays(home, **change)
        x = torch.full((3,), 1.0 if number < 6 or number % 2 else 20.0, device=device)
        assert_same(graphed(x), theirs(x))


@pytest.mark.parametrize("options", [{"verify": 1}, {"warmup": 3}, {"strict": True}])
def test_with_options(options: Any, device: Any) -> None:
    lays = of(Config)
    ours, theirs = Home(reads, device, lays), Home(reads, device, lays)
    graphed = rote.graph(ours, **options)
    with torch.no_grad():
        for number in range(CALLS):
            for home in (ours, theirs):
                lays(home)
            x = torch.full((3,), number + 1.0, device=device)
            assert_same(graphed(x).clone(), theirs(x))
    assert graphed.report().replayed >= CALLS - 4


def test_whole_steps_with_options_put_anew(device: Any) -> None:
    def run(home: Any, x: torch.Tensor) -> torch.Tensor:
        home.weight.grad = None
        loss = (home.weight * x * home.cfg["scale"]).sum()
        loss.backward()
        return loss.detach()

    def lays(home: Any, scale: float = 2.0) -> None:
        home.cfg = {"scale": scale, "more": [1, 2]}

    ours, theirs = Home(run, device, lays), Home(run, device, lays)
    graphed = rote.graph(ours)
    for number in range(CALLS):
        for home in (ours, theirs):
            lays(home, 2.0 if number != 9 else 3.0)
        x = torch.full((3,), number + 1.0, device=device)
        assert_same(graphed(x), theirs(x))
        assert_same(ours.weight.grad, theirs.weight.grad)
    assert graphed.report().replayed >= 5


def test_two_recordings_of_one_state(device: Any) -> None:
    lays = of(Config)
    ours, theirs = Home(reads, device, lays), Home(reads, device, lays)
    graphed = rote.graph(ours)
    for number in range(2 * CALLS):
        for home in (ours, theirs):
            if number > 6:
                home.cfg = Config(2.0 if number < 18 else 3.0, Config(5.0))
            if number == 20:
                home.cfg.inner.scale = 6.0
        x = torch.full((3 + number % 2,), number + 1.0, device=device)
        assert_same(graphed(x), theirs(x))
    assert graphed.report().replayed >= CALLS


# ---------------------------------------------------------------------- however it is read


def by_match(cfg: Any) -> Any:
    match cfg:
        case Config(scale=scale, inner={"b": [_, b, *_]}):
            return scale + b
        case _:
            return 0.0


def added(*args: float, **more: float) -> float:
    return sum(args) + sum(more.values())


READERS: dict[str, Callable[[Any], Any]] = {
    "match": by_match,
    "asdict": lambda cfg: dataclasses.asdict(cfg)["inner"]["b"][1],
    "astuple": lambda cfg: dataclasses.astuple(cfg)[1]["b"][1],
    "vars": lambda cfg: vars(cfg)["inner"]["b"][1],
    "copy": lambda cfg: copy.copy(cfg).inner["b"][1],
    "deepcopy": lambda cfg: copy.deepcopy(cfg).inner["b"][1],
    "replace": lambda cfg: dataclasses.replace(cfg, scale=1.0).inner["b"][1],
    "json": lambda cfg: len(json.dumps(cfg.inner)),
    "pickle": lambda cfg: pickle.dumps(cfg.inner["b"]).count(b"@\x14"),
    "text": lambda cfg: len(f"{cfg.inner}"),
    "repr": lambda cfg: len(repr(cfg)),
    "items": lambda cfg: [[*each] for each in cfg.inner.items()][-1][1][1],
    "sorted": lambda cfg: sorted(cfg.inner["b"])[-1],
    "max": lambda cfg: max(cfg.inner["b"]),
    "map": lambda cfg: sum(map(lambda each: each * 2, cfg.inner["b"])),
    "reduce": lambda cfg: functools.reduce(operator.add, cfg.inner["b"]),
    "zip": lambda cfg: [b for b, _ in zip(cfg.inner["b"], range(3), strict=False)][1],
    "iter": lambda cfg: [*iter(cfg.inner["b"])][1],
    "slice": lambda cfg: cfg.inner["b"][1:][0],
    "star": lambda cfg: added(*cfg.inner["b"], **{"c": 1.0}),
    "unpack": lambda cfg: (lambda a, b, c: b)(*cfg.inner["b"]),
    "merged": lambda cfg: {**cfg.inner, "c": [1, 2]}["b"][1],
    "or": lambda cfg: operator.or_(cfg.inner, {"c": 1})["b"][1],
    "equal": lambda cfg: float(cfg.inner["b"] == [1.0, 5.0, 2.0]),
    "equal objects": lambda cfg: float(cfg == Config(2.0, {"b": [1.0, 5.0, 2.0]})),
    "in": lambda cfg: float(5.0 in cfg.inner["b"]),
    "count": lambda cfg: cfg.inner["b"].count(5.0),
    "hash": lambda cfg: float(hash(tuple(cfg.inner["b"])) == hash((1.0, 5.0, 2.0))),
    "set": lambda cfg: max({*cfg.inner["b"]}),
    "getter": lambda cfg: operator.itemgetter("b")(operator.attrgetter("inner")(cfg))[1],
    "getattr": lambda cfg: cfg.inner.get("b").__getitem__(1),
    "tensor": lambda cfg: torch.tensor(cfg.inner["b"])[1].item(),
    "format": lambda cfg: len(f"{cfg.inner['b']}"),
    "class": lambda cfg: type(cfg)(cfg.scale, cfg.inner).inner["b"][1],
    "dict": lambda cfg: dict(cfg.inner)["b"][1],
    "list": lambda cfg: list(cfg.inner.values())[-1][1],
    "chain": lambda cfg: [*itertools.chain(cfg.inner["b"], [1.0])][1],
    "partial": lambda cfg: functools.partial(getattr, cfg)("inner")["b"][1],
    "closure": lambda cfg: (lambda: cfg.inner["b"][1])(),
    "generator": lambda cfg: sum(each for each in cfg.inner["b"]),
    "method": lambda cfg: cfg.scaled(1.0) + cfg.inner["b"][1],
    "super": lambda cfg: object.__getattribute__(cfg, "inner")["b"][1],
    "chain map": lambda cfg: collections.ChainMap(cfg.inner)["b"][1],
    "namespace": lambda cfg: types.SimpleNamespace(**vars(cfg)).inner["b"][1],
    "pytree": lambda cfg: pytree.tree_flatten(cfg.inner)[0][1],
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_read_in_any_way_is_compared(reader: str, device: Any) -> None:
    read = READERS[reader]

    def lays(home: Any, b: float = 5.0) -> None:
        home.cfg = Config(2.0, {"b": [1.0, b, 2.0]})

    def step(home: Any, number: int) -> None:
        if number < 8:
            lays(home)
        elif number == 8:
            lays(home, 55.25)
        elif number == 9:
            lays(home)
        elif number == 10:
            home.cfg.inner["b"][1] = 7.125

    play(lambda home, x: x * read(home.cfg), lays, device, step)


class Watched:
    def __init__(self):
        self.scale = 2.0


WATCHING = {
    "finalizer": lambda log, watched, made: weakref.finalize(made, log.append, 1),
    "set": lambda log, watched, made: watched.add(made),
    "key": lambda log, watched, made: watched.add(made) or weakref.ref(made, lambda _: None),
}


@pytest.mark.parametrize("how", WATCHING)
def test_an_object_whose_death_is_noticed(how, device):
    def run(wrap):
        log, watched, state = [], weakref.WeakSet(), {}

        def put():
            state["config"] = Watched()
            WATCHING[how](log, watched, state["config"])

        put()
        graphed, found = wrap(lambda x: x * state["config"].scale * (len(log) + len(watched))), []
        for number in range(10):
            if number in (4, 5, 8):
                put()
            found.append(graphed(torch.full((3,), float(number), device=device)))
        return found, graphed

    found, graphed = run(rote.graph)
    assert_same(found, run(lambda call: call)[0])
    assert graphed.report().replayed


class Choice:
    """An object of which there are a few; what lies around it is made anew for each call."""

    def __init__(self, scale):
        self.scale = scale


AROUND = {
    "list": (lambda one: [one], lambda held: held[0]),
    "lists": (lambda one: [[one]], lambda held: held[0][0]),
    "tuple": (lambda one: (one,), lambda held: held[0]),
    "dict": (lambda one: {"a": one}, lambda held: held["a"]),
    "object": (lambda one: types.SimpleNamespace(inner=one), lambda held: held.inner),
    "dataclass": (lambda one: Config(inner=one), lambda held: held.inner),
    "function": (lambda one: lambda: one, lambda held: held()),
    "partial": (lambda one: functools.partial(list, [one]), lambda held: held()[0]),
}


@pytest.mark.parametrize("kind", [Choice, Config, lambda scale: Choice([scale])])
@pytest.mark.parametrize("around", AROUND)
def test_objects_in_turn_in_what_is_put_anew(around: Any, kind: Any, device: Any) -> None:
    put, get = AROUND[around]
    choices = [kind(2.0), kind(5.0)]

    class State:
        held = put(choices[0])

    def read():
        scale = get(State.held).scale
        return scale[0] if isinstance(scale, list) else scale

    g = rote.graph(lambda x: x * read())
    for n in range(40):
        State.held = put(choices[n // 5 % 2])
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x * read())
    assert g.report().replayed >= 10


SETS = {"numbers": (1, 2, 3), "large numbers": (1000, 2000, 3000), "text": ("a", "b", "ccc"),
        "classes": (int, str, float), "nothing": (None,)}  # fmt: skip


@pytest.mark.parametrize("lies", ["attribute", "item", "global"])
@pytest.mark.parametrize("members", SETS.values(), ids=SETS)
def test_an_equal_set_that_changes_where_it_lies(members: Any, lies: Any, device: Any) -> None:
    *few, last = members
    state = types.SimpleNamespace(held=set(few)) if lies == "attribute" else {"held": set(few)}
    if lies == "global":
        exec("def look(): return held", state)
        look = state["look"]
    else:

        def look():
            return state.held if lies == "attribute" else state["held"]

    def lay(new):
        setattr(state, "held", new) if lies == "attribute" else state.update(held=new)

    g = rote.graph(lambda x: x * (len(look()) + (last in look())))
    for n in range(30):
        if n % 10 == 4:
            lay(set(look()))
        if n % 10 == 7:
            look().add(last)
        if n % 10 == 9:
            look().discard(last)
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x * (len(look()) + (last in look())))
    assert g.report().replayed >= 10
