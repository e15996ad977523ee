"""Arrays that Python code looks into and that become tensors in the same call; lists by which C indexes."""

from __future__ import annotations

import array
from types import SimpleNamespace

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

READS = {
    "item": lambda a: a[0],
    "method": lambda a: a.sum(),
    "ufunc": lambda a: numpy.add(a, 1)[0],
    "transposed": lambda a: a.T[0],
    "flat": lambda a: a.flat[0],
    "iterated": lambda a: next(iter(a)),
    "compared": lambda a: (a > 5).sum(),
    "memory": lambda a: memoryview(a)[0],
    "listed": lambda a: a.tolist()[0],
    "text": lambda a: float(str(a[0])),
    "indices": lambda a: len(a[a > 5]),
}


@pytest.mark.parametrize("look", READS.values(), ids=READS)
@pytest.mark.parametrize("writes", [True, False], ids=["written", "read"])
def test_read_in_python_and_as_a_tensor(device, look, writes):
    def make():
        a = numpy.zeros(3, numpy.float32)

        def f(x):
            k = 2.0 if look(a) > 1 else 1.0
            t = torch.from_numpy(a)
            if writes:
                t.add_(1)
            return x * k + t.to(x.device)

        return a, f

    (plain, f), (graphed, g) = make(), make()
    g = rote.graph(g, keep=True)
    for n in range(12):
        if n == 6:
            plain[:] = graphed[:] = 7
        x = torch.ones(3, device=device)
        assert_same(g(x), f(x))
    assert plain.tolist() == graphed.tolist()
    assert g.report().replayed == (0 if writes else 8)


ALIKE = {
    "as a tensor": lambda a: torch.from_numpy(a),
    "copied": lambda a: torch.tensor(a),
    "its shape": lambda a: torch.from_numpy(a) * a.shape[0] * a.size,
    "written": lambda a: torch.from_numpy(a).add_(1),
}


@pytest.mark.parametrize("use", ALIKE.values(), ids=ALIKE)
def test_only_as_a_tensor(device, use):
    """Its numbers are read again at each replay, so they may change."""
    plain, graphed = numpy.zeros(3, numpy.float32), numpy.zeros(3, numpy.float32)
    g = rote.graph(lambda x: x + use(graphed).to(x.device), keep=True)
    for n in range(8):
        plain[0] = graphed[0] = n
        x = torch.ones(3, device=device)
        assert_same(g(x), x + use(plain).to(x.device))
    assert g.report().replayed == 6


@pytest.mark.parametrize(
    "make",
    [lambda: bytearray(12), lambda: array.array("B", [0] * 12), lambda: memoryview(bytearray(12))],
    ids=["bytearray", "array", "memoryview"],
)
def test_memory_of_other_kinds(make):
    plain, graphed = make(), make()

    def f(held, x):
        k = 2.0 if held[0] > 3 else 1.0
        return x * k + torch.frombuffer(held, dtype=torch.uint8).add_(1)

    g = rote.graph(lambda x: f(graphed, x))
    for _ in range(8):
        assert_same(g(torch.ones(12)), f(plain, torch.ones(12)))


INDEXED = {
    "read": lambda x, index: x[index],
    "read with others": lambda x, index: x[index, ...],
    "written": lambda x, index: x.clone().__setitem__(index, 5.0) or x[index],
    "stored": lambda x, index: _stored(x, index),
}


def _stored(x, index):
    y = x.clone()
    y[index] = 5.0
    return y


@pytest.mark.parametrize("use", INDEXED.values(), ids=INDEXED)
def test_a_list_is_an_index(device, use):
    index = [0, 1]
    g = rote.graph(lambda x: use(x, index), keep=True)
    for n in range(10):
        index[0] = 2 if n >= 5 else 0
        x = torch.arange(4.0, device=device)
        assert_same(g(x), use(x, index))
    assert g.report().replayed == 6


def test_an_array_that_is_an_argument(device):
    """It is known by what it holds, in whatever way it is read."""
    held = numpy.zeros(3, numpy.float32)

    def f(x, held):
        return x * float(held[0]) + torch.from_numpy(held).to(x.device)

    g = rote.graph(f)
    for n in range(10):
        held[0] = n // 5
        x = torch.ones(3, device=device)
        assert_same(g(x, held), f(x, held))


LAID = {
    "strides": (lambda a: a.strides[0], numpy.asfortranarray),
    "order": (lambda a: a.ravel(order="K")[1], numpy.asfortranarray),
    "flags": (lambda a: 1 + a.flags.owndata, lambda a: a[:]),
}


@pytest.mark.parametrize("kind", [float, object])
@pytest.mark.parametrize("laid", LAID)
def test_equal_numbers_lie_in_another_way(device, laid, kind):
    (read, other), state = LAID[laid], SimpleNamespace(a=numpy.arange(4).reshape(2, 2).astype(kind))
    g = rote.graph(lambda x: x * float(read(state.a)))
    for number in range(8):
        if number == 5:
            state.a = other(state.a)
        x = torch.ones(2, device=device)
        assert torch.equal(g(x), x * float(read(state.a)))
