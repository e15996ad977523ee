"""Edges: the values and shapes the host saw, as dict keys."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from rote.runtime.program.edges import edge_of, value_of

NAN, INF = float("nan"), float("inf")
VALUES = [0.0, -0.0, NAN, INF, -INF, 1.0, 1, True, False, 0, 2**70, 1e-320]


def edge(value):
    return edge_of(value, shaped=False)[0]


def test_values_are_told_apart():
    for first, second in itertools.combinations(VALUES, 2):
        assert edge(first) != edge(second), (first, second)
    assert len({edge(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_finds_itself_and_comes_back(value):
    table = {edge(value): "here"}
    assert table[edge(type(value)(value))] == "here"
    back = value_of(edge(value))
    assert type(back) is type(value) and repr(back) == repr(value)


def test_nan_from_the_device():
    assert edge(torch.tensor(NAN).item()) == edge(torch.tensor(NAN).item())
    assert edge(torch.tensor(NAN).item()) != edge(torch.tensor(math.copysign(NAN, -1.0)).item())


def test_complex_numbers():
    numbers = [complex(real, imag) for real in (0.0, -0.0, NAN) for imag in (0.0, -0.0, NAN)]
    assert len({edge(number) for number in numbers}) == len(numbers)
    assert all(edge(number) == edge(complex(number.real, number.imag)) for number in numbers)


def test_shapes():
    first, parts = edge_of(torch.zeros(2, 3), shaped=True)
    assert len(parts) == 1
    assert first == edge_of(torch.ones(2, 3), shaped=True)[0]
    others = [torch.zeros(3, 2), torch.zeros(3, 2).t(), torch.zeros(2, 3).double(), torch.zeros(2)]
    edges = {edge_of(other, shaped=True)[0] for other in others}
    assert len(edges) == 4 and first not in edges


def test_several_results():
    found, parts = edge_of((torch.zeros(2), torch.zeros(3)), shaped=True)
    assert [part.numel() for part in parts] == [2, 3]
    assert found != edge_of((torch.zeros(3), torch.zeros(2)), shaped=True)[0]
