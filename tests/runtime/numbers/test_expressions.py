"""Expressions are evaluated by Python's own functions; outcomes and cells follow the stages of reads."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rote.runtime.numbers import Fixed, NumberSource, TrackedNumbers
from rote.runtime.numbers.expressions import Applied, GivenNumber

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.sampled_from([0, 1, -1, 0.0, -0.0, 256, 257])
)


def bits(value):
    return (type(value), struct.pack("d", value) if isinstance(value, float) else value)


def leaf(number):
    return NumberSource("", None, number, f"args[{number}]")


def compute(numbers, function, result, *operands):
    return numbers.compute(function, operands, result)


@given(NUMBERS)
def test_a_copy_is_another_object_of_the_same_bits(value):
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    copy = numbers.take(leaf(0), value)
    assert copy is not value and bits(copy) == bits(value)
    assert numbers.expression(copy) == GivenNumber(0) and numbers.expression(value) is None
    assert numbers.original(copy) is value


def test_a_copy_of_a_copy_is_no_object_that_others_have():
    first, second = (TrackedNumbers(frozenset(), frozenset({0})) for _ in range(2))
    copy = first.take(leaf(0), 4)
    again = second.take(leaf(0), copy)
    assert again is not copy and again is not int("4") and again == 4
    assert second.expression(int("4")) is None


@given(NUMBERS, NUMBERS, st.sampled_from(["ADD", "SUBTRACT", "MULTIPLY"]))
def test_computed_again(first, second, operator):
    function = {"ADD": lambda a, b: a + b, "SUBTRACT": lambda a, b: a - b, "MULTIPLY": lambda a, b: a * b}[
        operator
    ]
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    copy = numbers.take(leaf(0), first)
    try:
        expected = function(copy, 3)
        other = function(second, 3)
    except OverflowError:
        return
    made = compute(numbers, operator, expected, copy, 3)
    assert bits(made) == bits(expected) and made is not expected
    computed = numbers.computed(made)
    computation = numbers.finish()
    answers = computation.take([second])
    fits = type(second) is type(first) and type(other) is type(expected)
    fits = fits and (type(other) is float or -(2**63) <= other < 2**63)
    assert answers is fits
    if fits:
        assert bits(computed.value) == bits(other)


def test_a_call_that_computes_more_than_a_replay_may_is_followed_no_further():
    """It costs a hundred times what it takes, and its numbers are conditions then."""
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    value, steps = numbers.take(leaf(0), 0), 0
    while numbers.stopped is None:
        value, steps = compute(numbers, "ADD", value + 1, value, 1), steps + 1
        assert value == steps < 100_000
    assert steps > 1000 and [each.name for each in numbers.by_value()] == ["args[0]"]


def test_outcomes():
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    step = numbers.take(leaf(0), 3)
    assert compute(numbers, "<", True, step, 10) is True
    computation = numbers.finish()
    assert computation.take([9]) and not computation.take([10]) and not computation.take([3.0])
    assert str(next(iter(numbers.outcomes))) == "<(n0, 10)"


def test_what_raises_is_no_answer():
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    given = numbers.take(leaf(0), 3.0)
    compute(numbers, "math.floor", 3, given)  # nobody uses it
    computation = numbers.finish()
    assert computation.take([5.0]) and not computation.take([math.inf])


def test_a_value_is_a_condition_once_somebody_looks():
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    numbers.pin_inside({"a": [numbers.take(leaf(0), -0.0)]})
    assert [place.name for place in numbers.by_value()] == ["args[0]"]
    computation = numbers.finish()
    assert computation.take([-0.0]) and not computation.take([0.0])


def test_a_nan_is_not_followed():
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    given = float("nan")
    assert numbers.take(leaf(0), given) is given and numbers.stopped is not None
    assert numbers.by_value() == []


def test_something_else_came_out():
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    given = numbers.take(leaf(0), 3)
    assert compute(numbers, "ADD", 5, given, 1) == 5
    assert "gave 5 and gives 4" in numbers.stopped
    assert numbers.by_value() == list(numbers.places)


def test_stages():
    line = (object(),)
    numbers = TrackedNumbers(frozenset(), frozenset({0}), frozenset({line}))
    scale = numbers.take(leaf(0), 2.0)
    seen = numbers.reads("item", line, 5.0, ())
    assert seen is not None and (seen.order, seen.way) == (0, 0)
    read = numbers.read(5.0)
    first = numbers.computed(compute(numbers, "MULTIPLY", 10.0, scale, read))
    assert compute(numbers, ">", False, read, 100.0) is False
    alone = numbers.computed(compute(numbers, "ADD", 3.0, scale, 1))
    computation = numbers.finish()
    assert computation.take([4.0]) and (alone.value, first.value) == (5.0, 10.0)
    way = numbers.reader(seen)
    assert way(6.0) == 0 and first.value == 24.0
    assert way(101.0) == 1 and way(6) == 1  # a new one


def test_another_way():
    line = (object(),)
    known, computation = list[Any](), None
    for value in (5.0, -5.0):
        numbers = TrackedNumbers(frozenset(), frozenset(), frozenset({line}), computation)
        seen = numbers.reads("item", line, value, ())
        assert seen is not None and seen.way == len(known)
        read = numbers.read(value)
        compute(numbers, ">", value > 0, read, 0)
        known.append(numbers.computed(compute(numbers, "ADD", value + 1, read, 1)))
        computation = numbers.finish()
    assert known[0].cell is known[1].cell
    way = numbers.reader(seen)
    assert [way(7.0), known[0].value] == [0, 8.0]
    assert [way(-7.0), known[0].value] == [1, -6.0]
    assert way(0) == 2
    assert not computation.is_checked()
    computation.check((("number", 0, 1),))
    assert computation.is_checked((("number", 0, 1),)) and not computation.is_checked((("number", 0, 0),))


@pytest.mark.parametrize("value", [object(), [[each] for each in range(3000)]])
def test_what_is_not_known_stops_it(value):
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    numbers.take(leaf(0), 1.5)
    known = numbers.pin_inside(value)
    assert not known


def test_what_is_used_often_is_computed_once():
    numbers = TrackedNumbers(frozenset(), frozenset({0}))
    value = expected = numbers.take(leaf(0), 1)
    for _ in range(2000):
        value = compute(numbers, "ADD", value + value, value, value)
        value = compute(numbers, "REMAINDER", value % 1000003, value, 1000003)
    computed, computation = numbers.computed(value), numbers.finish()
    assert computation.take([7]) and computed.value == 7 * 2**2000 % 1000003
    assert numbers.expression(value).given == frozenset({0}) and expected == 1


def test_equal_expressions():
    expression = GivenNumber(0)
    for _ in range(3):
        expression = Applied.to("ADD", expression, expression)
    again = Applied.to("ADD", *expression.operands)
    assert expression == again and {expression: 1}[again] == 1
    assert expression != Applied.to("SUBTRACT", *expression.operands) and expression != GivenNumber(0)
    assert Fixed.of(1) != Fixed.of(True) and Fixed.of(0.0) != Fixed.of(-0.0)


def test_a_number_is_known_by_what_tells_it():
    numbers = TrackedNumbers(frozenset(), frozenset({0, 1}))
    step, other = numbers.take(leaf(0), 3), numbers.take(leaf(1), 7)
    numbers.pin(compute(numbers, "FLOOR_DIVIDE", 3, other, 2))  # few values, for many numbers
    assert numbers.by_value() == []
    more = compute(numbers, "ADD", 4, step, 1)
    numbers.pin(compute(numbers, "SUBTRACT", 6, 10, more))
    assert [place.name for place in numbers.by_value()] == ["args[0]"]
