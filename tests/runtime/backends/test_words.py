"""Where numbers lie among the parameters of kernels, as captures with other numbers show it."""

from __future__ import annotations

import random
import struct
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.runtime.backends.cuda.graphs.launched import LaunchedKernel
from rote.runtime.backends.cuda.graphs.words import roles_of, rounds, twice, words_in
from rote.runtime.backends.protocol import Magnitudes, NumberCell

aten = torch.ops.aten
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WHOLE = (torch.int64, torch.int32)


def cast(value, dtype):
    """The bytes of a number in a tensor of a type."""
    return torch.tensor(value, dtype=torch.float64 if type(value) is float else torch.int64).to(dtype)


def raw(tensor):
    return tensor.reshape(1).view(torch.uint8).numpy().tobytes()


def kernel(*parameters, launch=("kernel", 1)):
    return LaunchedKernel(0, SimpleNamespace(launch=launch), parameters)


def found(cells, roles, launched):
    """What is found where a function of the numbers tells what is launched."""
    numbers = rounds(cells)
    return words_in([launched(values) for values in twice(numbers)], numbers, dict.fromkeys(cells, roles))


def placed(words):
    return [[(each.parameter, each.start, each.coding.size) for each in part] for part in words]


@pytest.mark.parametrize(
    ("kind", "dtype"), [*[(float, each) for each in FLOATS], *[(int, each) for each in (*FLOATS, *WHOLE)]]
)
def test_types_of_words(kind, dtype):
    cell = NumberCell(kind(3))

    def launched(values):
        return [kernel(b"\x07\0\0\0", raw(cast(0, torch.int64)) + raw(cast(values[cell], dtype)) + bytes(6))]

    words = found([cell], [""], launched)
    assert placed(words) == [[(1, 8, dtype.itemsize)]]
    for value in (kind(-5), kind(1234), kind(0)):
        assert words[0][0].coding.pack(value) == raw(cast(value, dtype))


def inverse(number):
    return 1 / number if number else float(f"{number}".replace("0.0", "inf"))


@pytest.mark.parametrize(("role", "function"), [("-", lambda number: -number), ("1/", inverse)])
def test_roles(role, function):
    cell = NumberCell(0.3)

    def launched(values):
        return [kernel(raw(cast(function(values[cell]), torch.float32)))]

    (word,) = found([cell], ["", role], launched)[0]
    assert found([cell], [""], launched) is None
    for value in (0.7, -3.3, 1e-3):
        assert word.coding.pack(value) == raw(cast(function(value), torch.float32))
    assert not word.coding.magnitudes.have(float("nan")) and not word.coding.magnitudes.have(1e39)
    assert word.coding.magnitudes.have(1e-40) is (role != "1/")  # its inverse is none


def test_what_lies_on_the_stack_is_no_number():
    cell, stack = NumberCell(0.3), random.Random(0)

    def launched(values):
        return [
            kernel(raw(cast(values[cell], torch.float32)) + stack.randbytes(4), bytes(4) + stack.randbytes(8))
        ]

    assert placed(found([cell], [""], launched)) == [[(0, 0, 4)]]


def test_a_stack_that_repeats_itself():
    cell, count = NumberCell(0.3), iter(range(1000))

    def launched(values):
        return [kernel(raw(cast(values[cell], torch.float32)) + bytes([next(count) % 3]) * 4)]

    assert placed(found([cell], [""], launched)) == [[(0, 0, 4)]]


@pytest.mark.parametrize(
    "launched",
    [
        lambda n: [kernel(raw(cast(n, torch.float32)) + bytes([n > 0.6]))],
        lambda n: [kernel(raw(cast(n * n, torch.float32)))],
        lambda n: [kernel(raw(cast(n, torch.float32)), launch=("kernel", 1 + (n == 1)))],
        lambda n: [kernel(raw(cast(n, torch.float32)))] * (1 + (n == 0)),
        lambda n: [kernel(bytes(8))],
        lambda n: [],
    ],
    ids=["a flag", "a square", "another kernel", "no kernel for zero", "not there", "no kernel"],
)
def test_what_is_not_understood_is_not_patched(launched):
    cell = NumberCell(0.3)
    assert found([cell], ["", "-", "1/"], lambda values: launched(values[cell])) is None


def test_numbers_of_several_kernels():
    cells = [NumberCell(0.3), NumberCell(4), NumberCell(0.3)]

    def launched(values):
        first, whole, last = [values[each] for each in cells]
        return [
            kernel(bytes(4), raw(cast(first, torch.float32)) + raw(cast(last, torch.float32))),
            kernel(raw(cast(whole, torch.int64)), raw(cast(last, torch.float64))),
        ]

    words = found(cells, [""], launched)
    assert placed(words) == [[(1, 0, 4), (1, 4, 4)], [(0, 0, 8), (1, 0, 8)]]
    owners = [[cells.index(each.cell) for each in part] for part in words]
    assert owners == [[0, 2], [1, 2]]


def test_roles_come_from_the_table():
    cell, other = NumberCell(0.3), NumberCell(2)
    x = torch.ones(2)
    assert roles_of(aten.add.Tensor, (x, cell), {"alpha": other}) == {cell: [""], other: [""]}
    assert roles_of(aten.sub.Tensor, (x, x), {"alpha": cell}) == {cell: ["-"]}
    assert roles_of(aten.mul_.Tensor, (x, cell), {}) == {cell: [""]}
    assert roles_of(aten._foreach_div_.ScalarList, ([x, x], [cell, 2.0]), {}) == {cell: ["", "1/"]}
    assert roles_of(aten.pow.Tensor_Scalar, (x, cell), {}) is None
    assert roles_of(aten.mul.Tensor, (x, NumberCell(True)), {}) is None


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(1, 1e30))
def test_magnitudes(value, largest):
    cell = NumberCell(0.5)
    cell.bound(Magnitudes(0, largest))
    cell.bound(Magnitudes(0, 2 * largest))
    if abs(value) <= largest:
        cell.fill(value)
        assert struct.pack("<d", cell.value) == struct.pack("<d", value)
    else:
        with pytest.raises(OverflowError, match="is out of range: replays have numbers of"):
            cell.fill(value)
        assert cell.value == 0.5
        cell.hold(value)  # a call that is traced has any number
