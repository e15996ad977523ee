"""How far an iterator is, told without moving it."""

from __future__ import annotations

import itertools

import pytest

from rote.checking.iterators import Advanced, advanced, is_iterator, line_that_advances, position, positions
from rote.signature.executed import ExecutedCode
from rote.signature.state import StateWalk


def loop(items):
    for _ in items:
        yield 1.0


def counter():
    n = 0
    while True:
        n += 1
        yield 5


ONES = [1, 1, 1, 1]
ITERATORS = {
    "list": lambda: iter(ONES),
    "tuple": lambda: iter((1, 1)),
    "range": lambda: iter(range(9)),
    "dict": lambda: iter({1: 2, 3: 4}),
    "items": lambda: iter({1: 2, 3: 4}.items()),
    "set": lambda: iter({1, 2}),
    "text": lambda: iter("aaa"),
    "reversed": lambda: reversed(ONES),
    "expression": lambda: (1.0 for _ in range(9)),
    "generator": lambda: loop(ONES),
    "generator of a generator": lambda: loop(loop(ONES)),
    "counting generator": counter,
    "enumerate": lambda: enumerate(ONES),
    "zip": lambda: zip(ONES, ONES, strict=True),
    "map": lambda: map(abs, ONES),
    "filter": lambda: filter(None, ONES),
    "count": lambda: itertools.count(3),
    "repeat": lambda: itertools.repeat(1, 5),
    "cycle": lambda: itertools.cycle(ONES),
    "chain": lambda: itertools.chain(ONES, ONES),
    "islice": lambda: itertools.islice(ONES, 3),
    "accumulate": lambda: itertools.accumulate(ONES),
    "takewhile": lambda: itertools.takewhile(bool, ONES),
}


@pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS)
def test_a_step_shows_and_a_look_moves_nothing(make):
    iterator, twin = make(), make()
    assert is_iterator(iterator)
    seen = {position(iterator)}
    for _ in range(2):
        assert position(iterator) in seen
        assert next(iterator) == next(twin)
        assert position(iterator) not in seen
        seen.add(position(iterator))


def test_the_end():
    finished = loop([])
    assert next(finished, None) is None and position(finished) == "a generator at its end"
    assert position(iter([])) == "a list_iterator with 0 left"


@pytest.mark.parametrize("value", [[1], (1,), {1: 2}, range(3), "text", 1, None], ids=repr)
def test_what_is_no_iterator(value):
    assert not is_iterator(value)


def test_names_and_replaced_iterators():
    class Holder:
        pass

    def fn():
        return next(holder.moving)

    holder = Holder()
    holder.moving, holder.still, holder.replaced = iter(ONES), iter(ONES), iter(ONES)
    executed = ExecutedCode()
    executed.add_function(fn)

    def look():
        return positions(StateWalk(executed).take([("", fn)]), [("args[0]", argument)])

    argument = iter("ab")
    before = look()
    next(holder.moving), next(argument)
    holder.replaced = iter([2])
    moved = {each.name: each for each in advanced(before, look())}
    assert moved.keys() == {"args[0]", "holder.moving"}  # another iterator is another value of the slot
    assert moved["holder.moving"] == Advanced(
        "holder.moving", "a list_iterator with 4 left", "a list_iterator with 3 left"
    )
    site = line_that_advances("holder.moving", [fn.__code__])
    assert site is not None and site.text == "return next(holder.moving)"
    assert line_that_advances("holder.unknown", [fn.__code__]) is None
