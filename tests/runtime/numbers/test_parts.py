"""What an object leads to, as C may find it."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rote.runtime.numbers import TrackedNumbers
from rote.runtime.numbers.parts import is_data, parts_of


class Slotted:
    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


def closure(value: Any) -> Any:
    return lambda: value


def with_default(value: Any) -> Any:
    def function(x: Any = value) -> Any:
        return x

    return function


def cached(value: Any) -> Any:
    function = functools.lru_cache(closure(value))
    return function


def in_a_class(value: Any) -> Any:
    return type("Holder", (), {"value": value})


NUMBER = 1234.5
HOLDERS = {
    "attribute": SimpleNamespace(x=NUMBER),
    "slot": Slotted(NUMBER),
    "partial": functools.partial(print, NUMBER),
    "closure": closure(NUMBER),
    "default": with_default(NUMBER),
    "cache": cached(NUMBER),
    "class": in_a_class(NUMBER),
    "object of a class": in_a_class(SimpleNamespace(x=NUMBER)),
    "method of a class": in_a_class(with_default(NUMBER)),
    "bound method": closure(SimpleNamespace(x=[NUMBER])).__get__(Slotted(None)),
    "deep": SimpleNamespace(x=(Slotted({"a": [NUMBER]}),)),
    "slice": slice(0, NUMBER),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_a_number_is_found(holder):
    left, met = [holder], set()
    while left:
        value = left.pop()
        if value is NUMBER:
            return
        if id(value) not in met and not is_data(value):
            met.add(id(value))
            left.extend(value if isinstance(value, (list, tuple)) else parts_of(value) or ())
    pytest.fail("it was not found")


def test_what_is_behind_a_weak_reference():
    held = Slotted(NUMBER)
    assert list(parts_of(weakref.ref(held)) or ()) == [held]


def running():
    yield 1


async def waiting():
    yield 1


@pytest.mark.parametrize("value", [running(), waiting(), sys._getframe(), torch.Generator()])
def test_what_keeps_frames_or_hides_is_not_known(value):
    assert parts_of(value) is None


def test_too_many_objects_are_not_looked_into():
    numbers = TrackedNumbers(frozenset(), frozenset())
    assert numbers.pin_inside(SimpleNamespace(x=[1]), objects=True)
    assert not numbers.pin_inside([SimpleNamespace() for _ in range(3000)], objects=True)


def test_what_c_compares_is_looked_into():
    numbers = TrackedNumbers(frozenset(), frozenset())
    assert numbers.pin_inside(SimpleNamespace(x=[1]), deque([1]), OrderedDict(x=1))
    assert not numbers.pin_inside(Slotted(NUMBER))
