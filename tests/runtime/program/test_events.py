"""Operations as comparable events."""

from __future__ import annotations

import numpy
import pytest
import torch

from rote.base.floats import float_bits
from rote.base.location import Site
from rote.runtime.program.events import Event, assemble, comparable, first_difference, results_of
from rote.runtime.program.storages import StorageTable

SITE = Site("f.py", 1, "f")


def event(operation, operands):
    return Event("captured", operation, operands, (), "one", SITE)


VALUES = [1, 1.0, True, 0, 0.0, -0.0, False, "1", None, 1j, torch.float32, torch.device("cpu"), b"1",
          [1], [1.0], numpy.float32(1), numpy.float64(1), torch.strided, torch.contiguous_format]  # fmt: skip


def test_operands_are_told_apart():
    storages = StorageTable()
    found = [comparable(value, storages) for value in VALUES]
    for position, value in enumerate(found):
        assert value == comparable(VALUES[position], storages)
        assert value not in found[:position], VALUES[position]
    nan = float("nan")
    assert comparable(nan, storages) == comparable(float("nan"), storages)


def test_tensors_are_compared_by_origin():
    storages, x = StorageTable(), torch.zeros(3)
    assert comparable([x, x], storages) == comparable((x, x), storages)
    assert comparable(x, storages) != comparable(torch.zeros(3), storages)
    assert comparable(x, storages) != comparable(x[1:], storages)


@pytest.mark.parametrize(
    ("was", "now", "text"),
    [
        ((1, 2), (1, 3), "an operand of mul was 2 and is 3"),
        ((float_bits(0.5),), (float_bits(0.25),), "an operand of mul was 0.5 and is 0.25"),
        (((1, 2),), ((1, 2, 3),), "an operand of mul was (1, 2) and is (1, 2, 3)"),
        (("a" * 100,), ("b",), "an operand of mul was '" + "a" * 76 + "... and is 'b'"),
        ((1,), (1,), None),
    ],
)
def test_the_first_difference(was, now, text):
    assert first_difference(event("mul", was), event("mul", now)) == text


def test_tensors_in_texts():
    storages = StorageTable()
    was, now = storages.token(torch.zeros(2)), storages.token(torch.zeros(3, dtype=torch.int64))
    assert first_difference(event("add", (was,)), event("add", (now,))) == (
        "an operand of add was a float32[2] tensor (external 0) and is a int64[3] tensor (external 1)"
    )


def test_other_operations_have_no_first_difference():
    assert first_difference(event("mul", (1,)), event("add", (2,))) is None


@pytest.mark.parametrize("value", [torch.ones(1), (torch.ones(1), 2), [torch.ones(1)], None])
def test_results_round_trip(value):
    shape, parts = results_of(value)
    again = assemble(shape, parts)
    assert type(again) is type(value)
    assert value is None or again is value or list(again) == list(value)


def test_lists_inside_a_tuple():
    first, *rest = (torch.full((1,), float(n)) for n in range(4))
    shape, parts = results_of((first, None, rest, []))
    assert parts == [first, None, *rest] and shape == ("tuple", (None, None, 3, 0))
    assert assemble(shape, parts) == (first, None, rest, [])
