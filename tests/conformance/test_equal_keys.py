"""Arguments and state that are equal and not the same: 1 and True, two empty ranges."""

import pytest
import torch

import rote


def number(key):
    return {int: 1.0, bool: 2.0, float: 3.0}[type(key)]


def first(table):
    return number(next(iter(table)))


@pytest.mark.parametrize("keys", [(1, True, 1.0), (True, 1, True), (1.0, 1, True)])
def test_keys_of_an_argument(device, keys):
    x = torch.ones(3, device=device)
    g = rote.graph(lambda x, table: x * first(table))
    for _ in range(4):
        for key in keys:
            assert g(x, {key: 0.5}).tolist() == [number(key)] * 3
    assert g.report().replayed >= 4


@pytest.mark.parametrize("keys", [(1, True, 1.0), (True, 1.0, 1)])
def test_keys_of_a_dict_in_state(device, keys):
    x, table = torch.ones(3, device=device), {}
    g = rote.graph(lambda x: x * first(table))
    for key in keys:
        table.clear()
        table[key] = 0.5
        for _ in range(4):
            assert g(x).tolist() == [number(key)] * 3
    assert g.report().replayed >= 4


def test_ranges(device):
    x = torch.ones(3, device=device)
    g = rote.graph(lambda x, numbers: x * (numbers.start + numbers.stop + numbers.step))
    for _ in range(4):
        for numbers in (range(0), range(2, 2), range(0, 3, 2), range(0, 4, 2)):
            assert g(x, numbers).tolist() == [numbers.start + numbers.stop + numbers.step] * 3
    assert g.report().replayed >= 4


def test_the_order_of_a_long_dict(device):
    x, table = torch.ones(3, device=device), {f"k{n}": n for n in range(200)}
    g = rote.graph(lambda x: x * next(iter(table.values())))
    for _ in range(3):
        wanted = next(iter(table.values()))
        for _ in range(4):
            assert g(x).tolist() == [wanted] * 3
        key = next(iter(table))
        table[key] = table.pop(key)
    assert g.report().replayed >= 4
