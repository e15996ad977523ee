"""``torch.Tensor([...])`` and its kin, of lists and arrays: what they make is made in the call."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 24
TABLE = numpy.arange(4.0)
NUMBERS = [1.0, 2.0, 3.0, 4.0]


@pytest.fixture(autouse=True)
def _as_it_was():
    yield
    TABLE[:] = numpy.arange(4.0)
    NUMBERS[:] = [1.0, 2.0, 3.0, 4.0]


MADE = {
    "a list": lambda x, given: torch.Tensor([1.0, 2.0, 3.0, 4.0]),
    "a list from outside": lambda x, given: torch.FloatTensor(NUMBERS),
    "lists": lambda x, given: torch.DoubleTensor([[1, 2, 3, 4]]),
    "integers": lambda x, given: torch.LongTensor([0, 2, 1, 3]),
    "an array made inside": lambda x, given: torch.Tensor(numpy.ones(4) * 3),
    "an array of the same type": lambda x, given: torch.FloatTensor(numpy.ones(4, numpy.float32)),
    "an array from outside": lambda x, given: torch.Tensor(TABLE),
    "an array that is given": lambda x, given: torch.FloatTensor(given),
    "what is computed of it": lambda x, given: torch.Tensor(given * 2 + 1),
    "a draw": lambda x, given: torch.Tensor(numpy.random.normal(0, 1, (4,))),
    "positions that are drawn": lambda x, given: torch.LongTensor(numpy.random.permutation(4)),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_tensor_is_made(device, make):
    def fn(x, given):
        made = make(x, given).to(x.device)
        return (x[made] if made.dtype == torch.int64 else x * made), made

    g = rote.graph(fn, keep=True)
    for number in range(CALLS):
        x, given = torch.arange(4.0, device=device) + number, numpy.arange(4.0) * number
        if number == CALLS - 4:
            TABLE[1], NUMBERS[2] = 7.0, 9.0
        numpy.random.seed(number)
        mine, state = g(x, given), numpy.random.random()
        numpy.random.seed(number)
        assert_same(mine, fn(x, given))
        assert state == numpy.random.random()
    assert g.report().replayed >= CALLS // 3, g.explain()


def test_what_lies_in_an_array_is_written(device):
    def fn(x):
        array = numpy.ones(4, numpy.float32)
        made = torch.Tensor(array)
        array[0] = 2 if random.random() < 0.5 else 3
        return x * made.to(x.device)

    g = rote.graph(fn)
    for number in range(CALLS):
        x = torch.arange(4.0, device=device)
        random.seed(number)
        mine = g(x)
        random.seed(number)
        assert_same(mine, fn(x))


def test_a_tensor_is_read(device):
    def fn(x):
        return x * torch.Tensor([x[0], x[1], 1.0, 2.0]).to(x.device)

    g = rote.graph(fn)
    for number in range(CALLS):
        x = torch.arange(4.0, device=device) + number % 5
        assert_same(g(x), fn(x))


def test_a_number_that_changes(device):
    def fn(x, number):
        return x * torch.Tensor([number, 1.0, 2.0, 3.0]).to(x.device)

    g, x = rote.graph(fn), torch.arange(4.0, device=device)
    for number in range(CALLS):
        assert_same(g(x, number / 2), fn(x, number / 2))


def test_a_part_of_a_list_is_an_argument(device):
    def fn(x, numbers):
        numbers.append(float(len(numbers)))
        return x * torch.FloatTensor(numbers[-4:]).to(x.device)

    g, x, mine, other = rote.graph(fn), torch.arange(4.0, device=device), [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]
    for _ in range(CALLS):
        assert_same(g(x, mine), fn(x, other))
        assert mine == other
