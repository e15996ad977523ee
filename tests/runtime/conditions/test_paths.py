"""Objects in the place of others: a guard moves to them if and only if a call would read the same there."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.reads.noting import noted

from rote.runtime.conditions.guards import OFTEN, Guard
from rote.runtime.conditions.quick import QuickGuard
from rote.runtime.objects.marks import Content
from rote.runtime.state import ExecutedCode, look_again


@dataclasses.dataclass
class Config:
    a: Any = None
    b: Any = None


@dataclasses.dataclass(slots=True)
class Slots:
    a: Any = None
    b: Any = None


class Pair(NamedTuple):
    a: Any
    b: Any


class Table(dict[str, Any]):
    """A dict of a class of one's own."""


NAMES = ("a", "b")
LEAVES = (1, 1.0, True, 2, "a", None, 0.0, -0.0)
BY_NAME = (Config, Slots, Pair, types.SimpleNamespace)
BY_KEY = (dict, Table)
IN_ORDER = (list, tuple)


# ---------------------------------------------------------------------- what is laid into a slot


class Spec(NamedTuple):
    """What an object is made of; its kind is a class, "leaf", "function" or "one" of those made before."""

    kind: Any
    parts: tuple[Any, ...]


def specs() -> st.SearchStrategy[Spec]:
    leaves = st.sampled_from(LEAVES).map(lambda value: Spec("leaf", (value,)))
    ones = st.integers(0, 5).map(lambda number: Spec("one", (number,)))

    def extend(inner: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
        pairs = st.tuples(inner, inner)
        several = st.lists(inner, max_size=3).map(tuple)
        named = st.builds(Spec, st.sampled_from(BY_NAME), pairs)
        listed = st.builds(Spec, st.sampled_from((*IN_ORDER, *BY_KEY)), several)
        return named | listed | st.builds(Spec, st.just("function"), pairs)

    several = st.lists(st.recursive(leaves | ones, extend, max_leaves=6) | ones, min_size=2, max_size=4)
    shared = st.builds(Spec, st.sampled_from(IN_ORDER), several.map(tuple))
    return shared | extend(st.recursive(leaves | ones, extend, max_leaves=8))


def function_of(one: Any, other: Any) -> Any:
    return lambda: (one, other)


def build(spec: Spec, made: list[Any] | None = None) -> Any:
    """Fresh objects."""
    made = [] if made is None else made
    kind, parts = spec
    if kind == "leaf":
        return parts[0]
    if kind == "one":
        return made[parts[0] % len(made)] if made else None
    held = [build(part, made) for part in parts]
    if kind == "function":
        value = function_of(*held)
    elif kind in BY_NAME:
        value = kind(**dict(zip(NAMES, held, strict=True)))
    else:
        value = kind(zip("abc", held, strict=False)) if kind in BY_KEY else kind(held)
    made.append(value)
    return value


def places(spec: Spec) -> list[tuple[int, ...]]:
    inner = [] if spec.kind in ("leaf", "one") else [*enumerate(spec.parts)]
    return [(), *((at, *rest) for at, part in inner for rest in places(part))]


def replaced(spec: Spec, place: tuple[int, ...], other: Spec) -> Spec:
    if not place:
        return other
    parts = [*spec.parts]
    parts[place[0]] = replaced(parts[place[0]], place[1:], other)
    return Spec(spec.kind, tuple(parts))


@st.composite
def changes(draw: Any) -> tuple[Spec, Spec]:
    """What lies in a slot, and what lies there afterwards: mostly the same, or another in one place."""
    spec = draw(specs())
    if draw(st.booleans()):
        return spec, spec
    if draw(st.booleans()):  # one object twice, or two that are equal
        twice, one = Spec(list, (spec, spec)), Spec(list, (spec, Spec("one", (-1,))))
        return draw(st.sampled_from(((twice, one), (one, twice))))
    return spec, replaced(spec, draw(st.sampled_from(places(spec))), draw(specs() | st.builds(
        Spec, st.just("one"), st.tuples(st.integers(0, 5))) | st.sampled_from(LEAVES).map(
        lambda value: Spec("leaf", (value,)))))  # fmt: skip


# ---------------------------------------------------------------------- what a call reads there


def plans() -> st.SearchStrategy[Any]:
    step = st.tuples(st.sampled_from(("member", "number", "all")), st.integers(0, 2))
    whole = (("all", 0, (("all", 0, (("all", 0, ()),)),)),)
    drawn = st.recursive(st.just(()), lambda inner: st.lists(st.tuples(step, inner), max_size=3).map(
        lambda steps: tuple([(*one, rest) for one, rest in steps])), max_leaves=8)  # fmt: skip
    return drawn | st.just(whole)


def follow(value: Any, plan: Any) -> None:
    """Read what a plan says, in Python code that is followed."""
    kind = type(value)
    for how, which, rest in plan:
        if kind in BY_NAME:
            if how == "number":
                _ = hasattr(value, "c")
            else:
                follow(value.a if which == 0 else getattr(value, "b", None), rest)
        elif kind in BY_KEY:
            if how == "number":
                len(value)
            elif how == "member":
                follow(value.get("abc"[which]), rest)
            else:
                for each in value.values():
                    follow(each, rest)
        elif kind in IN_ORDER:
            if how == "number" or which >= len(value):
                len(value)
            elif how == "member":
                follow(value[which], rest)
            else:
                for each in value:
                    follow(each, rest)
        elif kind is types.FunctionType:
            follow(value()[which % 2], rest)


class World:
    """A slot, and what is read from there on."""

    def __init__(self, spec: Spec, plan: Any) -> None:
        home = self.home = {"slot": build(spec), "other": None}

        def call() -> None:
            follow(home["slot"], plan)
            follow(home["other"], plan)

        self.call = call

    def guard(self) -> Guard:
        again = look_again(noted(self.call).reads, ExecutedCode(), {})
        assert not again.changed
        return Guard(again.snapshot, {}, {}, [], {}, set())

    def log(self) -> Any:
        """What a call reads, where each object is the number by which it was met first."""
        found = noted(self.call)
        assert not found.unseen, found.unseen
        numbers: dict[int, int] = {}
        return [(each.kind, shown(each.container, numbers), str(each.key), shown(each.value, numbers))
                for each in found.reads]  # fmt: skip


def shown(value: Any, numbers: dict[int, int]) -> Any:
    """A value; an object by its number, and what is in it for good."""
    kind = type(value)
    if kind in (int, float, bool, str, type(None)):
        return kind, repr(value)
    if kind is Content:
        return kind, repr(value)
    new = id(value) not in numbers
    number = numbers.setdefault(id(value), len(numbers))
    parts: tuple[Any, ...] = value if isinstance(value, tuple) and new else ()
    cells = getattr(value, "__closure__", None) or () if kind is types.FunctionType and new else ()
    return kind, number, [shown(part, numbers) for part in (*parts, *cells)]


LAW = settings(max_examples=30)


@LAW
@given(changes(), plans())
def test_a_guard_moves_if_and_only_if_the_same_is_read(specs: tuple[Spec, Spec], plan: Any) -> None:
    before, after = specs
    world = World(before, plan)
    guard, was = world.guard(), world.log()
    assert guard.holds()
    kept, world.home["slot"] = world.home["slot"], build(after)
    now = world.log()
    moved = guard if guard.holds() else guard.moved()
    assert (moved is not None) == (now == was), (was, now)
    if moved is not None:
        assert moved.holds() and QuickGuard(moved).holds()
        world.home["slot"] = kept
        assert moved.holds() or moved.moved() is not None


@LAW
@given(changes(), plans())
def test_the_same_where_other_objects_are_followed(specs: tuple[Spec, Spec], plan: Any) -> None:
    before, after = specs
    world = World(before, plan)
    guard, was = world.guard(), world.log()
    for _ in range(OFTEN + 2):
        world.home["slot"] = build(before)
        moved = guard if guard.holds() else guard.moved()
        assert moved is not None
        guard = moved
    quick = QuickGuard(guard)
    for spec in (before, after, before, after):
        world.home["slot"] = build(spec)
        wanted = world.log() == was
        assert guard.holds() == quick.holds() == wanted
        assert wanted or guard.moved() is None
    reads = guard.reads
    assert reads is not None
    assert {read.name for read in reads} >= {read.name for read in noted(world.call).reads if wanted}


def slot_anew(home: Any, spec: Spec) -> None:
    home["slot"] = build(spec)


def other_anew(home: Any, spec: Spec) -> None:
    home["other"] = build(spec)


def both_anew(home: Any, spec: Spec) -> None:
    home["slot"], home["other"] = build(spec), build(spec)


def one_in_both(home: Any, spec: Spec) -> None:
    home["slot"] = home["other"] = build(spec)


def other_in_slot(home: Any, spec: Spec) -> None:
    home["slot"] = home["other"]


def slot_in_other(home: Any, spec: Spec) -> None:
    home["other"] = home["slot"]


def exchanged(home: Any, spec: Spec) -> None:
    home["slot"], home["other"] = home["other"], home["slot"]


STEPS = st.sampled_from(
    (slot_anew, other_anew, both_anew, one_in_both, other_in_slot, slot_in_other, exchanged)
)


@LAW
@given(specs(), plans(), st.sampled_from((both_anew, one_in_both)), st.lists(STEPS, max_size=8))
def test_two_slots(spec: Spec, plan: Any, first: Any, steps: list[Any]) -> None:
    world = World(spec, plan)
    first(world.home, spec)
    guard, was = world.guard(), world.log()
    for step in steps:
        step(world.home, spec)
        wanted = world.log() == was
        moved = guard if guard.holds() else guard.moved()
        assert (moved is not None) == wanted
        guard = moved or guard


@LAW
@given(specs(), specs(), plans())
def test_what_changes_in_place_afterwards(spec: Spec, other: Spec, plan: Any) -> None:
    world = World(spec, plan)
    guard, was = world.guard(), world.log()
    for turn in range(OFTEN + 1):
        world.home["slot"] = build(spec)
        moved = guard if guard.holds() else guard.moved()
        assert moved is not None
        guard = moved
        slot: Any = world.home["slot"]
        undo: Any = None
        kind = type(slot)
        if kind in (Config, Slots, types.SimpleNamespace):
            undo, slot.a = slot.a, build(other)
        elif kind is list and slot:
            undo, slot[0] = slot[0], build(other)
        elif kind in BY_KEY:
            slot["a"] = build(other)
        now = world.log() == was
        assert (guard.holds() or guard.moved() is not None) == now, turn
        if kind is list and slot:
            slot[0] = undo
        elif kind in (Config, Slots, types.SimpleNamespace):
            slot.a = undo


def test_the_deepest_slot_that_differs_is_named() -> None:
    whole = (("all", 0, (("member", 1, ()),)),)
    one, two = Spec("leaf", (1,)), Spec("leaf", (2,))
    world = World(Spec(Config, (Spec(dict, (one, two)), one)), whole)
    guard = world.guard()
    world.home["slot"] = Config({"a": 1, "b": 5}, 1)
    assert guard.moved() is None
    assert [str(each).rpartition("slot']")[2] for each in guard.explain()] == [".a['b'] was 2 and is 5"]


@pytest.mark.parametrize("spec", [Spec(Config, (Spec("leaf", (1,)),) * 2), Spec(tuple, (Spec(list, ()),))])
def test_old_objects_are_let_go(spec: Spec) -> None:
    world = World(spec, (("all", 0, (("all", 0, ()),)),))
    guard = world.guard()
    for turn in range(OFTEN + 2):
        old, world.home["slot"] = world.home["slot"], build(spec)
        moved = guard if guard.holds() else guard.moved()
        assert moved is not None
        guard = moved
        assert not guard.containers & {id(old), id(getattr(old, "__dict__", old))}, turn
