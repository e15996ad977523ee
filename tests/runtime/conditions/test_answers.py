"""Answers, sets and attributes with slots: what words of memory say of them is what the plain guard says."""

from __future__ import annotations

import abc
import collections.abc
import contextlib
import dataclasses
import functools
import types

import pytest
import torch

from rote.runtime.arguments import Switches
from rote.runtime.arguments.switches import read_switches
from rote.runtime.conditions import dicts
from rote.runtime.conditions.guards import Guard
from rote.runtime.conditions.quick import QuickGuard
from rote.runtime.fingerprint.layout import find_layout, find_registrations, find_version
from rote.runtime.objects import Content, Members, remembered
from rote.runtime.pytorch import stance
from rote.runtime.state import ASKED, ATTRIBUTE, BULK, CACHED, HELD, ITEM, SUBCLASS, Entry, answer
from rote.runtime.state.snapshot import Snapshot

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import given, settings


class Kind(abc.ABC): ...  # noqa: B024


class Sibling: ...


WORDS = frozenset({"if", "else", "while"})


def make_world():
    """Functions with caches, sets, and objects with slots."""

    class Part: ...

    @functools.cache
    def all_of(value):
        return [value]

    @functools.lru_cache(1)
    def last(value):
        return [value]

    @functools.lru_cache(3)
    def few(value):
        return [value]

    for value in (1, 2):
        all_of(value), last(value), few(value)
    field = dataclasses.fields(
        dataclasses.make_dataclass("Made", [("size", int, dataclasses.field(default=1))])
    )[0]
    return types.SimpleNamespace(
        all_of=all_of, last=last, few=few, part=Part, field=field,
        names={"a", "b"}, holder={"kinds": {int, str}}, partial=functools.partial(print, 1, end=""),
    )  # fmt: skip


def entries_of(world):
    kinds = world.holder["kinds"]
    caches = [(each, remembered(each)) for each in (world.all_of, world.last, world.few)]
    slots = [(world.field, name) for name in ("default", "init", "repr")]
    slots += [(world.partial, name) for name in ("func", "args")]
    return [
        (ASKED, stance, (), answer(stance())),
        (ASKED, torch._C._get_cudnn_enabled, (), answer(torch._C._get_cudnn_enabled())),
        (SUBCLASS, Kind, world.part, Content(issubclass(world.part, Kind))),
        (SUBCLASS, collections.abc.Mapping, list, Content(False)),
        *[(CACHED, each, None, Content(held)) for each, held in caches],
        *[(ATTRIBUTE, owner, name, getattr(owner, name)) for owner, name in slots],
        (BULK, world.names, None, Content(tuple(world.names))),
        (BULK, WORDS, None, Content(tuple(WORDS))),
        (HELD, WORDS, None, Content((frozenset, Members((str, each) for each in WORDS)))),
        (ITEM, world.holder, "kinds", Content((set, Members((type(each), each) for each in kinds)))),
        (BULK, kinds, None, Content(tuple(kinds))),
    ]


def make_guard(world):
    snapshot = Snapshot({})
    for kind, container, key, value in entries_of(world):
        entry = Entry(kind, container, key, value, "here")
        snapshot.entries[kind, id(container), key] = entry
    return Guard(snapshot, {}, {}, [], {}, set())


def make_quick(guard):
    return QuickGuard(guard, Switches(read_switches()) if Switches.readable() else None)


def replace(members, was, now):
    members.discard(was)
    members.add(now)


