"""How far an iterator is, told without moving it."""

from __future__ import annotations

import io
import itertools
import warnings
from collections import OrderedDict, deque

import pytest
import torch

from rote.runtime.objects.iterators import Position, is_iterator
from rote.runtime.objects.iterators import position as look


def position(iterator):
    found = look(iterator)
    assert found is not None and found.known
    return found.text, found.facts


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
    "deque": lambda: iter(deque(ONES)),
    "ordered dict": lambda: iter(OrderedDict.fromkeys("abcd")),
    "product": lambda: itertools.product(ONES, ONES),
    "permutations": lambda: itertools.permutations(ONES),
    "combinations": lambda: itertools.combinations(ONES, 2),
    "tee": lambda: itertools.tee(ONES)[0],
    "bytes in memory": lambda: io.BytesIO(b"a\na\na\n"),
    "text in memory": lambda: io.StringIO("a\na\na\n"),
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
    assert next(finished, None) is None and look(finished).text == "a generator at its end"
    assert look(iter([])).text == "a list_iterator with 0 left"


@pytest.mark.parametrize("value", [[1], (1,), {1: 2}, range(3), "text", 1, None], ids=repr)
def test_what_is_no_iterator(value):
    assert not is_iterator(value)


def test_facts_that_the_text_leaves_out():
    def drawn(items):
        while True:
            yield items.pop()

    generator = drawn([1.0] * 5)
    next(generator)
    was = look(generator)
    assert was == look(generator)
    next(generator)
    now = look(generator)
    assert was.text == now.text and not was.agrees(now)


def test_the_locals_of_a_generator_may_be_anything():
    class Odd:
        def __eq__(self, other):
            raise AssertionError

        __hash__ = None

    def generator(*parts):
        nan, tensor = float("nan"), torch.ones(2)
        this = [parts]
        this.append(this)
        while True:
            yield nan, tensor, this

    found = generator(Odd(), torch.nn.Linear(2, 2), {1: Odd()}, list(range(5000)), Odd)
    next(found)
    was = look(found)
    assert was.agrees(look(found)) and len(was.facts) < 1100


def test_no_tensor_is_read():
    for made in (itertools.repeat(torch.ones(2)), itertools.cycle([torch.ones(2)])):
        next(made)
        assert "tensor" not in look(made).text
    assert not look(itertools.count(torch.ones(()))).known


def test_what_tells_nothing(tmp_path):
    path = tmp_path / "text"
    path.write_text("1\n2\n")
    with path.open() as text, path.open("rb") as raw, path.open("a") as written:
        assert not look(text).known and look(written).known
        was = look(raw)
        assert was.known and was.agrees(look(raw))
        raw.readline()
        assert not was.agrees(look(raw))
    assert look(text).text == "a TextIOWrapper" and look(text).known
    assert not look(iter(int, 1)).known
    assert not look(iter(memoryview(b"ab"))).known


def test_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in ITERATORS.values():
            look(make())


def test_methods_of_iterators():
    iterator = iter(ONES)
    step = iterator.__next__
    was = look(step)
    assert isinstance(was, Position) and was.agrees(look(step)) and was.agrees(look(iterator.__next__))
    step()
    assert not was.agrees(look(step))
    assert look([].append) is None and look(len) is None


def test_a_generator_that_runs():
    def fn():
        while True:
            yield look(this[0])

    this = [fn()]
    this[0] = fn()
    assert next(this[0]).text == "a generator that runs"
