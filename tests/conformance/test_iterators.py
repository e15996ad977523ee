"""Iterators that a call advances: whatever their items, a recording would give the first ones for ever."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import operator
import os
import queue
from unittest import mock

import pytest
import torch
from torch.utils.data import DataLoader

import rote

ITEMS = [1.0] * 6 + [2.0] * 20
CALLS = 12
PLAIN = ITEMS[:CALLS]


def generated(items):
    for item in items:  # noqa: UP028
        yield item


def by_index(items):
    index = 0
    while True:
        yield items[index]
        index += 1


def from_a_list(items):
    left = list(items)
    while True:
        yield left.pop(0)


def from_a_closure(items):
    n = 0

    def draw(_=None):
        nonlocal n
        n += 1
        return items[n - 1]

    return draw


def from_a_queue(items):
    """Neither its line nor its locals show that it went on."""
    held = queue.SimpleQueue()
    for item in items:
        held.put(item)

    def generator():
        while True:
            yield held.get()

    return generator()


class Sequence:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]


class Own:
    def __init__(self, items):
        self.items, self.index = items, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.index += 1
        return self.items[self.index - 1]


def lines(items):
    return map(float, io.StringIO("".join(f"{item}\n" for item in items)))


ITERATORS = {
    "list": iter,
    "tuple": lambda items: iter(tuple(items)),
    "sequence": lambda items: iter(Sequence(items)),
    "reversed": lambda items: reversed(items[::-1]),
    "dict values": lambda items: iter(dict(enumerate(items)).values()),
    "generator": generated,
    "generator by index": by_index,
    "generator over a list": from_a_list,
    "generator from a queue": from_a_queue,
    "generator of a generator": lambda items: generated(generated(items)),
    "expression": lambda items: (item for item in items),
    "chain": lambda items: itertools.chain(items[:3], items[3:]),
    "islice": lambda items: itertools.islice(items, 20),
    "cycle": lambda items: itertools.cycle(items[:8]),
    "accumulate": lambda items: itertools.accumulate(items, max),
    "map": lambda items: map(abs, items),
    "map of an own iterator": lambda items: map(abs, Own(items)),
    "map of a closure": lambda items: map(from_a_closure(items), itertools.repeat(0)),
    "filter": lambda items: filter(None, items),
    "takewhile": lambda items: itertools.takewhile(bool, items),
    "tee": lambda items: itertools.tee(items)[0],
    "function": lambda items: iter(from_a_closure(items), None),
    "own": Own,
    "file": lines,
    "loader": lambda items: map(float, iter(DataLoader(items, batch_size=None))),
}


ADVANCED = (Own, ITERATORS["list"], ITERATORS["tuple"])
"""Those that replays advance as well."""


@pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS)
def test_equal_items_at_first(device, reason, make):
    factors = make(ITEMS)
    plain = make(ITEMS)
    g = rote.graph(lambda x: x * next(factors))
    for _ in range(CALLS):
        assert g(torch.ones(1, device=device)).item() == next(plain)
    if make in ADVANCED:  # how far one of the user's is is a number, and its items are a table
        assert g.report().replayed > 0
    else:
        assert g.report().replayed == 0
        assert ".factors" in reason(g, "RT201").message


STEPPING = {
    "enumerate": lambda: (pair[1] for pair in enumerate(ITEMS)),
    "enumerate itself": lambda: enumerate(ITEMS),
    "zip": lambda: zip(ITEMS, ITEMS, strict=True),
    "count": lambda: itertools.count(3),
    "range": lambda: iter(range(30)),
    "product": lambda: itertools.product([0.0, 1.0], repeat=5),
    "permutations": lambda: itertools.permutations(range(5)),
    "combinations": lambda: itertools.combinations(range(9), 3),
    "groups": lambda: itertools.zip_longest(ITEMS, ITEMS),
    "groups of which one ends": lambda: itertools.zip_longest(ITEMS, ITEMS[:2]),
}


NUMBERS = ("enumerate itself", "zip", "count")
"""Those that give numbers, and go back: replays advance them as well."""


@pytest.mark.parametrize("name", STEPPING)
def test_items_that_nothing_is_computed_with(device, name):
    turns, plain = STEPPING[name](), STEPPING[name]()

    def fn(x):
        next(turns)
        return x + 1

    g = rote.graph(fn)
    for _ in range(CALLS):
        g(torch.ones(1, device=device))
        next(plain)
    assert next(turns) == next(plain)
    assert (g.report().replayed > 0) is (name in NUMBERS)


def test_what_it_says(device, where, reason):
    factors = reversed(ITEMS)

    def fn(x):
        return x * next(factors)

    g = rote.graph(fn)
    for _ in range(CALLS):
        g(torch.ones(1, device=device))
    found = reason(g, "RT201")
    assert found.message == (
        "test_what_it_says.<locals>.fn.factors was a list_reverseiterator with 15 left "
        "and is a list_reverseiterator with 14 left"
    )
    assert found.where == where(fn, "next(factors)")
    assert found.remedy == "Take the item outside (x = next(batches)), and pass it in as an argument."


def test_places_of_iterators(device):
    class Holder:
        pass

    def on_an_object(items):
        holder = Holder()
        holder.factors = iter(items)
        return lambda x: x * next(holder.factors)

    def in_a_list(items):
        held = [iter(items)]
        return lambda x: x * next(held[0])

    def in_a_tuple(items):
        held = (iter(items), 1)
        return lambda x: x * next(held[0])

    def as_a_method(items):
        step = iter(items).__next__
        return lambda x: x * step()

    def in_a_partial(items):
        return functools.partial(lambda factors, x: x * next(factors), iter(items))

    def as_a_default(items):
        def fn(x, factors=iter(items)):  # noqa: B008
            return x * next(factors)

        return fn

    for make in (on_an_object, in_a_list, in_a_tuple, as_a_method, in_a_partial, as_a_default):
        g = rote.graph(make(ITEMS))
        assert [g(torch.ones(1, device=device)).item() for _ in range(CALLS)] == PLAIN, make.__name__
        assert (g.report().replayed > 0) is (make is not as_a_method), make.__name__


def test_an_argument(device):
    factors = iter(ITEMS)
    g = rote.graph(lambda x, factors: x * next(factors))
    assert [g(torch.ones(1, device=device), factors).item() for _ in range(CALLS)] == PLAIN
    assert g.report().replayed > 0


def test_a_text_file(device, tmp_path, reason):
    path = tmp_path / "factors.txt"
    path.write_text("".join(f"{item}{os.linesep}" for item in ITEMS))
    with path.open() as file:
        g = rote.graph(lambda x: x * float(next(file)))
        assert [g(torch.ones(1, device=device)).item() for _ in range(CALLS)] == PLAIN
    assert g.report().replayed == 0
    assert "its position cannot be told" in reason(g, "RT201").message


def test_on_another_way_of_a_recorded_call(device):
    """Only one way of the call advances it: that one stays eager, and is never recorded."""
    factors = iter(ITEMS)
    g = rote.graph(lambda x: x * next(factors) if (x.sum() > 0).item() else x - 1)
    for _ in range(8):
        assert g(torch.full((1,), -1.0, device=device)).item() == -2.0
    assert g.report().replayed
    assert [g(torch.ones(1, device=device)).item() for _ in range(CALLS)] == PLAIN


MOVED_OUTSIDE = {
    "list": iter,
    "generator": generated,
    "generator over a list": from_a_list,
    "function": lambda items: iter(from_a_closure(items), None),
    "map": lambda items: map(abs, items),
    "loader": lambda items: iter(DataLoader(items, batch_size=None)),
}


@pytest.mark.parametrize("make", MOVED_OUTSIDE.values(), ids=MOVED_OUTSIDE)
def test_what_the_caller_advances_is_no_matter(device, make):
    """A training loop keeps its batches beside the step: nothing that a replay does depends on them."""

    class Trainer:
        def __init__(self):
            self.batches = make(ITEMS)

        def step(self, x):
            return x * 2

    trainer = Trainer()
    g = rote.graph(trainer.step)
    for _ in range(CALLS):
        item = next(trainer.batches)
        assert g(torch.full((1,), item, device=device)).item() == item * 2
    assert g.report().replayed == CALLS - rote.Options().warmup - 1, g.explain()


def test_files_that_the_caller_reads_and_writes(device, tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n" * CALLS)

    class Trainer:
        def step(self, x):
            return x * 2

    trainer = Trainer()
    with path.open() as trainer.numbers, (tmp_path / "log.txt").open("w") as trainer.log:
        g = rote.graph(trainer.step)
        for _ in range(CALLS):
            item = float(next(trainer.numbers))
            assert g(torch.full((1,), item, device=device)).item() == 2.0
            trainer.log.write("a step")
    assert g.report().replayed == CALLS - rote.Options().warmup - 1, g.explain()


def test_a_look_at_an_iterator_that_the_caller_advances(device):
    """A call may ask how far an iterator is and leave it there."""

    def by_copy(x, factors):
        return x * next(copy.copy(factors))

    def by_length(x, factors):
        return x * operator.length_hint(factors)

    for look in (by_copy, by_length):
        factors, plain = iter(ITEMS), iter(ITEMS)
        g = rote.graph(lambda x, look=look, factors=factors: look(x, factors))
        for _ in range(4):
            for _ in range(4):  # long enough to record
                x = torch.ones(1, device=device)
                assert torch.equal(g(x), look(x, plain))
            next(factors), next(plain)
        assert g.report().replayed, g.explain()


def test_another_iterator_in_its_place(device):
    class Holder:
        def __init__(self):
            self.factors = iter(ITEMS)

        def step(self, x):
            return x * len(list(self.factors))

    holder = Holder()
    g = rote.graph(holder.step)
    counts = []
    for n in range(CALLS):
        holder.factors = iter(ITEMS[:n])
        counts.append(g(torch.ones(1, device=device)).item())
    assert counts == list(map(float, range(CALLS)))


def test_a_mock_makes_no_more_mocks_when_it_is_looked_at(device):
    """A ``MagicMock`` has ``__next__`` by a descriptor that makes it, and a mock for it."""
    called, seen, made = mock.MagicMock(), mock.MagicMock(), []

    def call(x):
        called.step(3)
        return x * (2 if seen.fast else 3)

    g = rote.graph(call)
    for number in range(CALLS):
        assert g(torch.ones(1, device=device)).item() == 2
        assert called.step.call_count == number + 1
        made.append(len(seen._mock_children))
    assert len(set(made)) == 1 and g.report().replayed == 0
