"""``torch.Tensor([...])`` and its kin, of lists and arrays: what they make is made in the call."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from torch.nn.attention.bias import causal_lower_right

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


class Named(torch.Tensor):
    """A class of tensors as PyTorch's documentation has it."""


class Scaled(torch.Tensor):
    def __init__(self, data, scale=2.0):
        super().__init__()
        self.scale = torch.full((), scale) * 1.0  # no instance of the class

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

    def scaled(self):
        return self.as_subclass(torch.Tensor) * self.scale.to(self.device)


def plain(made):
    return made.as_subclass(torch.Tensor)


INSTANCES = {
    "of a list": lambda x: plain(Named([1.0, 2.0, 3.0])).to(x.device) + x,
    "of a tensor": lambda x: plain(Named(x)) + 1,
    "of sizes": lambda x: plain(Named(3).zero_()).to(x.device) + x,
    "of an instance": lambda x: plain(Named(Named(x))) + 1,
    "two in a line": lambda x: plain(Named(x)) * plain(Named(x + 1)),
    "in a loop": lambda x: sum([plain(Named(x * n)) for n in range(3)]),
    "spread": lambda x: plain(Named(*[x])) + 1,
    "with code of its own": lambda x: Scaled(x).scaled(),
    "of a way taken seldom": lambda x: plain(Named(x)) if x.sum() > 0 else x * 2,
    "a bias of attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x.view(1, 1, 3, 1), x.view(1, 1, 3, 1), x.view(1, 1, 3, 1), attn_mask=causal_lower_right(3, 3)
    ),
}


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("grad", [True, False])
def test_instances_of_a_class_of_tensors(device, name, grad):
    """PyTorch does not make one of a tensor that a mode has seen."""
    fn = INSTANCES[name]
    g = rote.graph(fn, keep=True)
    for number in range(12):
        x = (torch.arange(3.0) - 1 + (number > 6)).to(device) * (number + 1)
        with torch.set_grad_enabled(grad):
            found, expected = g(x), fn(x)
        assert type(found) is type(expected)
        assert_same(found, expected, f"call {number}")
