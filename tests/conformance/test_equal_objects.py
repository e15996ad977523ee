"""Objects that their class calls equal, and that hold something else beside what it compares."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same


class Text(str):
    scale = 1.0


class Number(float):
    scale = 1.0


class Whole(int):
    scale = 1.0


class Array(numpy.float64):
    scale = 1.0


class Several(tuple):
    scale = 1.0


class Pair(collections.namedtuple("Pair", "one other")):
    scale = 1.0


class Named:
    scale = 1.0

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return type(other) is Named and other.name == self.name

    def __hash__(self):
        return hash(self.name)


@dataclasses.dataclass(frozen=True)
class Option:
    name: str
    scale: float = dataclasses.field(default=1.0, compare=False)


def marked(kind, *args):
    """An object of a class, with an attribute that it does not compare."""

    def make(scale):
        made = kind(*args)
        made.scale = scale
        return made

    return make


OBJECTS = {
    "text": marked(Text, "a"),
    "number": marked(Number, 2.0),
    "whole number": marked(Whole, 2),
    "scalar of numpy": marked(Array, 2.0),
    "tuple": marked(Several, (1, 2)),
    "named tuple": marked(Pair, 1, 2),
    "object": marked(Named, "a"),
    "frozen dataclass": functools.partial(Option, "a"),
}
"""Each makes objects that are equal, by what calls see of them."""


def scale_of(held: Any) -> float:
    """What a call sees of an object, wherever that lies."""
    if hasattr(held, "scale"):
        return held.scale
    return sum([scale_of(each) for each in held]) if isinstance(held, (list, tuple, set, frozenset)) else 0.0


PLACES = {
    "attribute": (lambda one: one, scale_of),
    "list": (lambda one: [one], scale_of),
    "tuple": (lambda one: (one, 1), scale_of),
    "set": (lambda one: {one}, scale_of),
    "frozenset": (lambda one: frozenset([one]), scale_of),
    "value": (lambda one: {"a": one}, lambda held: scale_of(held["a"])),
    "key": (lambda one: {one: 1}, lambda held: scale_of([*held])),
    "key in a tuple": (lambda one: {("a", one): 1}, lambda held: scale_of([*held])),
    "item": (lambda one: {one: 1}, lambda held: sum([scale_of(key) * value for key, value in held.items()])),
    "default": (lambda one: collections.defaultdict(lambda: one), lambda held: scale_of(held["a"])),
}
"""Where an object lies, and how a call gets at it from there."""

CALLS = 12


def changed(objects, n):
    """The object of a call: the same one, another that is equal, the same with another attribute."""
    return objects[n // 3 % 2]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_another_object_in_its_place(device, make, place):
    put, read = PLACES[place]
    objects = [make(1.0), make(2.0)]

    class State:
        held = None

    g = rote.graph(lambda x: x * read(State.held), keep=True)
    for n in range(CALLS):
        State.held = put(changed(objects, n))
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x * read(put(changed(objects, n))))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_another_object_in_an_argument(device, make, place):
    put, read = PLACES[place]
    objects = [make(1.0), make(2.0)]
    g = rote.graph(lambda x, held: x * read(held), keep=True)
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x, put(changed(objects, n))), x * read(put(changed(objects, n))))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_an_object_in_an_argument_that_changes(device, make, place):
    put, read = PLACES[place]
    held = make(1.0)
    g = rote.graph(lambda x, held: x * read(held), keep=True)
    for n in range(CALLS):
        if n % 4 == 3:
            object.__setattr__(held, "scale", float(n))
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x, put(held)), x * read(put(held)))


class Key:
    scale = 1.0


KEYS = {
    "a key": lambda key: {key: 1},
    "a key in a tuple": lambda key: {("a", key): 1},
    "the keys": lambda key: {key: 1}.keys(),
    "the items": lambda key: {key: 1}.items(),
}


def of_keys(held):
    found = 0.0
    for each in held:
        key = each if isinstance(each, Key) else next(part for part in each if isinstance(part, Key))
        found += key.scale
    return found


@pytest.mark.parametrize("given", KEYS.values(), ids=KEYS)
def test_what_a_key_in_an_argument_holds_is_a_condition(device, given):
    key = Key()
    g = rote.graph(lambda x, held: x * of_keys(held))
    for n in range(16):
        if n == 8:
            key.scale = 2.0
        if n == 12:
            Key.scale, key.scale = 3.0, 1.0
            del key.scale
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x, given(key)), x * of_keys(given(key)))
    Key.scale = 1.0
    assert g.report().replayed >= 4


def test_what_a_default_in_an_argument_is_made_by_is_a_condition(device):
    class Make:
        scale = 2.0

        def __call__(self):
            return self.scale

    make = Make()
    g = rote.graph(lambda x, held: x * held["a"])
    for n in range(16):
        if n == 8:
            make.scale = 3.0
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x, collections.defaultdict(make)), x * make.scale)
    assert g.report().replayed >= 4


def test_a_key_is_not_asked_for_its_text(device):
    class Silent:
        def __repr__(self):
            raise AssertionError

    key = Silent()
    g = rote.graph(lambda x, held: x * held[key])
    for n in range(8):
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x, {key: 2.0}), x * 2.0)


def test_keys_that_are_tensors(device):
    keys = [torch.full((3,), 2.0, device=device), torch.full((3,), 5.0, device=device)]
    g = rote.graph(lambda x, held: x * next(iter(held)))
    for n in range(8):
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x, {keys[n % 3 == 2]: 1.0}), x * keys[n % 3 == 2])


def test_text_of_a_class_of_ones_own_among_keys(device):
    table = {"a": 1.0, "b": 2.0}
    g = rote.graph(lambda x: x * scale_of([*table]) + len(table))
    for n in range(12):
        if n == 6:
            table.clear()
            table.update({Text("a"): 1.0, "b": 2.0})
        x = torch.full((3,), float(n), device=device)
        assert_same(g(x), x * scale_of([*table]) + len(table))
    assert g.report().replayed >= 3
