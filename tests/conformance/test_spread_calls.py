"""Calls whose arguments lie in an iterator, and calls of what another call has given, as decorators are."""

from __future__ import annotations

import functools
import itertools
import operator

import pytest
import torch

import rote

FACTORS, TABLE = [2.0, 3.0], {"a": 2.0, "b": 3.0}
MADE_ONCE = iter([1.0] * 40)


class Pair:
    """Something that can be iterated, in Python."""

    def __init__(self):
        self.held = [2.0, 3.0]

    def __iter__(self):
        yield from self.held


PAIR = Pair()


def of_a_generator(x):
    return x * max(*(each for each in FACTORS))


def of_a_map(x):
    return x * max(*map(abs, FACTORS))


def of_values(x):
    return x * max(*TABLE.values())


def of_keys_with_more(x):
    return x * len("{}{}{end}".format(*TABLE.keys(), **{"end": "."})) * max(*(TABLE[key] for key in TABLE))


def of_an_object(x):
    return x * operator.add(*PAIR)


def of_sets(x):
    return x * len(frozenset().union(*({each} for each in FACTORS)))


def of_products(x):
    return x * sum(sum(each) for each in itertools.product(*(FACTORS for _ in range(2))))


def of_tensors(x):
    return torch.add(*(each * FACTORS[0] for each in (x, x)))


def to_python(x):
    return (lambda a, b, *, c: a * b * c)(*(x * each for each in FACTORS), **{"c": FACTORS[0]})


def with_a_class(x):
    return x * complex(*(each for each in FACTORS)).real


@pytest.mark.parametrize("program", [
    of_a_generator, of_a_map, of_values, of_keys_with_more, of_an_object, of_sets, of_products, of_tensors,
    to_python, with_a_class,
])  # fmt: skip
def test_what_lies_in_an_iterator_is_read(device, program):
    g = rote.graph(program)
    x = torch.ones(3, device=device)
    try:
        for _ in range(4):
            torch.testing.assert_close(g(x), program(x), rtol=0, atol=0)
        assert g.report().replayed == 2
        for held, key in ((FACTORS, 0), (TABLE, "a"), (PAIR.held, 0)):
            held[key] = 7.0
        FACTORS.append(11.0)
        PAIR.held[1] = 5.0
        if program in (to_python, with_a_class, of_tensors):
            FACTORS.pop()
        for _ in range(3):
            torch.testing.assert_close(g(x), program(x), rtol=0, atol=0)
    finally:
        FACTORS[:], PAIR.held[:] = [2.0, 3.0], [2.0, 3.0]
        TABLE["a"] = 2.0


def test_an_iterator_from_outside_moves_on(device):
    taken = [iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0] * 3) for _ in range(2)]

    def program(source, x):
        return x * max(*itertools.islice(source, 2))

    g = rote.graph(functools.partial(program, taken[0]))
    x = torch.ones(3, device=device)
    for _ in range(6):
        torch.testing.assert_close(g(x), program(taken[1], x), rtol=0, atol=0)


class Broken:
    def __iter__(self):
        raise LookupError("no members")


@pytest.mark.parametrize(("given", "error"), [
    (lambda: 5, "argument after \\* must be an iterable, not int"), (Broken, "no members"),
    (lambda: (1 // each for each in (1, 0)), "integer division or modulo by zero|division by zero"),
])  # fmt: skip
def test_what_cannot_be_iterated_raises_as_it_does(device, given, error):
    g = rote.graph(lambda x: x * max(*given()))
    for _ in range(3):
        with pytest.raises((TypeError, LookupError, ZeroDivisionError), match=error) as caught:
            g(torch.ones(3, device=device))
    frames, at = [], caught.value.__traceback__
    while at is not None:
        frames.append(at.tb_frame.f_code.co_filename)
        at = at.tb_next
    assert "rote/reads" not in "".join(frames)


QUEUE = [4.0, 3.0, 2.0, 1.0] * 10
TAKE = operator.methodcaller("pop")


def factory(which):
    return which


def test_what_a_decorator_that_was_made_does_is_seen(device):
    """The function in C is called by the decoration alone."""

    def program(queue, x):
        @factory(operator.methodcaller("__call__", queue))
        def taken(held):
            return held.pop()

        return x * taken

    left, right = list(QUEUE), list(QUEUE)
    g = rote.graph(functools.partial(program, left))
    x = torch.ones(3, device=device)
    for _ in range(6):
        torch.testing.assert_close(g(x), program(right, x), rtol=0, atol=0)
    assert left == right


def test_a_cache_made_inside_replays(device):
    def program(x):
        @functools.lru_cache(None)
        def scale(power):
            return FACTORS[0] ** power

        return x * scale(2) * scale(2)

    g = rote.graph(program)
    x = torch.ones(3, device=device)
    try:
        for factor in (2.0, 2.0, 2.0, 2.0, 5.0, 5.0, 5.0):
            FACTORS[0] = factor
            torch.testing.assert_close(g(x), program(x), rtol=0, atol=0)
    finally:
        FACTORS[0] = 2.0
    assert g.report().replayed >= 2


@functools.lru_cache(None)
def remembered(power):
    return FACTORS[0] ** power


def test_a_cache_that_the_call_empties(device):
    def program(x):
        remembered.cache_clear()
        return x * remembered(2)

    g = rote.graph(program)
    x = torch.ones(3, device=device)
    try:
        for factor in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0):
            FACTORS[0] = factor
            torch.testing.assert_close(g(x), program(x), rtol=0, atol=0)
    finally:
        FACTORS[0] = 2.0
        remembered.cache_clear()


def test_a_container_of_the_calls_own_is_handed_on(device):
    """As a named tuple's _replace does."""

    def program(x):
        left = {"a": 2.0, "b": 3.0}
        kept = list(map(left.pop, ("b", "a")))
        return x * kept[0] / kept[1] * len([*map(kept.append, FACTORS)])

    g = rote.graph(program)
    x = torch.ones(3, device=device)
    for _ in range(4):
        torch.testing.assert_close(g(x), program(x), rtol=0, atol=0)
    assert g.report().replayed == 2


def test_a_container_from_outside_is_not(device):
    left, right = ({"a": 2.0, "b": 3.0, "c": 4.0} for _ in range(2))

    def program(held, x):
        return x * sum(map(held.pop, list(held)[:1]))

    g = rote.graph(functools.partial(program, left))
    x = torch.ones(3, device=device)
    for _ in range(3):
        torch.testing.assert_close(g(x), program(right, x), rtol=0, atol=0)
    assert left == right == {}
