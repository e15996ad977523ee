"""Operations as data, and how they are compared."""

from __future__ import annotations

import struct

import numpy
import pytest
import torch

from rote.base.location import NOWHERE
from rote.runtime.program import (
    HostBytes,
    Number,
    Operation,
    Reference,
    StorageTable,
    Value,
    assemble,
    content_of,
    first_difference,
    operand_of,
    operands_of,
    results_of,
)
from rote.runtime.program.operations import CAPTURED, LIST, Opaque, number_of

aten = torch.ops.aten


def no_token(tensor):
    raise AssertionError


def called(name, *args, token=no_token, **kwargs):
    _, _, operands, named = operands_of(args, kwargs, token)
    return Operation.called(CAPTURED, name, operands, named, NOWHERE)


VALUES = [1, 1.0, True, 0, 0.0, -0.0, False, "1", None, 1j, complex(-0.0, 1), torch.float32,
          torch.device("cpu"), b"1", [1], [1.0], [[1]], [], (1, "1"), numpy.float32(1), numpy.float64(1),
          torch.strided, torch.contiguous_format, torch.Size((1, 2)), object()]  # fmt: skip


def test_operands_are_told_apart():
    found = [operand_of(value, no_token) for value in VALUES]
    for position, value in enumerate(found):
        again = operand_of(VALUES[position], no_token)
        assert value == again and hash(value) == hash(again)
        assert value not in found[:position], VALUES[position]


NUMBERS = [0, 1, -1, 2**62, True, False, 0.5, -0.0, 5e-324, float("inf"), 1j, complex(-0.0, float("-inf"))]


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_come_back(value):
    again = number_of(value).value
    assert type(again) is type(value) and repr(again) == repr(value)


def test_a_nan_is_one_by_its_bits():
    other = struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]
    nan = float("nan")
    assert number_of(nan) == number_of(float("nan")) != number_of(other)
    assert struct.pack("d", number_of(other).value) == struct.pack("d", other)


def test_tensors_are_compared_by_origin():
    token, x = StorageTable().token, torch.zeros(3)
    assert operand_of([x, x], token) == operand_of((x, x), token)
    assert operand_of(x, token) != operand_of(torch.zeros(3), token)
    assert operand_of(x, token) != operand_of(x[1:], token)


def test_operands_have_places():
    storages, (x, y) = StorageTable(), (torch.zeros(3), torch.zeros(2))
    found = called("aten::index_put_", x, [None, y], y, True, 2, token=storages.token, alpha=0.5, b=[1, 2])
    assert found.tokens == [storages.token(each) for each in (x, y, y)]
    assert [number.value for number in found.numbers] == [True, 2, 0.5, 1, 2]
    assert all(type(number) is Number for number in found.numbers)
    args, kwargs = found.arguments(lambda each: each.value if isinstance(each, Number) else each)
    assert args[1:] == ([None, found.tokens[1]], found.tokens[1], True, 2)
    assert kwargs == {"alpha": 0.5, "b": [1, 2]}


def test_what_is_unknown_is_opaque():
    assert operand_of(object(), no_token) == Opaque("object")


@pytest.mark.parametrize(
    ("was", "now", "text"),
    [
        ((1, 2), (1, 3), "an operand of mul was 2 and is 3"),
        ((0.5,), (0.25,), "an operand of mul was 0.5 and is 0.25"),
        ((True,), (False,), "an operand of mul was True and is False"),
        (([1, 2],), ([1, 2, 3],), "an operand of mul was (1, 2) and is (1, 2, 3)"),
        (([1, 2],), ([1, 3],), "an operand of mul was 2 and is 3"),
        (("a" * 100,), ("b",), "an operand of mul was '" + "a" * 76 + "... and is 'b'"),
        ((1,), (1,), None),
    ],
)
def test_the_first_difference(was, now, text):
    assert first_difference(called("mul", *was), called("mul", *now)) == text


def test_the_first_difference_by_name():
    was, now = called("mul", 1, alpha=1.0), called("mul", 1, alpha=2.0)
    assert first_difference(was, now) == "an operand of mul was 1.0 and is 2.0"
    assert not was.is_called_as(now)


def test_tensors_in_texts():
    token = StorageTable().token
    was, now = (called("add", x, token=token) for x in (torch.zeros(2), torch.zeros(3, dtype=torch.int64)))
    assert first_difference(was, now) == (
        "an operand of add was a float32[2] tensor (external 0) and is a int64[3] tensor (external 1)"
    )


def test_other_operations_have_no_first_difference():
    assert first_difference(called("mul", 1), called("add", 2)) is None


def test_other_results_are_a_difference():
    one, two = (called("f", 1).ended("one", (Value.of(value),)) for value in (1, 2))
    assert one.is_called_as(two) and not one.agrees(two)
    assert first_difference(one, two) == "f gave 1 and gives 2"


@pytest.mark.parametrize("value", [torch.ones(1), (torch.ones(1), 2), [torch.ones(1)], None])
def test_results_round_trip(value):
    structure, parts = results_of(value)
    again = assemble(structure, parts)
    assert type(again) is type(value)
    assert value is None or again is value or list(again) == list(value)


def test_lists_inside_a_tuple():
    first, *rest = (torch.full((1,), float(n)) for n in range(4))
    structure, parts = results_of((first, None, rest, []))
    assert parts == [first, None, *rest] and structure == ("tuple", (None, None, 3, 0))
    assert assemble(structure, parts) == (first, None, rest, [])


def test_the_overload_comes_back():
    assert called("aten::add.Tensor").overload is aten.add.Tensor
    assert called("aten::relu").overload is aten.relu.default
    with pytest.raises(LookupError, match="no library that is loaded has the operator aten::nothing"):
        _ = called("aten::nothing.at_all").overload


def test_what_is_written():
    token, (x, y) = StorageTable().token, (torch.zeros(3), torch.zeros(3))
    assert called("aten::add_.Tensor", x, y, token=token).written == (0,)
    assert called("aten::add.Tensor", x, y, token=token).written == ()
    assert called("aten::add.out", x, y, token=token, out=x).written == (2,)
    assert called("aten::_foreach_add_.List", [x, y], [y, x], token=token).written == (0, 1)
    statistics = (x, x, x, y, y)
    assert called("aten::native_batch_norm", *statistics, True, 0.1, 1e-5, token=token).written == (3, 4)
    assert called("aten::native_batch_norm", *statistics, False, 0.1, 1e-5, token=token).written == ()


def test_what_draws():
    token, x = StorageTable().token, torch.zeros(1, 1, 1, 1)
    assert called("aten::bernoulli_.float", x, 0.5, token=token).draws
    assert not called("aten::mul.Tensor", x, x, token=token).draws
    attention = "aten::_scaled_dot_product_flash_attention"
    assert not called(attention, x, x, x, 0.0, token=token).draws
    assert called(attention, x, x, x, 0.5, token=token).draws


def test_a_function_of_the_host_has_no_schema():
    operation = Operation.called(LIST, "tolist", (), (), NOWHERE)
    assert not operation.is_of_aten and operation.written == () and not operation.draws


def test_an_operation_is_fixed():
    operation = called("aten::relu", 1)
    with pytest.raises(AttributeError):
        operation.kind = "view"
    ended = operation.ended("one", (Reference(0),))
    assert (
        operation.results == () and ended.results == (Reference(0),) and ended.operands == operation.operands
    )


def test_contents_are_data():
    found = content_of(torch.tensor([[1.0, 2.0]]).t())
    assert found == HostBytes((2, 1), torch.float32, struct.pack("ff", 1.0, 2.0), torch.float32)