CHANGES = {
    "nothing": lambda w: None,
    "stance": lambda w: torch.compiler.set_stance("force_eager"),
    "stance back": lambda w: torch.compiler.set_stance("default"),
    "stance for a while": lambda w: torch.compiler.set_stance("force_eager").__enter__(),
    "backend": lambda w: torch.compiler.set_stance("default", force_backend="eager"),
    "cudnn": lambda w: torch._C._set_cudnn_enabled(False),
    "cudnn back": lambda w: torch._C._set_cudnn_enabled(True),
    "registered": lambda w: Kind.register(w.part),
    "another registered": lambda w: Kind.register(Sibling),
    "result": lambda w: w.all_of(3),
    "result again": lambda w: w.all_of(1),
    "result for the last": lambda w: w.last(1),
    "the last again": lambda w: w.last(2),
    "one of few": lambda w: w.few(1),
    "other of few": lambda w: w.few(2),
    "more than few": lambda w: [w.few(value) for value in range(5)],
    "caches cleared": lambda w: [each.cache_clear() for each in (w.all_of, w.last, w.few)],
    "slot": lambda w: setattr(w.field, "default", 2),
    "slot back": lambda w: setattr(w.field, "default", 1),
    "slot equal": lambda w: setattr(w.field, "default", True),
    "slot gone": lambda w: delattr(w.field, "default"),
    "partial": lambda w: w.partial.__setstate__((print, (2,), {}, {})),
    "partial equal": lambda w: w.partial.__setstate__((print, (1,), {}, {})),
    "name": lambda w: replace(w.names, "b", "c"),
    "name back": lambda w: replace(w.names, "c", "b"),
    "name equal": lambda w: replace(w.names, "b", "".join(["b"])),
    "names gone": lambda w: w.names.clear(),
    "many names": lambda w: w.names.update(map(str, range(200))),
    "kind": lambda w: w.holder["kinds"].add(float),
    "kind back": lambda w: w.holder["kinds"].discard(float),
    "other kinds": lambda w: w.holder.update(kinds=set(w.holder["kinds"])),
    "holder": lambda w: w.holder.update(other=1),
}  # fmt: skip

NOTICED = (
    "stance", "backend", "registered", "result", "result for the last", "more than few", "caches cleared",
    "slot", "slot gone", "name", "names gone", "many names", "kind",
)  # fmt: skip

WAYS = {
    "read": {},
    "without versions": {(dicts, "dict_version"): lambda: None},
    "registrations asked": {(dicts, "find_registrations"): lambda: None},
    "read and watched": {(dicts, "MANY"): 0, (dicts, "SETTLED"): 1},
}


@pytest.fixture(autouse=True)
def _restored():
    yield
    restore()


def restore():
    torch.compiler.set_stance("default")
    torch._C._set_cudnn_enabled(True)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=14))
def test_words_say_what_the_plain_guard_says(way, names):
    restore()
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in WAYS[way].items():
            patch.setattr(module, name, value)
        world = make_world()
        plain, checked = make_guard(world), make_quick(make_guard(world))
        switches = Switches(read_switches())
        for name in names:
            with contextlib.suppress(AttributeError):  # a slot that is gone is not deleted
                CHANGES[name](world)
            expected = plain.holds() and (switches.holds() or not Switches.readable())
            assert checked.holds() == expected, name
            assert checked.holds() == expected, f"the second time after {name}"


@pytest.mark.parametrize("name", NOTICED)
def test_every_change_alone(name):
    world = make_world()
    plain, checked = make_guard(world), make_quick(make_guard(world))
    assert checked.holds() and plain.holds()
    CHANGES[name](world)
    assert not checked.holds() and not plain.holds()


def test_what_words_say_is_not_asked(monkeypatch):
    if find_layout() is None or find_version() is None or find_registrations() is None:
        pytest.skip("words are not read here")
    world = make_world()
    guard = make_guard(world)
    checked = make_quick(guard)
    assert checked.holds()
    assert [entry.container for each in checked._left for entry in each.entries] == [world.few]  # its order
    monkeypatch.setattr(guard, "holds", lambda: pytest.fail("the plain guard was asked"))
    assert checked.holds()


def test_a_stance_that_is_taken_in_each_call_is_asked_by_name():
    world = make_world()
    with torch.compiler.set_stance("force_eager"):
        checked = make_quick(make_guard(world))
    for _ in range(dicts.RARELY + 4):
        assert not checked.holds()
        with torch.compiler.set_stance("force_eager"):
            assert checked.holds()
